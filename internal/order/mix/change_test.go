package mix

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestMismatches: the error names the source and the field. A frozen one cannot be changed.
func TestMismatches(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Mix)
		want   string
		frozen bool
	}{
		{"seed", func(m *Mix) { m.Seed = 8 }, "seed is 7 in the checkpoint, 8 here", true},
		{"tail", func(m *Mix) { m.Tail = order.TailPad }, "tail is wrap", true},
		{"epoch", func(m *Mix) { m.Epoch = 46 }, "epoch_length is 45", true},
		{"lanes", func(m *Mix) { m.Sources[1].Lanes = 4 }, `source "web": V is 3`, true},
		{"run blocks", func(m *Mix) { m.Sources[1].RunBlocks = 4 }, `source "web": E is 1`, true},
		{"delay", func(m *Mix) { m.Sources[1].Delay = 4 }, `source "web": W is 2`, true},
		{"head", func(m *Mix) { m.Sources[1].Head = 2 }, `source "web": H is 1`, true},
		{"affinity", func(m *Mix) { m.Sources[1].Affinity = order.AffinityRun }, `source "web": affinity is epoch`, true},
		{"data set", func(m *Mix) { m.Sources[1].Digest = "sha256:0" }, `source "web": digest is sha256:5a5a`, false},
		{"size", func(m *Mix) { m.Sources[1].Units = 31 }, `source "web": N is 30 in the checkpoint, 31 here`, false},
		{"max_epochs", func(m *Mix) { m.Sources[0].MaxEpochs = 5 }, `source "code": max_epochs is 4`, false},
		{"weight", func(m *Mix) { m.Segments[0].Weights = []uint64{1, 4} }, `source "web": weight is 6.98491931e-08% in the checkpoint, 9.313225746e-08% here`, false},
		{"pending", func(m *Mix) { m.Segments[1].Weights = []uint64{1, 4} }, `segments is at 200: code=1 web=1 in the checkpoint, at 200: code=1 web=4 here`, false},
		{"none pending", func(m *Mix) { m.Segments = m.Segments[:1] }, `none at 200 here`, false},
		{"one before", func(m *Mix) {
			m.Segments = []Segment{m.Segments[0], {50, []uint64{1, 3}}, m.Segments[1]}
		}, `segments is none at 50 in the checkpoint`, false},
		{"removed", func(m *Mix) {
			m.Sources, m.Segments = m.Sources[1:], []Segment{{0, []uint64{3}}, {200, []uint64{1}}}
		}, `source "code": source is in the mix in the checkpoint, not in the mix here`, false},
		{"renamed", func(m *Mix) { m.Sources[1].Name = "web2" }, `source "web": source is in the mix`, false},
	} {
		cp := checkpointOf(t, twoSources(), 100)
		asked := twoSources()
		c.change(&asked)
		err := cp.Fits(asked)
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) || !errors.Is(err, order.ErrMismatch) || !strings.Contains(err.Error(), c.want) || mismatch.Frozen != c.frozen {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if _, err := cp.Change(asked); errors.Is(err, order.ErrMismatch) != c.frozen {
			t.Errorf("%s: the change is %v", c.name, err)
		}
	}
	cp := checkpointOf(t, twoSources(), 100)
	asked := twoSources()
	asked.Epoch = 0
	if err := cp.Fits(asked); err != nil {
		t.Errorf("the same mix: %v", err)
	}
	asked.Segments[0].Weights = []uint64{0, 0}
	if err := cp.Fits(asked); err == nil || errors.Is(err, order.ErrMismatch) {
		t.Errorf("a mix that is none: %v", err)
	}
}

// TestBackPastAChange: the checkpoint before a change reads what it read before.
func TestBackPastAChange(t *testing.T) {
	m := twoSources()
	cp := checkpointOf(t, m, 100)
	asked := twoSources()
	asked.Segments = []Segment{{0, []uint64{1, 3}}, {90, []uint64{7, 1}}, {120, []uint64{1, 9}}}
	changed, err := cp.Change(asked)
	if err != nil {
		t.Fatal(err)
	}
	if got := changed.Segments; len(got) != 2 || got[0].At != 90 || got[0].Weights[0] != 7 || got[1].At != 120 || changed.From != 100 {
		t.Errorf("from 100 on the segments are %+v, from %d", got, changed.From)
	}
	p, q := mustPlan(t, m), mustPlan(t, changed)
	at100, _ := p.Counts(nil, 100)
	if counts, err := q.Counts(nil, 100); err != nil || counts[0] != at100[0] || counts[1] != at100[1] {
		t.Errorf("the change begins with %d, %v, want %d", counts, err, at100)
	}
	if _, err := q.Counts(nil, 99); err == nil {
		t.Error("the changed mix knows what was before it")
	}
	// Equal weights change nothing, whatever the position.
	same, err := cp.Change(twoSources())
	if err != nil {
		t.Fatal(err)
	}
	s := mustPlan(t, same)
	for g := uint64(100); g < 400; g++ {
		want, _ := p.Counts(nil, g)
		if got, _ := s.Counts(nil, g); got[0] != want[0] || got[1] != want[1] {
			t.Fatalf("before %d: %d, want %d", g, got, want)
		}
	}
	if err := cp.Fits(m); err != nil {
		t.Errorf("back to the old mix: %v", err)
	}
}

// TestLimitInThePast: a limit below what the source has given takes effect at once.
func TestLimitInThePast(t *testing.T) {
	cp := checkpointOf(t, twoSources(), 150) // web has given 112 or 113 of 30 a time
	asked := twoSources()
	asked.Sources[1].MaxEpochs = 2
	changed, err := cp.Change(asked)
	if err != nil {
		t.Fatal(err)
	}
	p := mustPlan(t, changed)
	before, _ := p.Counts(nil, 150)
	after, err := p.Counts(nil, 151)
	if err != nil || after[1] != before[1] || after[0] != before[0]+1 {
		t.Errorf("the counts are %d, then %d, %v", before, after, err)
	}
}
