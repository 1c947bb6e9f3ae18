package parquet

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"

	"github.com/shardtool/shardtool/objstore"
)

const (
	// maxRange is the maximum size of a request.
	maxRange = 8 << 20
	// aheadMemory is the maximum size of all ranges of a row group in memory.
	aheadMemory = 64 << 20
	// minRange is the minimum size of a request.
	minRange = 256 << 10
	// gap is the maximum distance between two column chunks that one request reads together.
	gap = 64 << 10
)

// chunk is the position of a column chunk.
type chunk struct{ start, length int64 }

// ahead prefetches the column chunks of one row group from a remote store. Neighbouring small
// chunks are read in one request. A large chunk is read in consecutive requests, one of which is in
// flight while the previous one is used.
type ahead struct {
	obj    objstore.Object
	r      *readerAt
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup
	ranges map[chunk]io.ReaderAt
}

// load is a request in flight.
type load struct {
	off  int64
	data []byte
	err  error
	done chan struct{}
}

func (a *ahead) load(off, length int64, buf []byte) *load {
	l := &load{off: off, data: resize(buf, int(length)), done: make(chan struct{})}
	a.group.Go(func() {
		defer close(l.done)
		l.err = a.obj.ReadAt(a.ctx, l.data, off)
	})
	return l
}

// wait waits for the request.
func (l *load) wait(r *readerAt) error {
	select {
	case <-l.done:
	case <-r.ctx.Done():
		r.err = r.ctx.Err()
		return r.err
	}
	if l.err != nil {
		r.err = l.err
	}
	return l.err
}

// newAhead starts to read chunks.
func newAhead(r *readerAt, chunks []chunk) *ahead {
	a := &ahead{obj: r.obj, r: r, ranges: map[chunk]io.ReaderAt{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	sorted := slices.SortedFunc(slices.Values(chunks), func(x, y chunk) int { return cmp.Compare(x.start, y.start) })
	window := min(maxRange, max(minRange, aheadMemory/int64(4*max(1, len(chunks)))))
	room := int64(aheadMemory / 2) // for requests for several chunks
	for i := 0; i < len(sorted); {
		end, k := sorted[i].start, i
		for ; k < len(sorted); k++ {
			next := max(end, sorted[k].start+sorted[k].length)
			if k > i && sorted[k].start > end+gap || next-sorted[i].start > min(maxRange, room) {
				break
			}
			end = next
		}
		if k == i {
			a.ranges[sorted[i]] = a.windows(sorted[i], window)
			i++
			continue
		}
		room -= end - sorted[i].start
		joined := a.load(sorted[i].start, end-sorted[i].start, nil)
		for ; i < k; i++ {
			a.ranges[sorted[i]] = &windows{load: joined, r: a.r}
		}
	}
	return a
}

// close cancels the requests in flight and waits for them.
func (a *ahead) close() {
	a.cancel()
	a.group.Wait()
}

// windows reads one chunk in ranges, one of which is in memory and one in flight; or in one range,
// and then there is no next one.
type windows struct {
	of         *ahead
	end, size  int64
	load, next *load
	r          *readerAt
}

func (a *ahead) windows(c chunk, size int64) *windows {
	w := &windows{of: a, r: a.r, end: c.start + c.length, size: size}
	w.load = a.load(c.start, min(size, c.length), nil)
	w.more(nil)
	return w
}

// more requests the range after the current one.
func (w *windows) more(buf []byte) {
	w.next = nil
	if off := w.load.off + int64(len(w.load.data)); w.of != nil && off < w.end {
		w.next = w.of.load(off, min(w.size, w.end-off), buf)
	}
}

// ReadAt implements io.ReaderAt for ascending offsets.
func (w *windows) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		if err := w.load.wait(w.r); err != nil {
			return n, err
		}
		at := off + int64(n) - w.load.off
		if at < int64(len(w.load.data)) {
			n += copy(p[n:], w.load.data[at:])
			continue
		}
		if w.next == nil {
			return n, io.EOF
		}
		free := w.load.data
		w.load = w.next
		w.more(free)
	}
	return n, nil
}
