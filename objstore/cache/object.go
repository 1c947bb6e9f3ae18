package cache

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/objstore"
)

var errAbandoned = errors.New("the read was given up")

// Wrap returns a store that reads source through the cache. It has the [objstore.Traits] of source,
// plus OpenAs. The address of source identifies the data set, and is part of the identity of
// objects opened by Open.
func (c *Cache) Wrap(source objstore.Store) objstore.Store {
	return &store{Store: source, cache: c, group: c.groupOf(source.String())}
}

// store reads through the cache; every method but Open is the source's.
type store struct {
	objstore.Store
	cache *Cache
	group *group
}

// Traits returns the source's traits, plus OpenAs.
func (s *store) Traits() objstore.Traits {
	traits := objstore.TraitsOf(s.Store)
	traits.OpenAs = s.openAs
	return traits
}

// Open opens the object at the source, whose description is part of the key.
func (s *store) Open(ctx context.Context, name string) (objstore.Object, error) {
	source, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s.cache.opened(s.group)
	return &object{store: s, name: name, source: source, turn: make(chan struct{}, 1)}, nil
}

// openAs implements objstore.Traits.OpenAs.
func (s *store) openAs(ctx context.Context, name, identity string) (objstore.Object, error) {
	if identity == "" {
		return s.Open(ctx, name)
	}
	err := objstore.CheckName(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, objstore.NewError("get", s.String(), name, err)
	}
	o := &object{store: s, name: name, turn: make(chan struct{}, 1)}
	id := identityGiven(identity)
	o.id.Store(&id)
	s.cache.opened(s.group)
	return o, nil
}

// object reads one version of one object, from its source or from the cache.
type object struct {
	store *store
	name  string
	// id identifies the content. It is nil until it is known, and then never changes; noIdentity
	// means that versions cannot be distinguished.
	id     atomic.Pointer[identity]
	closed atomic.Bool

	// turn is held by the goroutine that opens or describes the source, so that one request serves
	// all readers.
	turn chan struct{}

	mu     sync.Mutex // guards source against Close
	source objstore.Object
}

// ReadAt reads the range from the cache if it is there and undamaged, and from the source
// otherwise.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.ReadParts(ctx, p, off, len(p))
}

// ReadParts is ReadAt for a range of several parts, which lie one after the other and whose sizes
// add up to the length of p. Each is a range of its own in the cache, so that a later read finds it
// whatever it is read with. What is missing is read from the source by as few reads as there are
// gaps.
func (o *object) ReadParts(ctx context.Context, p []byte, off int64, sizes ...int) error {
	if err := o.usable(ctx); err != nil {
		return o.fail("get", err)
	}
	c := o.store.cache
	if len(p) == 0 || off < 0 || !c.usable() {
		return o.readSource(ctx, p, off)
	}
	id := o.identity(ctx)
	if id == nil {
		return o.readSource(ctx, p, off)
	}
	parts, at := make([]part, 0, len(sizes)), 0
	for _, n := range sizes {
		if n > 0 {
			parts = append(parts, part{key: key{id: *id, off: off + int64(at), n: n}, p: p[at : at+n]})
		}
		at += n
	}
	return o.readParts(ctx, parts, p, off)
}

// part is a range on its way to the caller. It has a flight while this goroutine leads that.
type part struct {
	key     key
	p       []byte
	flight  *flight
	settled bool
	temp    *temp
}

// readParts reads the parts of p for the caller and for all that join their flights meanwhile. It
// takes the parts in the order of their offsets, so that readers do not wait for one another in a
// circle.
func (o *object) readParts(ctx context.Context, parts []part, p []byte, off int64) (err error) {
	c := o.store.cache
	defer func() {
		// Without an error the source panicked, which concerns only this caller.
		own := err == nil || ctx.Err() != nil || o.closed.Load()
		for i := range parts {
			q := &parts[i]
			if q.flight != nil && !q.settled {
				q.flight.settle(nil, cmp.Or(err, errAbandoned), !own)
			}
			if q.flight != nil && q.temp != nil {
				_ = c.withdraw(q.temp) // if this fails, the file is swept once the folder is full
			}
			o.done(q)
		}
	}()
	for i := range parts {
		// Other processes wait for the first part of a gap, which is kept last.
		first := i == 0 || parts[i-1].flight == nil
		if err := o.find(ctx, &parts[i], first); err != nil {
			return err
		}
	}
	for first, end := 0, 0; first < len(parts); first = end {
		if end = first + 1; parts[first].flight == nil {
			continue
		}
		for end < len(parts) && parts[end].flight != nil && parts[end].key.off == parts[end-1].key.end() {
			end++
		}
		gap := parts[first:end]
		from, to := gap[0].key.off, gap[len(gap)-1].key.end()
		if err := o.readSource(ctx, p[from-off:to-off], from); err != nil {
			return err
		}
		for i := range gap {
			gap[i].settled = true
			gap[i].flight.settle(gap[i].p, nil, true)
		}
		o.keep(ctx, gap)
	}
	return nil
}

// keep stores the parts of a gap, which have been read, and ends their flights.
func (o *object) keep(ctx context.Context, gap []part) {
	c, g := o.store.cache, o.store.group
	objstore.Trace(ctx, objstore.PhaseCache, 1)
	defer objstore.Trace(ctx, objstore.PhaseCache, -1)
	atOnce, cancel := context.WithCancel(ctx) // it waits for no other process
	cancel()
	for i := len(gap) - 1; i >= 0; i-- {
		q := &gap[i]
		if i > 0 && gap[0].temp != nil { // else there was no room for that one, or another process is slow
			q.temp, _ = c.claim(atOnce, g, q.key)
		}
		if t := q.temp; t != nil {
			q.temp = nil
			c.publish(t, g, q.key, q.p)
		}
		o.done(q)
	}
}

// find fills a part if it is in the folder or if another goroutine reads it, or another process where
// claim is set. If not, this one leads the part's flight from now on.
func (o *object) find(ctx context.Context, q *part, claim bool) error {
	c, g := o.store.cache, o.store.group
	for q.flight == nil {
		flight, first := c.flights.join(q.key, q.p, o)
		if first {
			q.flight = flight
			break
		}
		done, err := flight.wait(ctx, q.p, o)
		switch {
		case done && err == nil:
			c.counts.shared.Add(1)
			return nil
		case done:
			return err
		case ctx.Err() != nil:
			return o.fail("get", ctx.Err())
		case o.closed.Load():
			return o.fail("get", fs.ErrClosed)
		}
		// The leader's caller gave up: try again.
	}
	objstore.Trace(ctx, objstore.PhaseCache, 1)
	found := c.load(g, q.key, q.p)
	objstore.Trace(ctx, objstore.PhaseCache, -1)
	if !found && claim {
		var stored bool
		if q.temp, stored = c.claim(ctx, g, q.key); stored {
			found = c.load(g, q.key, q.p)
		}
	}
	if found {
		q.settled = true
		q.flight.settle(q.p, nil, true)
		o.done(q)
	}
	return nil
}

// done ends the flight of a part, if this goroutine leads one.
func (o *object) done(q *part) {
	if q.flight != nil {
		o.store.cache.flights.end(q.key, q.flight)
		q.flight = nil
	}
}

// readSource reads from the source, which it opens if needed.
func (o *object) readSource(ctx context.Context, p []byte, off int64) error {
	source, err := o.opened(ctx)
	if err != nil {
		return err
	}
	o.store.cache.counts.misses.Add(1)
	o.store.cache.counts.missBytes.Add(int64(len(p)))
	return source.ReadAt(ctx, p, off)
}

// ReadFront implements [objstore.FrontReader] by a read from the source, whose answer describes the
// version: to look in the folder would take a request for the description first.
func (o *object) ReadFront(ctx context.Context, p []byte) (n int, info objstore.Info, err error) {
	if err := o.usable(ctx); err != nil {
		return 0, objstore.Info{}, o.fail("get", err)
	}
	source, err := o.opened(ctx)
	if err != nil {
		return 0, objstore.Info{}, err
	}
	if f, ok := source.(objstore.FrontReader); ok {
		n, info, err = f.ReadFront(ctx, p)
		o.store.cache.counts.misses.Add(1)
		o.store.cache.counts.missBytes.Add(int64(n))
	} else {
		info, err = source.Info(ctx)
	}
	if err == nil {
		id := identityOf(o.store.String(), o.name, info)
		o.id.CompareAndSwap(nil, &id)
	}
	return n, info, err
}

// Info returns the source's description.
func (o *object) Info(ctx context.Context) (objstore.Info, error) {
	if err := o.usable(ctx); err != nil {
		return objstore.Info{}, o.fail("stat", err)
	}
	source, err := o.opened(ctx)
	if err != nil {
		return objstore.Info{}, err
	}
	return source.Info(ctx)
}

// Forget removes a range from the cache; see objstore.Traits.OpenAs. It works on a handle that has
// read nothing yet, such as one opened for a second read.
func (o *object) Forget(ctx context.Context, off int64, n int) {
	c := o.store.cache
	if n <= 0 || off < 0 || o.closed.Load() || !c.usable() {
		return
	}
	id := o.identity(ctx)
	if id == nil {
		return
	}
	c.forget(o.store.group, key{id: *id, off: off, n: n})
}

// Close also closes the source. A second Close does nothing.
func (o *object) Close() error {
	if o.closed.Swap(true) {
		return nil
	}
	o.store.cache.closedOne(o.store.group)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.source == nil {
		return nil
	}
	return o.source.Close()
}

// opened returns the source's handle. All readers wait for one Open, each until its context ends.
func (o *object) opened(ctx context.Context) (objstore.Object, error) {
	if source := o.handle(); source != nil {
		return source, nil
	}
	if err := o.take(ctx); err != nil {
		return nil, o.fail("get", err)
	}
	defer func() { <-o.turn }()
	if source := o.handle(); source != nil {
		return source, nil
	}
	source, err := o.store.Store.Open(ctx, o.name)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed.Load() {
		source.Close()
		return nil, o.fail("get", fs.ErrClosed)
	}
	o.source = source
	return source, nil
}

func (o *object) handle() objstore.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.source
}

func (o *object) take(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// identity returns the identity of the content, or nil if it is unknown. If the source does not
// answer, the next read asks it again; this one reads from the source and reports its error.
func (o *object) identity(ctx context.Context) *identity {
	id := o.id.Load()
	if id == nil {
		id = o.ask(ctx)
	}
	if id == nil || *id == noIdentity {
		return nil
	}
	return id
}

func (o *object) ask(ctx context.Context) *identity {
	if o.take(ctx) != nil {
		return nil
	}
	defer func() { <-o.turn }()
	if id := o.id.Load(); id != nil {
		return id
	}
	source := o.handle()
	if source == nil {
		return nil
	}
	info, err := source.Info(ctx)
	if err != nil {
		return nil
	}
	id := identityOf(o.store.String(), o.name, info)
	o.id.Store(&id)
	return &id
}

func (o *object) usable(ctx context.Context) error {
	if o.closed.Load() {
		return fs.ErrClosed
	}
	return ctx.Err()
}

func (o *object) fail(op string, err error) error {
	return objstore.NewError(op, o.store.String(), o.name, err)
}
