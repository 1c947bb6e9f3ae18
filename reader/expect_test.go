package reader

import (
	"context"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
)

// expecting records which ranges its objects were told to expect, until the read of a range begins.
type expecting struct {
	objstore.Store
	mu       sync.Mutex
	told     int
	expected map[rangeAt]bool
}

type rangeAt struct {
	name string
	off  int64
}

type expectingObject struct {
	objstore.Object
	store *expecting
	name  string
}

func (s *expecting) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return &expectingObject{o, s, name}, err
}

func (o *expectingObject) Expect(off, n int64) {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	o.store.told++
	o.store.expected[rangeAt{o.name, off}] = true
}

func (o *expectingObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.store.mu.Lock()
	delete(o.store.expected, rangeAt{o.name, off})
	o.store.mu.Unlock()
	return o.Object.ReadAt(ctx, p, off)
}

// TestExpect: a stream tells a local store of pieces before it reads them, and of no others.
func TestExpect(t *testing.T) {
	store := &expecting{Store: inDir(t), expected: map[rangeAt]bool{}}
	set := newStreamed(t, store, mixed(600), testset.Options{BlockSize: 100 << 10, ShardSize: 400 << 10, Raw: true})
	f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 7, Epochs: 1})
	f.rest(t)
	f.Close()
	if store.told == 0 || len(store.expected) > 0 {
		t.Fatalf("%d ranges were expected, and these never read: %v", store.told, store.expected)
	}
}
