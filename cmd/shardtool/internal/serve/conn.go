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

// conn is the child's end of the socket pair. Sending is safe for concurrent use; one goroutine
// receives.
type conn struct {
	sock *net.UnixConn
	code func(error) int // exit code of the command line

	mu   sync.Mutex
	sent atomic.Uint64 // frames
}

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

// send sends a frame and its body in one message.
func (c *conn) send(f frame, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent.Add(1)
	_, err := c.sock.Write(append(f[:], body...))
	return err
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
	f := newFrame(kindSegment, 0, 1).set32(16, number).set64(32, uint64(size))
	if _, err := c.sock.Write(f[:]); err != nil {
		return err
	}
	_, _, err := c.sock.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
	return err
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

// receive reads a frame and its body. io.EOF: the parent has closed its end, or is gone.
func (c *conn) receive() (f frame, body []byte, err error) {
	if _, err = io.ReadFull(c.sock, f[:]); err == nil {
		if err = f.check(); err == nil && f.body() > 0 {
			body = make([]byte, f.body())
			_, err = io.ReadFull(c.sock, body)
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) {
		err = io.EOF // it was killed in the middle of a frame
	}
	return f, body, err
}
