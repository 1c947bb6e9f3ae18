package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// link is a way to those that a server serves.
type link interface {
	// write sends a frame and its body. pass sends a frame, whose body is a byte with a descriptor.
	write(f frame, body []byte) error
	pass(f frame, fd int) error
	// read returns the next frame and its body.
	read() (f frame, body []byte, err error)
	Close() error
}

// conn is a server's end of a link. Sending is safe for concurrent use; one goroutine receives.
type conn struct {
	link
	code func(error) int // exit code of the command line

	mu   sync.Mutex
	sent atomic.Uint64 // frames
}

// socket is a link to one process.
type socket struct{ *net.UnixConn }

// connect takes over an inherited descriptor.
func connect(fd int) (*net.UnixConn, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, configf("--fd %d: no descriptor has that number", fd)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close() // net.FileConn has its own
	c, err := net.FileConn(f)
	if err != nil {
		return nil, configf("--fd %d: %w: a program starts `shardtool serve` with one end of a socket pair there, see cmd/shardtool/internal/serve/PROTOCOL.md", fd, err)
	}
	sock, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, configf("--fd %d: not a Unix socket", fd)
	}
	return sock, nil
}

func (s socket) write(f frame, body []byte) error {
	_, err := s.Write(append(f[:], body...))
	return err
}

func (s socket) pass(f frame, fd int) error {
	if err := s.write(f, nil); err != nil {
		return err
	}
	_, _, err := s.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
	return err
}

func (s socket) read() (f frame, body []byte, err error) {
	if f, err = readFrame(s); err == nil {
		if err = f.check(); err == nil {
			body, err = readBody(s, &f)
		}
	}
	return f, body, err
}

// readFrame reads a frame without its body. io.EOF: the other end is closed, or its process gone.
func readFrame(from io.Reader) (f frame, err error) {
	_, err = io.ReadFull(from, f[:])
	return f, ended(err)
}

// readBody reads the body of a frame.
func readBody(from io.Reader, f *frame) ([]byte, error) {
	if f.body() == 0 {
		return nil, nil
	}
	body := make([]byte, f.body())
	_, err := io.ReadFull(from, body)
	return body, ended(err)
}

// ended returns io.EOF for errors of a process that was killed, in the middle of a frame too.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) {
		return io.EOF
	}
	return err
}

// send sends a frame and its body.
func (c *conn) send(f frame, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent.Add(1)
	return c.write(f, body)
}

// sendJSON sends a frame with a value as its body.
func (c *conn) sendJSON(k kind, id uint64, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return c.send(newFrame(k, 0, len(body)).set64(8, id), body)
}

// sendSegment passes a descriptor on.
func (c *conn) sendSegment(number uint32, fd int, size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent.Add(1)
	return c.pass(newFrame(kindSegment, 0, 1).set32(16, number).set64(32, uint64(size)), fd)
}

func (c *conn) sendRetire(number uint32) error {
	return c.send(newFrame(kindRetire, 0, 0).set32(16, number), nil)
}

// fail tells the parent of an error.
func (c *conn) fail(of kind, id uint64, err error) error {
	p, code := describe(err, c.code(err))
	body, _ := json.Marshal(p) // texts and integers
	if len(body) > maxBody {
		p.Message = fmt.Sprintf("%.100000s…", p.Message)
		body, _ = json.Marshal(p)
	}
	return c.send(newFrame(kindError, 0, len(body)).set64(8, id).set32(16, code).set32(20, uint32(of)), body)
}
