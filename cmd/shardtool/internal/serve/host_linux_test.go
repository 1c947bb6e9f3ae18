package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// shareHost starts a server for several clients. opened counts the data sets that are open.
func shareHost(t *testing.T, store *mem.Store) (first *client, name string, opened *atomic.Int64) {
	t.Helper()
	name = fmt.Sprintf("@shardtool-test-%d-%s", os.Getpid(), t.Name())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	opened = new(atomic.Int64)
	c, talk := pair(t)
	go func() {
		c.done <- ServeHost(t.Context(), talk, fd, Options{
			Version: "test",
			Open: func(ctx context.Context, q *OpenRequest) (*Opened, error) {
				if q.Address != "mem" {
					return nil, os.ErrNotExist
				}
				ds, err := reader.Open(ctx, store, reader.Options{Workers: 2})
				if err != nil {
					return nil, err
				}
				opened.Add(1)
				sources, err := reader.OpenSources(ctx, reader.Spec{Sources: []reader.SourceSpec{{Set: ds}}}, nil, nil)
				return &Opened{Sources: sources, Close: func() {
					opened.Add(-1)
					ds.Close()
				}}, err
			},
			Stream: func(ctx context.Context, o *Opened, q *StartRequest, _ *Started) (*reader.Stream, error) {
				return o.alone().Stream(ctx, reader.StreamOptions{
					Shuffle: true, Epochs: 1, GlobalBatch: *q.Order.BatchSize * *q.Order.WorldSize, World: *q.Order.WorldSize,
					Rank: *q.Order.Rank, Tail: order.TailShort, Tuning: reader.Tuning{Share: true}, Order: reader.OrderOptions{Host: true},
				})
			},
			Code: func(error) int { return codeFailed },
		})
	}()
	c.hello()
	return c, name, opened
}

// another is one more client of a server.
func another(t *testing.T, name string) *client {
	t.Helper()
	sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	if err := sock.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, sock: sock, done: make(chan error, 1), segments: map[uint32][]byte{}}
	c.hello()
	return c
}

// TestHost serves four clients that open one data set: it is open once, each gets its own part, and
// each block is read once. The clients leave in turn, the first before the others, and the server
// ends with the last.
func TestHost(t *testing.T) {
	const world = 4
	c, name, opened := shareHost(t, text(t, 1000))
	clients := []*client{c}
	for range world - 1 {
		clients = append(clients, another(t, name))
	}
	seen := map[uint64]bool{}
	for rank, c := range clients {
		asked := fmt.Appendf(nil, `{"address":"mem","environment":{"RANK":"%d","WORLD_SIZE":"%d"}}`, rank, world)
		c.send(newFrame(kindOpen, 0, len(asked)).set32(16, Protocol), asked)
		_, body := c.want(kindInfo)
		var in Info
		if err := json.Unmarshal(body, &in); err != nil || in.Ranks.Rank != rank || in.Ranks.WorldSize != world {
			t.Errorf("client %d is %+v: %v", rank, in.Ranks, err)
		}
		c.start(1, fmt.Sprintf(`{"batch_size":25,"rank":%d,"world_size":%d,"columns":[{"name":"txt","decode":"bytes"}]}`, rank, world))
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d data sets are open", n)
	}
	for rank, c := range clients {
		for number := range uint64(10) {
			c.ask(1, number)
			g := c.batch()
			for _, n := range g.numbers {
				if seen[n] {
					t.Fatalf("rank %d: sample %d came twice", rank, n)
				}
				seen[n] = true
			}
			c.release(&g.frame)
		}
		if rank < world-1 {
			c.sock.Close()
		}
	}
	if len(seen) != 1000 {
		t.Errorf("%d samples", len(seen))
	}
	select {
	case err := <-c.done:
		t.Fatalf("the server has ended: %v", err)
	default:
	}
	clients[world-1].send(newFrame(kindStop, 0, 0), nil)
	if err := <-c.done; err != nil || opened.Load() != 0 {
		t.Errorf("the server ends with %v, %d data sets are open", err, opened.Load())
	}
	if _, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"}); err == nil {
		t.Error("somebody listens")
	}
}

// TestHostRefuses closes connections of other users, and those whose frames are wrong; the others go
// on.
func TestHostRefuses(t *testing.T) {
	c, name, _ := shareHost(t, text(t, 100))
	bad := another(t, name)
	if _, err := bad.sock.Write(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if f, _ := bad.next(); f.kind() != kindError || f.u32(20) != 0 {
		t.Errorf("the answer to a frame of no kind is % x", f)
	}
	silent := another(t, name)
	defer silent.sock.Close()
	if os.Getuid() == 0 { // only root can become another user
		stranger := asUser(t, 65534, name)
		if n, err := stranger.Read(make([]byte, 64)); err != io.EOF {
			t.Errorf("another user got %d bytes, %v", n, err)
		}
		stranger.Close()
	}
	c.info()
}

// asUser connects as another user: one thread becomes that user, and ends.
func asUser(t *testing.T, uid uintptr, name string) net.Conn {
	t.Helper()
	out := make(chan net.Conn)
	go func() {
		runtime.LockOSThread() // and never unlocks it
		defer close(out)
		if _, _, err := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); err != 0 {
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil || unix.Connect(fd, &unix.SockaddrUnix{Name: name}) != nil {
			return
		}
		f := os.NewFile(uintptr(fd), "stranger")
		defer f.Close()
		if conn, err := net.FileConn(f); err == nil {
			out <- conn
		}
	}()
	conn := <-out
	if conn == nil {
		t.Fatal("another user cannot connect")
	}
	return conn
}
