package mixfile

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// dataOf is a data set of blocks of 10 samples and 1 MB.
func dataOf(digest string, blocks int) Data {
	t := order.Table{ShardFirst: []int{0}, Decoded: uint64(blocks) * 1e6}
	for range blocks {
		t.Samples = append(t.Samples, 10)
	}
	return Data{Table: t, Digest: digest, Tables: "manifest-" + digest}
}

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("mix.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMix: the sources divide the memory by their shares, and have at least five runs.
func TestMix(t *testing.T) {
	f := parse(t, "sources:\n  a: {data: x, weight: 0.7}\n  b: {data: y, weight: 0.3, order: {affinity: run}}\n  c: {data: z, weight: 0, order: {lanes: 2, run_blocks: 1}}\n")
	data := []Data{dataOf("1", 500), dataOf("2", 500), dataOf("3", 500)}
	c := order.Choice{Seed: 7, Shuffle: true, Memory: 110e6}
	m, err := f.Mix(data, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Tail != order.TailWrap || m.Epoch < 1 {
		t.Errorf("tail %s, an epoch of %d", m.Tail, m.Epoch)
	}
	// 100 runs fit beside the 10 of c: 70 for a and 30 for b.
	for i, want := range []order.Params{
		{Lanes: 4, RunBlocks: 1, Delay: 13, Affinity: order.AffinityEpoch}, {Lanes: 1, RunBlocks: 1, Delay: 26, Affinity: order.AffinityRun}, {Lanes: 2, RunBlocks: 1, Delay: 1, Affinity: order.AffinityEpoch},
	} {
		if s := m.Sources[i]; s.Lanes != want.Lanes || s.RunBlocks != want.RunBlocks || s.Delay != want.Delay || s.Affinity != want.Affinity || s.Units != 5000 {
			t.Errorf("source %d is %+v, want %+v", i, s, want)
		}
	}
	if _, err := f.Mix(data, order.Choice{Shuffle: true, Memory: 19e6}, nil); err == nil || !strings.Contains(err.Error(), "at least 20000000 bytes") {
		t.Errorf("a memory that is too small: %v", err)
	}
	if m, err = f.Mix(data, order.Choice{Epochs: 1}, nil); err != nil || m.Tail != order.TailShort || m.Sources[0].Delay != 1 {
		t.Errorf("unshuffled: %+v, %v", m, err)
	}
}

// TestMixResumed: a source keeps the parameters of the checkpoint when another is added, unless the
// file fixes them.
func TestMixResumed(t *testing.T) {
	f := parse(t, "sources: {a: {data: x, weight: 1}}\nepoch: 100")
	c := order.Choice{Seed: 7, Shuffle: true, Memory: 100e6}
	m, err := f.Mix([]Data{dataOf("1", 500)}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	cp, err := p.Checkpoint(30)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Mix([]Data{dataOf("1", 500)}, c, &cp)
	if err != nil || cp.Fits(again) != nil {
		t.Errorf("the same file: %v, %v", err, cp.Fits(again))
	}
	two := parse(t, "sources: {a: {data: x, weight: 1}, b: {data: y, weight: 1}}")
	more, err := two.Mix([]Data{dataOf("1", 500), dataOf("2", 500)}, c, &cp)
	if err != nil {
		t.Fatal(err)
	}
	if more.Sources[0].Lanes != m.Sources[0].Lanes || more.Sources[1].Lanes >= m.Sources[0].Lanes {
		t.Errorf("a source beside %+v has %+v", more.Sources[1], more.Sources[0])
	}
	if changed, err := cp.Change(more); err != nil || changed.Epoch != 100 || changed.From != 30 {
		t.Errorf("%+v, %v", changed, err)
	}
	fixed := parse(t, "sources: {a: {data: x, weight: 1, order: {lanes: 5}}}")
	other, err := fixed.Mix([]Data{dataOf("1", 500)}, c, &cp)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Fits(other); !errors.Is(err, order.ErrMismatch) || !strings.Contains(err.Error(), `source "a": V is`) {
		t.Errorf("other lanes: %v", err)
	}
}
