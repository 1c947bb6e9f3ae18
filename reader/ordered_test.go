package reader

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// lines is a log that several goroutines write to.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestStreamLogsOrder: the log begins with the order, how it mixes this rank's share, and what
// should be changed. Advice is in the library's terms.
func TestStreamLogsOrder(t *testing.T) {
	set := newStreamed(t, mem.New(), mixed(1000), testset.Options{BlockSize: 8 << 10, ShardSize: 100 << 10})
	for name, c := range map[string]struct {
		o      StreamOptions
		says   []string
		silent []string
	}{
		"enough": {
			StreamOptions{Shuffle: true, GlobalBatch: 64, World: 2, Rank: 1},
			[]string{`msg="stream: order" rank=1 ranks=2 lanes=1 run_blocks=1`, "local_vif=", "100 of 100", "same_block=", "samples_measured=500"}, []string{"WARN"},
		},
		"small window": {
			StreamOptions{Shuffle: true, GlobalBatch: 64, Order: OrderOptions{Lanes: 4, Delay: 3}},
			[]string{"level=WARN", "samples are mixed little", "a ShuffleMemory of 4MiB, or pack in a random order", "vif=", `msg="stream: order"`}, []string{"--", "more ranks"},
		},
		"another rank": {
			StreamOptions{Shuffle: true, GlobalBatch: 64, World: 2, Rank: 1, Order: OrderOptions{Lanes: 4, Delay: 3}},
			[]string{`msg="stream: order"`}, []string{"mixed little"},
		},
		"few lanes": {
			StreamOptions{Shuffle: true, GlobalBatch: 64, World: 6, Order: OrderOptions{Lanes: 4, Delay: 50}},
			[]string{"more ranks than lanes", "reads_of_a_block=1.5"}, []string{"--", "mixed little"},
		},
		"unshuffled": {StreamOptions{GlobalBatch: 64}, nil, []string{"stream: ", "WARN"}},
	} {
		var log lines
		c.o.Epochs, c.o.Tail, c.o.Log, c.o.StatsEvery = 1, "short", slog.New(slog.NewTextHandler(&log, nil)), time.Hour
		s := set.stream(t, c.o)
		for range s.Batches(t.Context()) { // before Close, so that it is not cut short
			continue
		}
		for c.says != nil && !strings.Contains(log.String(), `msg="stream: order"`) {
			time.Sleep(time.Millisecond)
		}
		_ = s.Close()
		text := log.String()
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, text)
			}
		}
		for _, bad := range c.silent {
			if strings.Contains(text, bad) {
				t.Errorf("%s: %q is in\n%s", name, bad, text)
			}
		}
		if strings.Index(text, `msg="stream: order"`) > strings.Index(text, "msg=stream ") && len(c.says) > 0 {
			t.Errorf("%s: the order does not come first:\n%s", name, text)
		}
	}
}

// TestStreamJoinsBlocks: with default options the small blocks of a data set that has many are read
// several at a time, and those of one that has few one by one.
func TestStreamJoinsBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("it counts reads: make test runs it without the race detector")
	}
	for _, c := range []struct {
		blocks int
		runs   uint32
	}{{6400, 2}, {1000, 1}} {
		store := &far{Store: mem.New(), requests: 8}
		set := newStreamed(t, store, mixed(c.blocks), testset.Options{BlockSize: 1, ShardSize: 400_000})
		store.reads.Store(0) // the stream begins to read as soon as it is open
		table, err := set.OrderTable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		memory := table.Decoded / 10 * 19 // too little for a uniform permutation
		s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 1, Tail: "short", Order: OrderOptions{ShuffleMemory: memory}})
		if p := s.Info().Plans[0].Params(); p.RunBlocks != c.runs {
			t.Fatalf("%d blocks: %+v", c.blocks, p)
		}
		samples := 0
		for b, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			samples += len(b.Samples)
		}
		reads, runs := int(store.reads.Load()), c.blocks/int(c.runs)
		// A run at the end of a lane may be read for either lane; indexes and ends of shards are read
		// too.
		if most := runs + 96 + 3*int(set.NumShards()); samples != c.blocks || reads < runs || reads > most {
			t.Errorf("%d blocks in runs of %d: %d samples, %d reads, want %d to %d", c.blocks, c.runs, samples, reads, runs, most)
		}
	}
}
