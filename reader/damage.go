package reader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Damaged reports whether an error of this package blames the bytes of the data set, rather than
// the store, the network, or a context that ended. A second read has confirmed the damage.
func Damaged(err error) bool { return isDamage(err) }

// isDamage tells what the bytes are guilty of from what the store is.
func isDamage(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrMismatch) || errors.Is(err, format.ErrVersion) ||
		errors.Is(err, format.ErrTooLarge) || errors.Is(err, format.ErrName) || errors.Is(err, format.ErrDuplicate)
}

// confirmed reports whether an error is proven damage of stored bytes: no failure of the store, no
// replaced object.
func confirmed(err error) bool { return isDamage(err) && !errors.Is(err, objstore.ErrChanged) }

// twice calls read, and once more where the bytes looked damaged: the object is opened again, and
// anew tells read to go past what a store has kept. Damage counts only when the second read finds
// it too. Every path that reads a data set has this rule from here: one flipped bit on the way from
// a disk, a proxy or a network card ends none of them.
func (d *Dataset) twice(ctx context.Context, key handleKey, read func(anew bool) error) error {
	first := read(false)
	if !isDamage(first) || ctx.Err() != nil {
		return first
	}
	d.objects.forget(key)
	second := read(true)
	if second == nil || isDamage(second) && second.Error() != first.Error() {
		d.flips.note(first)
	}
	return second
}

// flips counts reads that brought damaged bytes and, done again, other ones.
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

// text says it to a user; it is empty when nothing happened.
func (f *flips) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return ""
	}
	return fmt.Sprintf("%d reads brought damaged bytes, and other bytes when repeated; the first: %v. The stored bytes are not to blame: "+
		"check the network, proxies, the disk's controller and the memory of this machine", f.count, f.first)
}

// read reads from an object; anew makes a store forget what it has kept of the range.
func (h *handle) read(ctx context.Context, p []byte, off int64, anew bool) error {
	if anew {
		forget(ctx, h.Object, off, len(p))
	}
	return h.ReadAt(ctx, p, off)
}

func forget(ctx context.Context, o objstore.Object, off int64, n int) {
	if f, ok := o.(forgetter); ok {
		f.Forget(ctx, off, n)
	}
}

// readRange reads n bytes of an object that the tables name and calls use with them; what use finds
// damaged is read twice. The object must have that size, unless it is 0. Errors have the object's
// name; use says more of the place.
func (d *Dataset) readRange(ctx context.Context, name string, size uint64, off, n int64, use func([]byte) error) error {
	err := d.twice(ctx, handleKey{name: name}, func(anew bool) error {
		h, err := d.shardObject(ctx, name, size, "")
		if err != nil {
			return err
		}
		defer d.objects.release(h)
		raw := make([]byte, n)
		if err := h.read(ctx, raw, off, anew); err != nil {
			return err
		}
		return use(raw)
	})
	return format.Position(err, name, -1, -1, "")
}

// readWhole reads a small object that readers keep no handle of.
func (d *Dataset) readWhole(ctx context.Context, name string, most int64, anew bool) ([]byte, error) {
	if !anew {
		raw, _, err := objstore.ReadAll(ctx, d.store, name, most)
		return raw, err
	}
	o, err := d.store.Open(ctx, name)
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
	forget(ctx, o, 0, len(raw))
	return raw, o.ReadAt(ctx, raw, 0)
}

// missing turns "no such object" into damage: the tables name it, so it has to be there. What it
// wraps is ErrCorrupt and not fs.ErrNotExist, by which callers know that what they asked for does
// not exist.
func (d *Dataset) missing(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = kindError{KindMissing, fmt.Errorf("%w: the object is missing, and %s names it: %v", format.ErrCorrupt, d.name, err)}
	}
	return format.Position(err, name, -1, -1, "")
}
