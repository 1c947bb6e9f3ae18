package cache

import (
	"context"

	"github.com/shardtool/shardtool/objstore"
)

// Opener is a Store that takes the caller's word for what an object holds. The stores that [Cache.Wrap] gives are Openers.
type Opener interface {
	// OpenAs is Open for an object whose content is known by identity, such as its SHA-256 in hex. Within one store,
	// objects of the same identity share what is cached of them, whatever their names and tags; and an object whose ranges
	// are all cached costs the source no request at all, not even to find out that it is gone. Nothing is asked of the
	// source before a range is missing or Info is called.
	//
	// The identity is not checked here: a caller that finds the bytes wrong calls Forget (see [Forgetter]) and reads
	// again. An empty identity is Open.
	OpenAs(ctx context.Context, name, identity string) (objstore.Object, error)
}

// Forgetter is an Object that can be told that a range it gave is wrong. Objects of cached stores are Forgetters.
type Forgetter interface {
	// Forget removes the range from the cache, so that the next ReadAt of it goes to the source. The range must be one
	// that was given to ReadAt: offset and length. It does nothing where it is not cached.
	Forget(ctx context.Context, off int64, n int)
}

// store reads through the cache; all but Open is the source's own.
type store struct {
	objstore.Store
	cache *Cache
	group *group
}

// remoteStore keeps what readers look for in a store whose requests take time.
type remoteStore struct {
	*store
	remote objstore.Remote
}

// Requests is the source's.
func (s *remoteStore) Requests() int { return s.remote.Requests() }

// elasticStore is the same for one that can send more of them.
type elasticStore struct {
	*remoteStore
	elastic objstore.Elastic
}

// MostRequests is the source's.
func (s *elasticStore) MostRequests() int { return s.elastic.MostRequests() }

// Allow is the source's.
func (s *elasticStore) Allow(delta int) { s.elastic.Allow(delta) }

// Open opens the object at the source: what it is called there is part of the key.
func (s *store) Open(ctx context.Context, name string) (objstore.Object, error) {
	source, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s.cache.opened(s.group)
	return &object{store: s, name: name, source: source, turn: make(chan struct{}, 1)}, nil
}

// OpenAs is Opener's.
func (s *store) OpenAs(ctx context.Context, name, identity string) (objstore.Object, error) {
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
