package reader

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"io"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// maxOpen is how many objects are kept open. A process may have 1,024 descriptors by default; this
// leaves room for others. With fewer, the number follows what the process turns out to have.
const maxOpen = 256

// objects keeps objects open, the ones used last. A handle is shared by its users, and closed when it has none and others
// were used since, or the data set is closed.
type objects struct {
	store  objstore.Store
	remote bool // asking for an object's size costs a request
	seed   maphash.Seed

	mu     sync.Mutex
	open   map[handleKey]*handle
	order  list.List         // of handles that are open, the one used last in front
	most   int               // that are kept
	seen   map[string]uint64 // hash of the ETag that an object had when it was first opened
	closed bool
}

// handle is an object and how many use it.
type handle struct {
	objstore.Object
	info objstore.Info // once objects.known has said so

	known bool // info is there; guarded by objects.mu

	handleKey
	users int
	place *list.Element // in order; nil until open, and after it was taken out
	turn  chan struct{} // held by the one that opens
	stale bool          // forgotten: closed by its last user
}

func newObjects(store objstore.Store) *objects {
	_, remote := store.(objstore.Remote)
	return &objects{store: store, remote: remote, seed: maphash.MakeSeed(), open: map[handleKey]*handle{}, seen: map[string]uint64{}, most: maxOpen}
}

// acquire returns an open object; release it. When several goroutines want one that is not open, one opens it.
func (o *objects) acquire(ctx context.Context, name string) (*handle, error) {
	return o.acquireAs(ctx, name, "")
}

// opener is a store that keeps what was read, by what it is: see package cache.
type opener interface {
	OpenAs(ctx context.Context, name, identity string) (objstore.Object, error)
}

// forgetter is an object of such a store. Where bytes are damaged it has to be told, or it would give them again.
type forgetter interface {
	Forget(ctx context.Context, off int64, n int)
}

// handleKey is what handles are shared by.
type handleKey struct {
	name     string
	identity string // of the content, for stores that keep it
}

// acquireAs is acquire for an object whose content the caller knows.
func (o *objects) acquireAs(ctx context.Context, name, identity string) (*handle, error) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil, errClosed
	}
	key := handleKey{name, identity}
	h := o.open[key]
	if h == nil {
		h = &handle{handleKey: key, turn: make(chan struct{}, 1)}
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
	var idle []*handle
	if !o.closed {
		h.place = o.order.PushFront(h)
		idle = o.trim()
	}
	o.mu.Unlock()
	closeAll(idle)
	return nil
}

func (o *objects) openObject(ctx context.Context, h *handle) (objstore.Object, error) {
	if s, ok := o.store.(opener); ok && h.identity != "" {
		return s.OpenAs(ctx, h.name, h.identity)
	}
	return o.store.Open(ctx, h.name)
}

// learn notes what an open object is; o.mu is held.
func (o *objects) learn(h *handle, info objstore.Info) {
	h.info, h.known = info, true
	if _, known := o.seen[h.name]; !known {
		o.seen[h.name] = maphash.String(o.seed, info.ETag)
	}
}

// stat makes sure that h.info is there. A remote object's is not asked for when it is opened: what the tables say of it is enough
// to read it, and its first answer brings it along.
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
	o.mu.Unlock()
	closeAll(idle)
	return len(idle) > 0
}

// trim takes out handles beyond those that are kept, which nobody uses.
func (o *objects) trim() (idle []*handle) {
	for e := o.order.Back(); e != nil && o.order.Len() > o.most; {
		h, before := e.Value.(*handle), e.Prev()
		if h.users == 0 {
			o.order.Remove(e)
			delete(o.open, h.handleKey)
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
		delete(o.open, h.handleKey)
	case o.closed, h.stale:
		idle = append(idle, h)
	default:
		idle = o.trim()
	}
	o.mu.Unlock()
	closeAll(idle)
}

// forget makes the next acquire open the object anew: for a second read of bytes that looked
// damaged.
func (o *objects) forget(key handleKey) {
	o.mu.Lock()
	h := o.open[key]
	var idle []*handle
	if h != nil && h.Object != nil && h.place != nil {
		delete(o.open, h.handleKey)
		o.order.Remove(h.place)
		h.place, h.stale = nil, true
		if h.users == 0 {
			idle = append(idle, h)
		}
	}
	o.mu.Unlock()
	closeAll(idle)
}

// replaced says whether an object is another one than when it was first opened. It explains bytes that do not fit; bytes
// that do are right, whatever became of their object.
func (o *objects) replaced(h *handle) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !h.known {
		return false // a remote store refuses to read on in an object that was replaced
	}
	return o.seen[h.name] != maphash.String(o.seed, h.info.ETag)
}

// close closes what nobody uses; the rest follows when it is released.
func (o *objects) close() {
	o.mu.Lock()
	o.closed = true
	var idle []*handle
	for e := o.order.Front(); e != nil; e = e.Next() {
		h := e.Value.(*handle)
		h.place = nil
		if h.users == 0 {
			idle = append(idle, h)
		}
	}
	o.order.Init()
	clear(o.open)
	o.mu.Unlock()
	closeAll(idle)
}

// closeAll closes objects that were only read: what fails then has no consequence.
func closeAll(handles []*handle) {
	for _, h := range handles {
		h.Close()
	}
}

// shardObject opens an object that the tables name and compares its size, unless that would cost a
// request or size is 0.
func (d *Dataset) shardObject(ctx context.Context, name string, size uint64, identity string) (*handle, error) {
	h, err := d.objects.acquireAs(ctx, name, identity)
	if err != nil {
		return nil, d.missing(err, name)
	}
	if d.objects.remote || size == 0 {
		return h, nil
	}
	if err := d.checkSize(ctx, h, size); err != nil {
		d.objects.release(h)
		return nil, err
	}
	return h, nil
}

func (d *Dataset) checkSize(ctx context.Context, h *handle, size uint64) error {
	if err := d.objects.stat(ctx, h); err != nil {
		return d.missing(err, h.name)
	}
	have := h.info.Size
	if uint64(have) == size {
		return nil
	}
	kind := KindSize
	err := fmt.Errorf("%w: the object has %d bytes, %s says %d", format.ErrCorrupt, have, d.name, size)
	if uint64(have) < size {
		kind, err = KindTruncated, fmt.Errorf("%w: %w", err, io.ErrUnexpectedEOF)
	}
	if d.objects.replaced(h) {
		err = fmt.Errorf("%w: %w", err, objstore.ErrChanged)
	}
	return format.Position(kindError{kind, err}, h.name, -1, -1, "")
}

// identify says what the blocks of a shard are, down to the last stored byte: their lengths and checksums with the shard's hash. It
// is for stores that keep blocks by it, and empty for others. The index is not in it.
func (d *Dataset) identify(s *shard) string {
	if _, ok := d.store.(opener); !ok {
		return ""
	}
	h := sha256.New()
	buf := append([]byte("shardtool-blocks-1\n"), s.Hash[:]...)
	buf = binary.LittleEndian.AppendUint64(buf, s.Size)
	for _, r := range s.rows {
		buf = binary.LittleEndian.AppendUint32(buf, r.Stored)
		buf = binary.LittleEndian.AppendUint32(buf, r.CRC)
	}
	h.Write(buf)
	return hex.EncodeToString(h.Sum(nil))
}
