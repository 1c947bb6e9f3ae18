package epochplan

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

func newOrder(t *testing.T, o Options) *Order {
	t.Helper()
	table := order.Table{Samples: []uint32{4, 4}, ShardFirst: []int{0}, Decoded: 1 << 20}
	params, p, err := units.Choose(table, order.Choice{}, units.Params{Kind: units.Pack, Size: 10, Long: units.LongSplit})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := order.New(table, "d", params)
	if err != nil {
		t.Fatal(err)
	}
	u, err := New(t.Context(), plan, []uint32{7, 3, 12, 5, 4, 6, 1, 9}, p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// TestPlanAhead: asking for an epoch plans the next one too, but none that no stream begins; an
// epoch is planned once, and a second start finds its plan in the folder.
func TestPlanAhead(t *testing.T) {
	dir := t.TempDir()
	var planned atomic.Uint64
	o := Options{Folder: dir, Until: 2, Progress: func(epoch, done, of uint64) {
		if done == of {
			planned.Add(1 << (8 * epoch))
		}
	}}
	for range 2 {
		u := newOrder(t, o)
		for _, epoch := range []uint64{0, 1, 0} {
			p, err := u.Plan(t.Context(), epoch)
			if err != nil || p == nil {
				t.Fatalf("epoch %d: %v", epoch, err)
			}
		}
		u.Close()
		if n := planned.Load(); n != 0x0101 {
			t.Errorf("epochs were planned %#x times, want each of 0 and 1 once", n)
		}
	}
	if kept, err := os.ReadDir(dir); err != nil || len(kept) == 0 {
		t.Errorf("%d plans are kept, %v", len(kept), err)
	}
}

// TestStop: after Stop a plan that is not at hand is an error, and a caller that gives up does not
// wait.
func TestStop(t *testing.T) {
	u := newOrder(t, Options{})
	u.Stop()
	if _, err := u.Plan(context.Background(), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("after Stop: %v", err)
	}
}
