package cache

import (
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// phases counts how often reads entered each phase, and how many have not left it.
type phases struct {
	mu      sync.Mutex
	entered [objstore.Phases]int
	inside  [objstore.Phases]int32
}

func (p *phases) Trace(of objstore.Phase, delta int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delta > 0 {
		p.entered[of]++
	}
	p.inside[of] += delta
}

// TestTrace checks that lookups and writes of the cache are traced, with their ends.
func TestTrace(t *testing.T) {
	source := mem.New()
	if _, err := objstore.Put(t.Context(), source, "a", make([]byte, 5000), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	store := newCache(t, t.TempDir(), 1<<20).Wrap(source)
	object := open(t, store, "a", "identity")
	for i, want := range []int{2, 1, 1} { // the first read looks and keeps, later ones find
		told := &phases{}
		if err := object.ReadAt(objstore.WithTracer(t.Context(), told), make([]byte, 3000), 7); err != nil {
			t.Fatal(err)
		}
		if told.entered != [objstore.Phases]int{objstore.PhaseCache: want} || told.inside != [objstore.Phases]int32{} {
			t.Errorf("read %d: %v, still inside %v", i, told.entered, told.inside)
		}
	}
	objstore.Trace(t.Context(), objstore.PhaseCache, 1) // nobody listens
}
