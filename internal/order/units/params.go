package units

import (
	"fmt"

	"github.com/shardtool/shardtool/reader/order"
)

// Kind is what a unit is.
type Kind string

// The kinds.
const (
	Pack   Kind = "pack"   // a sequence of at most Size tokens, filled by best fit
	Bucket Kind = "bucket" // samples of similar length; count times longest is at most Size
)

// Long is what happens to a sample that is longer than Size.
type Long string

// The policies.
const (
	LongError    Long = "error"    // refuse the data set
	LongSplit    Long = "split"    // cut it into pieces of Size, the last one shorter
	LongTruncate Long = "truncate" // keep the first Size
	LongDrop     Long = "drop"     // leave it out
)

// Limits (SPEC.md, "Units").
const (
	MaxSize   = 1<<31 - 1 // of Params.Size, and of a length
	MaxWindow = 1 << 20
	maxItems  = 1 << 24 // of a window: a bound on memory
)

// Params are the parameters of units. With the order and the lengths they decide the units, and
// every checkpoint carries them. Size is L, the length of a sequence, or the budget of a
// micro-batch: 1..MaxSize. Window is Ω, the samples of a lane that units are formed from together:
// 1..MaxWindow. By is the attribute that has the lengths, which this package does not use.
type Params struct {
	Kind   Kind   `json:"kind"`
	Size   uint32 `json:"size"`
	Long   Long   `json:"long"`
	Window uint32 `json:"window"`
	By     string `json:"by"`
}

// The least windows that Choose takes: with fewer samples, units are less full. Batches of similar
// length need more samples to choose from.
const (
	leastWindow  = 256
	bucketWindow = 1024
	mostWindow   = 4096
)

// Choose fixes the parameters of an order and of its units, by the rules of SPEC.md 9.16. The
// blocks of a window are live in addition to the blocks of the delay, so part of the shuffle memory
// pays for them. The window is a quarter of the samples that a lane mixes, at least 256 and at most
// 4096; micro-batches have at least 1024 where memory allows. If the memory is too small, the error
// states the least that works.
func Choose(t order.Table, c order.Choice, p Params) (order.Params, Params, error) {
	least := []uint32{leastWindow}
	switch {
	case p.Window != 0:
		least[0] = p.Window
	case p.Kind == Bucket:
		least = []uint32{bucketWindow, leastWindow}
	}
	samples, blocks := samplesOf(t)
	var chosen order.Params
	var err error
	for _, window := range least {
		c.UnitBlocks = windowBlocks(t, window)
		if chosen, err = order.Choose(t, c); err != nil {
			continue
		}
		if p.Window == 0 {
			// N·W may pass 64 bits; the mean samples of a block times W does not.
			w, four := uint64(chosen.Delay), 4*blocks
			quarter := samples/four*w + samples%four*w/four
			p.Window = uint32(min(max(quarter, uint64(window)), mostWindow))
		}
		return chosen, p, p.Check()
	}
	return chosen, p, err
}

// LeastBlocks returns how many blocks the smallest window takes that Choose accepts:
// Choice.UnitBlocks for order.LeastMemory.
func LeastBlocks(t order.Table, p Params) uint64 {
	if p.Window != 0 {
		return windowBlocks(t, p.Window)
	}
	return windowBlocks(t, leastWindow)
}

// windowBlocks returns how many blocks have as many samples as a window, rounded up.
func windowBlocks(t order.Table, window uint32) uint64 {
	samples, blocks := samplesOf(t)
	return (uint64(window)*blocks + max(samples, 1) - 1) / max(samples, 1)
}

func samplesOf(t order.Table) (samples, blocks uint64) {
	for _, n := range t.Samples {
		samples += uint64(n)
	}
	return samples, max(uint64(len(t.Samples)), 1)
}

// Check returns an error that names the first parameter out of its limits.
func (p Params) Check() error {
	switch {
	case p.Kind != Pack && p.Kind != Bucket:
		return fmt.Errorf("kind %.40q: give pack or bucket", string(p.Kind))
	case p.Size < 1 || p.Size > MaxSize:
		return fmt.Errorf("a %s of %d: give 1 to %d", p.measure(), p.Size, MaxSize)
	case p.Window < 1 || p.Window > MaxWindow:
		return fmt.Errorf("a window of %d samples: give 1 to %d", p.Window, MaxWindow)
	}
	switch p.Long {
	case LongError, LongSplit, LongTruncate, LongDrop:
		return nil
	}
	return fmt.Errorf("long %.40q: give error, split, truncate or drop", string(p.Long))
}

// measure returns the name of Size for users.
func (p Params) measure() string {
	if p.Kind == Bucket {
		return "budget"
	}
	return "length"
}

// Compare returns an *order.MismatchError for the first parameter in which a checkpoint's
// parameters differ from those asked for.
func (p Params) Compare(asked Params) error {
	for _, f := range []struct {
		name       string
		have, want any
	}{{"kind", p.Kind, asked.Kind}, {"size", p.Size, asked.Size}, {"long", p.Long, asked.Long},
		{"window", p.Window, asked.Window}, {"by", p.By, asked.By}} {
		if f.have != f.want {
			return &order.MismatchError{Field: "units: " + f.name, Checkpoint: fmt.Sprint(f.have),
				Given: fmt.Sprint(f.want)}
		}
	}
	return nil
}
