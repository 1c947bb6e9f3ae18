package cache

import (
	"context"

	"github.com/shardtool/shardtool/objstore"
)

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
