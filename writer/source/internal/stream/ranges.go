package stream

import (
	"context"
	"fmt"
	"hash"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// window is what one request to a remote store asks for; a variable for tests.
var window int64 = 8 << 20

// ahead is how many are under way: 32 MiB in flight keep a link of 10 Gbit/s busy at 25 ms.
const ahead = 4

// ranges reads an object from front to back. From a store that takes its time some ranges are read ahead.
type ranges struct {
	ctx       context.Context
	cancel    context.CancelFunc
	obj       objstore.Object
	off, size int64 // of what is asked for next
	remote    bool
	loads     []*load // under way, in order
	rest      []byte  // of the range that is being handed out
	spare     []byte
	err       error // the store's, which sticks

	sum  *objstore.Sum // of the whole object, where that is read and the store keeps one
	hash hash.Hash
	skip int64 // bytes at the front that nobody asked for, but the sum
}

// verify has the store's checksum compared with what is read, if that is the whole object but for a
// front of one range at most.
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

// end is the error of a read at the end.
func (r *ranges) end() error {
	if r.sum != nil {
		if err := r.sum.Check(r.hash); err != nil {
			return fmt.Errorf("%w: %w, which shows at its end; run again", format.ErrCorrupt, err)
		}
	}
	return io.EOF
}

// load is a range that is being read.
type load struct {
	data []byte
	err  error
	done chan struct{}
}

// Read is io.Reader's.
func (r *ranges) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
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
		r.fill() // its buffer is free
	}
	return n, nil
}

// fill begins reading ranges.
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

// close ends what is under way.
func (r *ranges) close() {
	r.cancel()
	for _, l := range r.loads {
		<-l.done
	}
	r.loads = nil
}
