package uniformity

import (
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestPieces: the pieces of a sample that follow one another count as one sample.
func TestPieces(t *testing.T) {
	labels := []*Labels{Parts(100)}
	whole, split := NewBySource(labels, 1), NewBySource(labels, 1)
	for batch := range 20 {
		var refs, pieces []order.Ref
		var cuts []order.Cut
		for i := range 10 {
			r := order.Ref{Number: uint64((batch*37 + i*13) % 100)}
			refs = append(refs, r)
			for piece := range 1 + i {
				pieces, cuts = append(pieces, r), append(cuts, order.Cut{Offset: uint32(100 * piece), Length: 100})
			}
		}
		whole.Add(refs, nil)
		split.Add(pieces, cuts)
	}
	if w, s := whole.VIF()[0], split.VIF()[0]; w != s || w == 0 {
		t.Errorf("VIF %.3f of whole samples, %.3f of their pieces", w, s)
	}
}

// TestWarning: a warning advises only what has an effect.
func TestWarning(t *testing.T) {
	say := Spelling{Memory: "MEMORY %s", Delay: "DELAY", Shuffle: "shuffle"}
	for want, v := range map[string]Verdict{
		"of source a are mixed little":                                                   {VIF: 2, Source: "a", Memory: 1 << 20},
		"2.0 times as much as at random. Give a new run MEMORY 3GiB, or shuffle":         {VIF: 2, Memory: 3 << 30},
		"at random. Give a new run a larger DELAY, or none and MEMORY 64MiB, or shuffle": {VIF: 2, Memory: 64 << 20, Delayed: true},
		"at random. Shuffle": {VIF: 2},
	} {
		if got := v.Warning(say); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
