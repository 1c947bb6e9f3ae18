package catalog

import (
	"container/list"
	"context"
	"sync"
)

// cache keeps values that were loaded, up to a limit in bytes, and drops the least recently used. A
// value that several goroutines want at once is loaded once. Values are shared and never written
// again, so a dropped value stays valid for its users.
type cache[K comparable, V any] struct {
	limit int64

	mu     sync.Mutex
	used   int64
	loaded map[K]*cached[K, V]
	order  list.List // the one used last in front
}

type cached[K comparable, V any] struct {
	key   K
	value V
	cost  int64
	place *list.Element // in order; nil until loaded
	users int           // goroutines in get that wait for it
	turn  chan struct{} // held by the one that loads
}

// get returns the value of a key. If it is not there, get calls load under this caller's context. A
// failure is not kept: other goroutines that wait for the key try again.
func (c *cache[K, V]) get(ctx context.Context, key K, load func(context.Context) (V, int64, error)) (V, error) {
	c.mu.Lock()
	e := c.loaded[key]
	if e == nil {
		e = &cached[K, V]{key: key, turn: make(chan struct{}, 1)}
		if c.loaded == nil {
			c.loaded = map[K]*cached[K, V]{}
		}
		c.loaded[key] = e
	}
	if e.place != nil {
		c.order.MoveToFront(e.place)
		v := e.value
		c.mu.Unlock()
		return v, nil
	}
	e.users++
	c.mu.Unlock()
	defer c.leave(e)

	var zero V
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
	defer func() { <-e.turn }()
	c.mu.Lock()
	v, loaded := e.value, e.place != nil
	c.mu.Unlock()
	if loaded {
		return v, nil
	}
	v, cost, err := load(ctx)
	if err != nil {
		return zero, err
	}
	c.add(e, v, cost)
	return v, nil
}

// peek returns a value that is there already.
func (c *cache[K, V]) peek(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.loaded[key]
	if e == nil || e.place == nil {
		return v, false
	}
	c.order.MoveToFront(e.place)
	return e.value, true
}

func (c *cache[K, V]) add(e *cached[K, V], v V, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.value, e.cost = v, cost
	e.place = c.order.PushFront(e)
	c.used += cost
	for c.used > c.limit && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(*cached[K, V])
		c.used -= last.cost
		delete(c.loaded, last.key)
	}
}

// leave forgets a key that nobody could load.
func (c *cache[K, V]) leave(e *cached[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.users--; e.users == 0 && e.place == nil {
		delete(c.loaded, e.key)
	}
}
