package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// host serves several processes: the one that started it, and others of the same user that connect.
// Each has its own conversation, with its own ring and run. What they share is the data sets: those
// that ask for the same one have it open once, so that streams over it may share its blocks.
type host struct {
	opts  Options // of each conversation
	data  func(ctx context.Context, q *OpenRequest) (*Opened, error)
	talks sync.WaitGroup

	mu     sync.Mutex
	open   int // conversations
	over   bool
	cpus   affinity
	opened map[string]*together
}

// together is a data set that several conversations have open.
type together struct {
	mu   sync.Mutex // held while it is opened
	data *Opened
	// users is guarded by host.mu.
	users int
}

// ServeHost talks, as Serve does, to the process at the other end of the socket with descriptor fd,
// and to all processes of the same user that connect to the listening socket with descriptor
// listen. It returns when the last of them has stopped or is gone. A process that ends does not end
// the others. It takes both descriptors over.
func ServeHost(ctx context.Context, fd, listen int, o Options) error {
	any, err := listener(listen)
	if err != nil {
		return err
	}
	defer any.Close()
	l, ok := any.(*net.UnixListener)
	if !ok {
		return configf("--listen %d: not a Unix socket", listen)
	}
	first, err := connect(fd)
	if err != nil {
		return err
	}
	h := &host{opts: o, data: o.Open, opened: map[string]*together{}}
	h.opts.GiveUp, h.opts.Open = nil, h.openShared
	if err := h.begin(ctx, first, l); err != nil {
		return err
	}
	for {
		sock, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) { // by the last conversation
			break
		}
		if err != nil { // such as too many open files: who connects waits meanwhile
			time.Sleep(beat)
			continue
		}
		_ = h.begin(ctx, sock, l) // who is refused reads alone, or finds another server
	}
	if o.GiveUp != nil {
		defer time.AfterFunc(grace, o.GiveUp).Stop()
	}
	h.talks.Wait()
	return nil
}

// listener takes over an inherited descriptor that listens. The program that made it removes its
// name.
func listener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close() // net.FileListener has its own
	l, err := net.FileListener(f)
	if err != nil {
		return nil, configf("--listen %d: %w", fd, err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return l, nil
}

// begin begins a conversation, or closes the socket. The last one that ends closes the listener.
func (h *host) begin(ctx context.Context, sock *net.UnixConn, l *net.UnixListener) error {
	other, err := processOf(sock)
	if err != nil {
		sock.Close()
		return err
	}
	h.mu.Lock()
	over := h.over
	if !over {
		h.open++
		h.cpus.join(other)
	}
	h.mu.Unlock()
	if over {
		other.close()
		sock.Close()
		return net.ErrClosed
	}
	h.talks.Go(func() {
		defer other.close()
		err := converse(ctx, socket{sock}, h.opts, other.alive)
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(os.Stderr, "process %d: %v\n", other.pid, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.open--; h.open == 0 {
			h.over = true
			l.Close()
		}
	})
	return nil
}

// openShared opens a data set, or joins those that have it open.
func (h *host) openShared(ctx context.Context, q *OpenRequest) (*Opened, error) {
	same := *q
	same.Environment = nil // of one process
	key, err := json.Marshal(same)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	of := h.opened[string(key)]
	if of == nil {
		of = new(together)
		h.opened[string(key)] = of
	}
	of.users++
	h.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.data == nil {
		if of.data, err = h.data(ctx, q); err != nil {
			h.leave(string(key), of)
			return nil, err
		}
	}
	data := *of.data
	data.Close = func() { h.leave(string(key), of) }
	return &data, nil
}

// leave ends a conversation's use of a data set. The last one closes it.
func (h *host) leave(key string, of *together) {
	h.mu.Lock()
	of.users--
	last := of.users == 0
	if last {
		delete(h.opened, key)
	}
	h.mu.Unlock()
	if last && of.data != nil {
		of.data.Close()
	}
}
