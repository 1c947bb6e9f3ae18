package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Damaged reports whether err blames the bytes of the data set, rather than the store, the network,
// or a context that ended. A second read has confirmed the damage.
func Damaged(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrMismatch) ||
		errors.Is(err, format.ErrVersion) ||
		errors.Is(err, format.ErrTooLarge) || errors.Is(err, format.ErrName) || errors.Is(err, format.ErrDuplicate)
}

// Proven reports whether err is damage of stored bytes, and not an object that was replaced.
func Proven(err error) bool { return Damaged(err) && !errors.Is(err, objstore.ErrChanged) }

// Twice calls read, and calls it once more if the bytes looked damaged. For the second call the
// object is opened again, and anew tells read to bypass what a store has kept. So one flipped bit
// on the way from a disk, a proxy or a network card ends no read.
func (s *Source) Twice(ctx context.Context, key Key, read func(anew bool) error) error {
	first := read(false)
	if !Damaged(first) || ctx.Err() != nil {
		return first
	}
	s.objects.forget(key)
	second := read(true)
	if second == nil || Damaged(second) && second.Error() != first.Error() {
		s.flips.note(first)
	}
	return second
}

// Flips describes the reads that brought damaged bytes once and other bytes when repeated. It is
// empty when there were none.
func (s *Source) Flips() string {
	f := &s.flips
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return ""
	}
	return fmt.Sprintf("%d reads brought damaged bytes, and other bytes when repeated; the first: %v. The stored bytes are not to blame: "+
		"check the network, proxies, the disk's controller and the memory of this machine", f.count, f.first)
}

type flips struct {
	mu    sync.Mutex
	count int
	first error
}

func (f *flips) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; f.count == 1 {
		f.first = err
	}
}

// forgetter is an object of a store that keeps what was read, such as a cache.
type forgetter interface {
	Forget(ctx context.Context, off int64, n int)
}

// Forget makes a store that keeps what was read drop a range of an object.
func Forget(ctx context.Context, o objstore.Object, off int64, n int) {
	if f, ok := o.(forgetter); ok {
		f.Forget(ctx, off, n)
	}
}

// partsReader is an object of a store that keeps each part of a range by itself.
type partsReader interface {
	ReadParts(ctx context.Context, p []byte, off int64, sizes ...int) error
}

// read reads from an object; anew makes a store forget what it has kept of the range. of are the
// rows that the range consists of, if there are any: a store that keeps what was read keeps them one
// by one, so that they are found in every order.
func (h *handle) read(ctx context.Context, p []byte, off int64, anew bool, of ...format.Row) error {
	parts, ok := h.Object.(partsReader)
	if !ok || len(of) < 2 {
		if anew {
			Forget(ctx, h.Object, off, len(p))
		}
		return h.ReadAt(ctx, p, off)
	}
	sizes, at := make([]int, len(of)), off
	for i, row := range of {
		sizes[i] = int(row.Stored)
		if anew {
			Forget(ctx, h.Object, at, sizes[i])
		}
		at += int64(sizes[i])
	}
	return parts.ReadParts(ctx, p, off, sizes...)
}

// ReadRange reads n bytes of an object that the tables name and calls use with them. If use finds
// them damaged, they are read a second time. The object must have the given size, unless that is 0.
// Errors name the object.
func (s *Source) ReadRange(ctx context.Context, name string, size uint64, off, n int64, use func([]byte) error) error {
	err := s.Twice(ctx, Key{Name: name}, func(anew bool) error {
		h, err := s.objects.acquire(ctx, Key{Name: name})
		if err != nil {
			return s.missing(err, name)
		}
		defer s.objects.release(h)
		if size > 0 && !s.Remote() {
			if _, err := s.checkSize(ctx, h, size); err != nil {
				return err
			}
		}
		raw := make([]byte, n)
		if err := h.read(ctx, raw, off, anew); err != nil {
			return err
		}
		return use(raw)
	})
	return format.InShard(name, err)
}

// ReadWhole reads a small object that readers keep no handle of. anew has the meaning that it has
// in Twice.
func (s *Source) ReadWhole(ctx context.Context, name string, most int64, anew bool) ([]byte, error) {
	if !anew {
		raw, _, err := objstore.ReadAll(ctx, s.Store, name, most)
		return raw, err
	}
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err == nil && info.Size > most {
		err = fmt.Errorf("%s: %w", name, objstore.ErrTooLarge)
	}
	if err != nil {
		return nil, err
	}
	raw := make([]byte, info.Size)
	Forget(ctx, o, 0, len(raw))
	return raw, o.ReadAt(ctx, raw, 0)
}

// missing turns "no such object" into damage: the tables name it, so it must be there. The result
// wraps ErrCorrupt and not fs.ErrNotExist, which callers take for "what you asked for does not
// exist".
func (s *Source) missing(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = &KindError{KindMissing, fmt.Errorf("%w: the object is missing, and %s names it: %v", format.ErrCorrupt,
			s.Tables, err)}
	}
	return format.InShard(name, err)
}
