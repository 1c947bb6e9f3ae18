package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a parent, written from PROTOCOL.md. Waiting more than a minute for a frame
// fails the test.
type client struct {
	t        *testing.T
	sock     net.Conn
	far      bool // the bytes of a batch follow its frame
	bytes    []byte
	done     chan error // what Serve returned
	segments map[uint32][]byte
	beats    []beatSeen
	retired  int
}

// beatSeen is a HEARTBEAT.
type beatSeen struct {
	frame
	body []byte
}

// dial starts a server over a store.
func dial(t *testing.T, store objstore.Store) *client {
	t.Helper()
	return talk(t, over(store))
}

// over returns the options of a server over a store, which is the data set "mem".
func over(store objstore.Store) Options {
	return Options{
		Version: "test",
		Open: func(ctx context.Context, q *OpenRequest) (*Opened, error) {
			if q.Address != "mem" {
				return nil, fmt.Errorf("no data set %s: %w", q.Address, fs.ErrNotExist)
			}
			ds, err := reader.Open(ctx, store, reader.Options{Workers: 2})
			if err != nil {
				return nil, err
			}
			sources, err := reader.OpenSources(ctx, reader.Spec{Sources: []reader.SourceSpec{{Set: ds}}}, nil, nil)
			return &Opened{Sources: sources, Close: func() { ds.Close() }}, err
		},
		Stream: func(ctx context.Context, o *Opened, q *StartRequest, _ *Started) (*reader.Stream, error) {
			so := reader.StreamOptions{Epochs: 1, GlobalBatch: *q.Order.BatchSize, World: 1, Tail: order.TailShort}
			if q.Order.Shuffle != nil {
				so.Shuffle = *q.Order.Shuffle
			}
			if q.Order.Epochs != nil {
				so.Epochs = *q.Order.Epochs
			}
			if q.Order.Tail != nil {
				so.Tail = order.Tail(*q.Order.Tail)
			}
			if q.Faults.OnError == "skip" {
				so.Faults.SkipCorrupt, so.Faults.MaxSkippedShare = true, 1
			}
			q.ChooseRows(&so)
			return o.alone().Stream(ctx, so)
		},
		Code: func(err error) int {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return codeNotFound
			case errors.Is(err, format.ErrCorrupt):
				return codeCorrupt
			}
			return codeFailed
		},
	}
}

// talk starts a server.
func talk(t *testing.T, opts Options) *client {
	t.Helper()
	c, fd := pair(t)
	go func() { c.done <- Serve(t.Context(), fd, opts) }()
	f, body := c.next()
	if f.kind() != kindHello || f.u64(8) != binary.LittleEndian.Uint64([]byte("SHRDSRV1")) || f.u32(16) != Protocol || string(body) != "test" {
		t.Fatalf("HELLO is % x %q", f, body)
	}
	return c
}

// pair is a client without a server, and the server's end of its socket.
func pair(t *testing.T) (*client, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	sock, err := connect(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, sock: sock, done: make(chan error, 1), segments: map[uint32][]byte{}}
	if err := sock.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sock.Close()
		for _, s := range c.segments {
			_ = unix.Munmap(s)
		}
	})
	return c, fds[1]
}

// end closes the socket and wants the server to end without an error.
func (c *client) end() {
	c.t.Helper()
	c.sock.Close()
	c.ended("")
}

// ended waits for the server.
func (c *client) ended(want string) {
	c.t.Helper()
	select {
	case err := <-c.done:
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			c.t.Fatalf("the server ended with %v, want %q", err, want)
		}
	case <-time.After(10 * time.Minute):
		c.t.Fatal("the server does not end")
	}
}

// next is the next frame that is no heartbeat, retirement or segment.
func (c *client) next() (frame, []byte) {
	c.t.Helper()
	for {
		var f frame
		if _, err := io.ReadFull(c.sock, f[:]); err != nil {
			c.t.Fatalf("waiting for a frame: %v", err)
		}
		switch f.kind() {
		case kindSegment:
			c.attach(&f)
			continue
		case kindRetire:
			c.retired++
			if err := unix.Munmap(c.segments[f.u32(16)]); err != nil {
				c.t.Fatal(err)
			}
			delete(c.segments, f.u32(16))
			continue
		}
		body := make([]byte, f.body())
		if _, err := io.ReadFull(c.sock, body); err != nil {
			c.t.Fatal(err)
		}
		if f.kind() == kindHeartbeat {
			c.beats = append(c.beats, beatSeen{f, body})
			continue
		}
		if c.far && f.kind() == kindBatch {
			c.bytes = make([]byte, f.u64(32))
			if _, err := io.ReadFull(c.sock, c.bytes); err != nil {
				c.t.Fatal(err)
			}
		}
		return f, body
	}
}

// attach maps the segment that a frame announces. A file in memory must keep its size.
func (c *client) attach(f *frame) {
	c.t.Helper()
	one, oob := make([]byte, 1), make([]byte, 64)
	_, n, _, _, err := c.sock.(*net.UnixConn).ReadMsgUnix(one, oob)
	if err != nil {
		c.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		c.t.Fatalf("%d messages: %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		c.t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if runtime.GOOS == "linux" && os.Getenv("SHARDTOOL_PORTABLE") != "1" {
		if err := unix.Ftruncate(fds[0], 0); !errors.Is(err, unix.EPERM) {
			c.t.Fatalf("a segment can be cut: %v", err)
		}
	}
	data, err := unix.Mmap(fds[0], 0, int(f.u64(32)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		c.t.Fatal(err)
	}
	c.segments[f.u32(16)] = data
}

func (c *client) send(f frame, body []byte) {
	c.t.Helper()
	if _, err := c.sock.Write(append(f[:], body...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) open() { c.openAt("mem") }

func (c *client) openAt(address string) {
	c.t.Helper()
	body := fmt.Appendf(nil, `{"address":%q}`, address)
	c.send(newFrame(kindOpen, 0, len(body)).set32(16, Protocol), body)
}

// info opens the data set.
func (c *client) info() (in Info) {
	c.t.Helper()
	c.open()
	f, body := c.want(kindInfo)
	if err := json.Unmarshal(body, &in); err != nil {
		c.t.Fatalf("%v: %v", f, err)
	}
	return in
}

func (c *client) want(k kind) (frame, []byte) {
	c.t.Helper()
	f, body := c.next()
	if f.kind() != k {
		c.t.Fatalf("a frame of kind %d, want %d: %s", f.kind(), k, body)
	}
	return f, body
}

// wantError wants an ERROR of that kind for a request.
func (c *client) wantError(of kind, id uint64, kind string, code uint32) problem {
	c.t.Helper()
	f, body := c.want(kindError)
	var p problem
	if err := json.Unmarshal(body, &p); err != nil {
		c.t.Fatal(err)
	}
	if p.Kind != kind || f.u32(16) != code || f.u32(20) != uint32(of) || f.u64(8) != id {
		c.t.Fatalf("error %s, code %d, of %d, number %d: want %s, %d, %d, %d: %s", p.Kind, f.u32(16), f.u32(20), f.u64(8), kind, code, of, id, body)
	}
	return p
}

func (c *client) start(run uint64, request string) (s Started) {
	c.t.Helper()
	c.send(newFrame(kindStart, 0, len(request)).set64(8, run), []byte(request))
	f, body := c.want(kindStarted)
	if err := json.Unmarshal(body, &s); err != nil || f.u64(8) != run {
		c.t.Fatalf("STARTED %d: %v: %s", f.u64(8), err, body)
	}
	return s
}

func (c *client) ask(run, number uint64) {
	c.t.Helper()
	c.send(newFrame(kindNext, 0, 0).set64(8, run).set64(16, number), nil)
}

func (c *client) release(f *frame) {
	c.t.Helper()
	c.send(newFrame(kindRelease, 0, 0).set32(16, f.u32(16)).set64(24, f.u64(24)), nil)
}

// got is a batch, read out of its region.
type got struct {
	frame
	region  []byte
	numbers []uint64
	keys    []string // "" for none
	columns []gotColumn
	header  []byte
}

type gotColumn struct {
	kind, flags uint16
	typ         string
	stride      uint64
	data        []byte
	payloads    [][]byte // nil: absent
}

// batch wants BATCH and reads all tables of it.
func (c *client) batch() got {
	c.t.Helper()
	f, _ := c.want(kindBatch)
	return c.parse(f)
}

func (c *client) parse(f frame) got {
	c.t.Helper()
	le := binary.LittleEndian
	r := c.bytes
	if !c.far {
		r = c.segments[f.u32(16)][f.u64(24):][:f.u64(32)]
	}
	g := got{frame: f, region: r, header: r[:headerSize]}
	n := int(le.Uint32(r[40:]))
	if n != int(f.u32(20)) {
		c.t.Fatalf("%d samples in the frame, %d in the region", f.u32(20), n)
	}
	pairs := func(at uint64) (out [][]byte) {
		for i := range n {
			off, size := int64(le.Uint64(r[int(at)+16*i:])), int64(le.Uint64(r[int(at)+16*i+8:]))
			if size < 0 {
				out = append(out, nil)
				continue
			}
			out = append(out, append([]byte{}, r[off:off+size]...))
		}
		return out
	}
	for i := range n {
		g.numbers = append(g.numbers, le.Uint64(r[int(le.Uint64(r[80:]))+8*i:]))
	}
	for _, k := range pairs(le.Uint64(r[88:])) {
		g.keys = append(g.keys, string(k))
	}
	for i := range int(le.Uint32(r[48:])) {
		row := r[int(le.Uint64(r[96:]))+64*i:]
		at := le.Uint64(row[16:])
		if at%64 != 0 {
			c.t.Fatalf("column %d begins at %d", i, at)
		}
		g.columns = append(g.columns, gotColumn{
			kind: le.Uint16(row[0:]), flags: le.Uint16(row[2:]), typ: string(r[le.Uint64(row[8:]):][:le.Uint32(row[4:])]), stride: le.Uint64(row[40:]),
			data: bytes.Clone(r[at : at+le.Uint64(row[24:])]), payloads: pairs(le.Uint64(row[32:])),
		})
	}
	return g
}

// pack writes samples of some fields into a store in memory.
func pack(t *testing.T, n int, fields func(i int) []writer.Field) *mem.Store {
	t.Helper()
	store := mem.New()
	w, err := writer.New(t.Context(), store, writer.Options{Name: "x", BlockSize: 8 << 10, ShardSize: 128 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range n {
		if err := w.Write(t.Context(), writer.Sample{Key: fmt.Sprintf("s/%04d", i), Fields: fields(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// hello reads HELLO.
func (c *client) hello() {
	c.t.Helper()
	if f, body := c.next(); f.kind() != kindHello || string(body) != "test" {
		c.t.Fatalf("HELLO is % x %q", f, body)
	}
}
