package stream

import (
	"context"
	"fmt"
	"hash"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// window is the size of one request to a remote store. Tests change it.
var window int64 = 8 << 20

// ahead is the number of requests in flight: 32 MiB keep a link of 10 Gbit/s busy at a latency of
// 25 ms.
const ahead = 4

// ranges reads an object from front to back, and prefetches if the store is remote.
type ranges struct {
	ctx       context.Context
	cancel    context.CancelFunc
	obj       objstore.Object
	off, size int64 // of the next request
	remote    bool
	loads     []*load // in flight, in order
	rest      []byte  // unread bytes of the current range
	spare     []byte
	err       error // of the store; sticky

	sum  *objstore.Sum // of the whole object, if all of it is read and the store keeps a checksum
	hash hash.Hash
	skip int64 // bytes at the front that are read for the checksum only
}

// verify arranges for the store's checksum to be compared, if the whole object is read or all but a
// front of one window at most.
func (r *ranges) verify() error {
	if !r.remote || r.off > window {
		return nil
	}
	info, err := r.obj.Info(r.ctx)
	if err != nil || info.Size != r.size || r.size == 0 {
		return err
	}
	if r.sum, err = objstore.SumOf(r.ctx, r.obj); r.sum != nil {
		r.hash, r.skip, r.off = r.sum.New(), r.off, 0
	}
	return err
}

// end returns the error of a read at the end of the object.
func (r *ranges) end() error {
	if r.sum != nil {
		if err := r.sum.Check(r.hash); err != nil {
			return fmt.Errorf("%w: %w, found at its end; run again", format.ErrCorrupt, err)
		}
	}
	return io.EOF
}

// sequential is an object that can only be read from front to back, and whose size is not known.
type sequential interface {
	ReadSome(ctx context.Context, p []byte, off int64) (int, error)
}

// load is a request in flight.
type load struct {
	data []byte
	err  error
	done chan struct{}
}

// Read implements io.Reader.
func (r *ranges) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if once, ok := r.obj.(sequential); ok {
		n, err := once.ReadSome(r.ctx, p, r.off)
		if r.off += int64(n); err != nil && err != io.EOF {
			r.err = err
		}
		return n, err
	}
	if !r.remote {
		n := int(min(int64(len(p)), r.size-r.off))
		if n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		if r.err = r.obj.ReadAt(r.ctx, p[:n], r.off); r.err != nil {
			return 0, r.err
		}
		r.off += int64(n)
		return n, nil
	}
	for len(r.rest) == 0 {
		r.fill()
		if len(r.loads) == 0 {
			err := r.end()
			if err != io.EOF {
				r.err = err
			}
			return 0, err
		}
		l := r.loads[0]
		select {
		case <-l.done:
			r.err = l.err
		case <-r.ctx.Done():
			r.err = r.ctx.Err()
		}
		if r.err != nil {
			return 0, r.err
		}
		r.loads = append(r.loads[:0], r.loads[1:]...)
		r.spare = l.data[:cap(l.data)]
		r.rest = l.data
		if r.sum != nil {
			r.hash.Write(l.data)
			r.rest, r.skip = l.data[min(r.skip, int64(len(l.data))):], max(0, r.skip-int64(len(l.data)))
		}
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		r.fill() // its buffer can be reused
	}
	return n, nil
}

// fill starts requests until ahead of them are in flight.
func (r *ranges) fill() {
	for len(r.loads) < ahead && r.off < r.size {
		n := int(min(window, r.size-r.off))
		l := &load{data: r.spare, done: make(chan struct{})}
		r.spare = nil
		if cap(l.data) < n {
			l.data = make([]byte, n)
		}
		l.data = l.data[:n]
		off := r.off
		go func() {
			defer close(l.done)
			l.err = r.obj.ReadAt(r.ctx, l.data, off)
		}()
		r.loads = append(r.loads, l)
		r.off += int64(n)
	}
}

// close cancels the requests in flight and waits for them.
func (r *ranges) close() {
	r.cancel()
	for _, l := range r.loads {
		<-l.done
	}
	r.loads = nil
}
