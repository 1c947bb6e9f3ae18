package mix

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestSteer: weights that a program sets hold from their position on, a resume takes them as saved,
// and a mix that may change drops them.
func TestSteer(t *testing.T) {
	m := twoSources()
	p := mustPlan(t, m)
	steered, err := p.Steer(100, []uint64{3, 1})
	if err != nil {
		t.Fatal(err)
	}
	asked := twoSources()
	asked.Segments = []Segment{{0, []uint64{3, 1}}}
	from := checkpointOf(t, m, 100)
	changed, err := from.Change(asked)
	if err != nil {
		t.Fatal(err)
	}
	a, b := mustPlan(t, steered), mustPlan(t, changed)
	for g := uint64(100); g < 400; g++ {
		x, _ := a.Counts(nil, g)
		if y, _ := b.Counts(nil, g); !slices.Equal(x, y) {
			t.Fatalf("before %d: %d, a change of the mix there has %d", g, x, y)
		}
	}
	cp := checkpointOf(t, steered, 250)
	text := encode(t, cp)
	if !strings.Contains(text, `"segments":[],"steered":[100,0,3,1,1],"left_out"`) {
		t.Errorf("the text is %s", text)
	}
	back, err := DecodeCheckpoint([]byte(text))
	if err != nil || !back.Steered || encode(t, back) != text {
		t.Errorf("%v: %+v", err, back)
	}
	if err := back.Fits(m); err != nil {
		t.Errorf("the mix that it began with: %v", err)
	}
	if d, err := back.Differences(m); err != nil || len(d) == 0 {
		t.Errorf("%v: %v", d, err)
	}
	more := twoSources()
	more.Seed = 8
	if err := back.Fits(more); !errors.Is(err, order.ErrMismatch) {
		t.Errorf("another seed: %v", err)
	}
	less := twoSources()
	less.Sources, less.Segments = less.Sources[1:], []Segment{{0, []uint64{1}}}
	if err := back.Fits(less); !errors.Is(err, order.ErrMismatch) {
		t.Errorf("a source that is gone: %v", err)
	}
	if again, err := back.Change(m); err != nil || again.Steered || again.Segments[0].At != 200 {
		t.Errorf("a changed mix: %+v, %v", again, err)
	}
	twice, err := a.Steer(100, []uint64{0, 1})
	if err != nil || len(twice.Segments) != 1 || twice.From != 100 || twice.Segments[0].Weights[0] != 0 {
		t.Errorf("twice at one place: %+v, %v", twice, err)
	}
	if _, err := a.Steer(99, []uint64{1, 1}); err == nil {
		t.Error("a position before the mix")
	}
	for _, weights := range [][]uint64{{0, 0}, {1}, {1 << 62, 1}} {
		if _, err := p.Steer(100, weights); err == nil {
			t.Errorf("weights %d were set", weights)
		}
	}
	for _, c := range [][2]string{
		{"[100,0,3,1,1]", "[100,0,3,1,2]"}, {"[100,0,3,1,1]", "[101,0,3,1,1]"}, {"[100,0,3,1,1]", "[]"}, {"[100,0,3,1,1]", "true"},
		{`"segments":[]`, `"segments":[[300,0,1]]`},
	} {
		if _, err := DecodeCheckpoint([]byte(edited(t, text, c[0], c[1]))); err == nil || errors.Is(err, order.ErrEdited) {
			t.Errorf("%s for %s: %v", c[1], c[0], err)
		}
	}
}
