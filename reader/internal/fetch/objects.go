package fetch

import (
	"container/list"
	"context"
	"hash/maphash"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
)

// maxOpen is how many objects are kept open: a quarter of the descriptors that the process may
// have, by default 256 of 1,024. The rest is for others, who cannot close these when they need one.
// Where the whole machine lacks descriptors, objects keeps fewer open.
var maxOpen = func() int {
	const most = 256
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return most
	}
	return int(min(limit.Cur/4+1, most))
}()

// objects keeps the objects used last open. A handle is shared by its users. It is closed when it
// has no users and others were used since, or when the source is closed.
type objects struct {
	store  objstore.Store
	openAs func(ctx context.Context, name, identity string) (objstore.Object, error) // nil without a cache
	// asking for an object's size costs a request
	remote bool
	seed   maphash.Seed

	mu     sync.Mutex
	open   map[Key]*handle
	order  list.List         // of handles that are open, the one used last in front
	most   int               // objects that are kept open
	seen   map[string]uint64 // hash of the ETag that an object had when it was first opened
	closed bool
}

// handle is an open object and its number of users.
type handle struct {
	objstore.Object
	info  objstore.Info // valid when known
	known bool          // guarded by objects.mu

	Key
	users int
	place *list.Element // in order; nil until open, and after it was taken out
	turn  chan struct{} // held by the one that opens
	stale bool          // forgotten: closed by its last user
}

func newObjects(store objstore.Store) *objects {
	traits := objstore.TraitsOf(store)
	return &objects{store: store, openAs: traits.OpenAs, remote: traits.Remote(), seed: maphash.MakeSeed(),
		open: map[Key]*handle{}, seen: map[string]uint64{}, most: maxOpen}
}

// Key names an object. Users of equal keys share a handle.
type Key struct {
	Name     string
	Identity string // of the content, for stores that keep it
}

// acquire returns an open object, which the caller must release. When several goroutines want one
// that is not open, one of them opens it.
func (o *objects) acquire(ctx context.Context, key Key) (*handle, error) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil, ErrClosed
	}
	h := o.open[key]
	if h == nil {
		h = &handle{Key: key, turn: make(chan struct{}, 1)}
		o.open[key] = h
	}
	h.users++
	ready := h.Object != nil
	if ready && h.place != nil {
		o.order.MoveToFront(h.place)
	}
	o.mu.Unlock()
	if ready {
		return h, nil
	}
	if err := o.openFirst(ctx, h); err != nil {
		o.release(h)
		return nil, err
	}
	return h, nil
}

func (o *objects) openFirst(ctx context.Context, h *handle) error {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-h.turn }()
	o.mu.Lock()
	ready := h.Object != nil
	o.mu.Unlock()
	if ready {
		return nil
	}
	object, err := o.openObject(ctx, h)
	for err != nil && objstore.Exhausted(err) && o.keepFewer() {
		object, err = o.openObject(ctx, h)
	}
	if err != nil {
		return err
	}
	var info objstore.Info
	if !o.remote {
		if info, err = object.Info(ctx); err != nil {
			object.Close()
			return err
		}
	}
	o.mu.Lock()
	h.Object = object
	if !o.remote {
		o.learn(h, info)
	}
	h.place = o.order.PushFront(h)
	o.unlock(o.trim())
	return nil
}

func (o *objects) openObject(ctx context.Context, h *handle) (objstore.Object, error) {
	if o.openAs != nil && h.Identity != "" {
		return o.openAs(ctx, h.Name, h.Identity)
	}
	return o.store.Open(ctx, h.Name)
}

// learn records the properties of an open object; o.mu is held.
func (o *objects) learn(h *handle, info objstore.Info) {
	h.info, h.known = info, true
	if _, known := o.seen[h.Name]; !known {
		o.seen[h.Name] = maphash.String(o.seed, info.ETag)
	}
}

// stat makes h.info valid. Opening a remote object does not ask for it: the tables suffice to read
// the object, and the first answer contains it.
func (o *objects) stat(ctx context.Context, h *handle) error {
	o.mu.Lock()
	known := h.known
	o.mu.Unlock()
	if known {
		return nil
	}
	info, err := h.Info(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.learn(h, info)
	o.mu.Unlock()
	return nil
}

// keepFewer closes half of the open objects, as far as nobody uses them, and keeps no more from now
// on. It returns false when there was none to close.
func (o *objects) keepFewer() bool {
	o.mu.Lock()
	o.most = min(o.most, o.order.Len()/2)
	idle := o.trim()
	o.unlock(idle)
	return len(idle) > 0
}

// keep lowers how many objects are kept open.
func (o *objects) keep(most int) {
	o.mu.Lock()
	o.most = min(o.most, most)
	o.unlock(o.trim())
}

// trim removes unused handles beyond those that are kept.
func (o *objects) trim() (idle []*handle) {
	for e := o.order.Back(); e != nil && o.order.Len() > o.most; {
		h, before := e.Value.(*handle), e.Prev()
		if h.users == 0 {
			o.order.Remove(e)
			delete(o.open, h.Key)
			h.place = nil
			idle = append(idle, h)
		}
		e = before
	}
	return idle
}

func (o *objects) release(h *handle) {
	o.mu.Lock()
	h.users--
	var idle []*handle
	switch {
	case h.users > 0:
	case h.Object == nil: // could not be opened
		delete(o.open, h.Key)
	case h.stale:
		idle = append(idle, h)
	default:
		idle = o.trim()
	}
	o.unlock(idle)
}

// forget makes the next acquire open the object again, for a second read of bytes that looked
// damaged.
func (o *objects) forget(key Key) {
	o.mu.Lock()
	h := o.open[key]
	var idle []*handle
	if h != nil && h.Object != nil && h.place != nil {
		delete(o.open, h.Key)
		o.order.Remove(h.place)
		h.place, h.stale = nil, true
		if h.users == 0 {
			idle = append(idle, h)
		}
	}
	o.unlock(idle)
}

// replaced reports whether an object differs from the one first opened under its name. That
// explains bytes that do not fit; bytes that fit are right in any case.
func (o *objects) replaced(h *handle) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !h.known {
		return false // a remote store refuses to read on in an object that was replaced
	}
	return o.seen[h.Name] != maphash.String(o.seed, h.info.ETag)
}

// close closes unused handles; the others follow when they are released.
func (o *objects) close() {
	o.mu.Lock()
	o.closed, o.most = true, 0
	o.unlock(o.trim())
}

// unlock releases the lock, and closes objects that were only read: errors have no consequence.
func (o *objects) unlock(idle []*handle) {
	o.mu.Unlock()
	for _, h := range idle {
		h.Close()
	}
}
