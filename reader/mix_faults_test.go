package reader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// TestMixReplaced: a data set that is not the one of the plan is refused by name, and so is one
// that is missing.
func TestMixReplaced(t *testing.T) {
	in := []source{one(t, "a", "x", mem.New(), 20), one(t, "b", "x", mem.New(), 20)}
	x, _ := joined(t, mixOf(1, in, 1, 1), in)
	x.Sets[1] = one(t, "b", "x", mem.New(), 21).Dataset
	var of *mix.SourceError
	if _, err := OpenMix(t.Context(), x, StreamOptions{}); !errors.Is(err, order.ErrMismatch) || !errors.As(err, &of) || of.Source != "b" {
		t.Errorf("replaced: %v", err)
	}
	x.Sets[1] = nil
	if _, err := OpenMix(t.Context(), x, StreamOptions{}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), `source "b"`) {
		t.Errorf("missing: %v", err)
	}
}

// TestMixFailures: what fails in one source is named; a store that is down for a while is waited
// for.
func TestMixFailures(t *testing.T) {
	watch(t)
	broken := errors.New("out of order")
	store := &hooked{Store: mem.New()}
	in := []source{one(t, "a", "x", mem.New(), 200), one(t, "b", "x", store, 200)}
	x, _ := joined(t, mixOf(1, in, 1, 1), in)
	store.mu.Lock()
	store.read = func(name string, _ []byte, _ int64) error {
		if strings.HasPrefix(name, "manifest") {
			return nil
		}
		return broken
	}
	store.mu.Unlock()
	s := openMix(t, x, StreamOptions{GlobalBatch: 10})
	_, err := s.Next(t.Context())
	var of *mix.SourceError
	if !errors.Is(err, broken) || !errors.As(err, &of) || of.Source != "b" {
		t.Errorf("a store that fails: %v", err)
	}
	s.Close()

	up := make(chan struct{})
	store.mu.Lock()
	store.read = func(name string, _ []byte, _ int64) error {
		if !strings.HasPrefix(name, "manifest") {
			<-up
		}
		return nil
	}
	store.mu.Unlock()
	s = openMix(t, x, StreamOptions{GlobalBatch: 10})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a store that does not answer: %v", err)
	}
	close(up)
	b, err := s.Next(t.Context())
	if err != nil || len(b.Samples) != 10 {
		t.Errorf("once it answers: %v", err)
	}
}

// TestMixSkips: the ledger names the source of a damaged block, and the checkpoint counts it.
func TestMixSkips(t *testing.T) {
	watch(t)
	store := mem.New()
	in := []source{one(t, "a", "x", mem.New(), 100), one(t, "b", "x", store, 100)}
	blocks := blocksOf(t, in[1].Dataset)
	in[1].streamed = in[1].flipped(t, store, blocks[1])
	x, _ := joined(t, mixOf(1, in, 1, 1), in)
	o := StreamOptions{GlobalBatch: 20, Epochs: 1, Faults: Faults{SkipCorrupt: true, MaxSkipped: 50}}
	s := openMix(t, x, o)
	holes := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		holes += b.Holes
	}
	skipped := s.Skipped()
	if len(skipped) != 1 || skipped[0].Source != "b" || skipped[0].Samples != blocks[1].count || holes == 0 {
		t.Fatalf("%d holes, %+v", holes, skipped)
	}
	text, err := ledger.Append(nil, skipped)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ledger.Decode(text); err != nil || !slices.Equal(again, skipped) {
		t.Errorf("%s: %+v, %v", text, again, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "b\x00%s\x00%d\n", skipped[0].Shard, skipped[0].Block))
	at, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if cp := throughText(t, at).Mix; cp.Skipped != blocks[1].count || cp.SkipHash != hex.EncodeToString(sum[:16]) || cp.Steps.GlobalBatch != 20 {
		t.Errorf("%+v", cp)
	}
	o.Faults.SkipCorrupt = false
	s = openMix(t, x, o)
	for err == nil {
		_, err = s.Next(t.Context())
	}
	var of *mix.SourceError
	if !errors.As(err, &of) || of.Source != "b" || !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a damaged block: %v", err)
	}
}
