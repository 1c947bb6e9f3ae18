package order

import (
	"errors"
	"fmt"
	"math"

	"github.com/shardtool/shardtool/hint"
)

// Algorithm names the order this package computes. A change of a single bit of any order needs
// another name.
const Algorithm = "lane-delay/1"

// Affinity is whether lanes keep their data from epoch to epoch.
type Affinity string

// The affinities.
const (
	AffinityEpoch Affinity = "epoch" // runs are dealt to the lanes anew in every epoch
	AffinityRun   Affinity = "run"   // a lane reads the same data in every epoch, so a node's cache stays useful
)

// Tail is what happens to the rest of an epoch that does not fill a global batch.
type Tail string

// The tails.
const (
	TailShort Tail = "short" // a smaller last batch; a rank may get nothing of it
	TailDrop  Tail = "drop"  // the rest is not delivered in this epoch
	TailWrap  Tail = "wrap"  // the batch continues in the next epoch, or in as many as it takes
	TailPad   Tail = "pad"   // the rest is repeated until the batch is full; the repeats are marked Padding
)

// DefaultTail is the tail where the user gives none. A given number of epochs has each sample once
// in each of them: short. Epochs without end (0) have full batches throughout: wrap.
func DefaultTail(epochs uint64) Tail {
	if epochs == 0 {
		return TailWrap
	}
	return TailShort
}

// Params are the frozen parameters: with the table they decide the order, and every checkpoint
// carries them. They do not depend on ranks, batch size, machine or store.
type Params struct {
	Seed uint64
	// Shuffle false is storage order dealt to the lanes: no permutations, Delay and Head 1. With one
	// lane, position g is sample g.
	Shuffle bool
	// Lanes is V, 1..2^24.
	Lanes uint32
	// RunBlocks is E, the blocks of a run; 0 makes each shard one run.
	RunBlocks uint32
	// Delay is W, the ticks over which a slot's samples are spread, at least 1.
	Delay uint32
	// Head is H, 1..Delay: how many runs of each lane the first batch draws from.
	Head uint32
	// MixBlock is T, the batch size of the first start divided by Lanes. It changes nothing.
	MixBlock uint32
	Affinity Affinity
	Tail     Tail
}

// Window is V·W: about how many runs samples are drawn from at a time.
func (p Params) Window() uint64 { return uint64(p.Lanes) * uint64(p.Delay) }

// OneTick reports whether the order is a single tick for a data set that has no more runs than
// Delay: a uniform permutation, which Choose makes of small data.
func (p Params) OneTick() bool { return p.Shuffle && p.Lanes == 1 && p.Head == p.Delay }

// MixesLittle reports whether the window is small for a global batch: V·W < 1.5·G. Of a data set
// that is stored class by class, batches then have a class mix that varies noticeably more than the
// variance of a uniform permutation; see package uniformity for figures. More shuffle memory,
// smaller blocks, or packing in a random order mend it.
func (p Params) MixesLittle(globalBatch int) bool {
	return p.Shuffle && !p.OneTick() && 2*p.Window() < 3*uint64(max(globalBatch, 0))
}

// OptionError is an option of an order or a split that cannot be used.
type OptionError struct {
	// Options are the names of the options to change, in lower case with hyphens: "shuffle-memory".
	Options []string
	Err     error
}

// Error is the text of Err, which needs no names of options.
func (e *OptionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

// Hints are the options.
func (e *OptionError) Hints() []hint.Hint {
	hints := make([]hint.Hint, len(e.Options))
	for i, name := range e.Options {
		hints[i] = hint.Option(name)
	}
	return hints
}

func badOption(err error, options ...string) error { return &OptionError{options, err} }

// validate and its like leave the name of the package to their callers.
func (p Params) validate() error {
	switch {
	case p.Lanes < 1 || p.Lanes > maxLanes:
		return badOption(fmt.Errorf("%d lanes: give 1 to %d", p.Lanes, maxLanes), "lanes")
	case p.Delay < 1:
		return badOption(errors.New("delay 0: give at least 1"), "delay")
	case !p.Shuffle && (p.Delay != 1 || p.Head != 1):
		return badOption(fmt.Errorf("delay %d and head %d without shuffling: both must be 1, or shuffle", p.Delay,
			p.Head), "shuffle")
	case p.Head < 1 || p.Head > p.Delay:
		return badOption(fmt.Errorf("head %d: give 1 to %d, the delay", p.Head, p.Delay), "head", "delay")
	}
	if err := p.Affinity.validate(); err != nil {
		return err
	}
	return p.Tail.Validate()
}

func (a Affinity) validate() error {
	switch a {
	case AffinityEpoch, AffinityRun:
		return nil
	}
	return badOption(fmt.Errorf("affinity %q: give epoch or run", string(a)), "affinity")
}

// Validate returns an *OptionError unless t is one of the four tails.
func (t Tail) Validate() error {
	switch t {
	case TailShort, TailDrop, TailWrap, TailPad:
		return nil
	}
	return badOption(fmt.Errorf("tail %.40q: give short, drop, wrap or pad", string(t)), "tail")
}

// Split is how one global batch is divided. It is not part of the order: it may differ from call to
// call and from one start to the next.
type Split struct {
	GlobalBatch int // G, samples of a batch over all ranks, below 2^31
	Rank        int // r, the data-parallel rank, 0..World-1
	World       int // R, the data-parallel ranks
}

func (s Split) validate() error {
	switch {
	case s.GlobalBatch < 1:
		return badOption(fmt.Errorf("global batch %d: give at least 1", s.GlobalBatch), "global-batch")
	case s.GlobalBatch > math.MaxInt32:
		return badOption(fmt.Errorf("global batch %d: give at most %d", s.GlobalBatch, math.MaxInt32), "global-batch")
	case s.World < 1:
		return badOption(fmt.Errorf("world size %d: give at least 1", s.World), "world-size")
	case s.Rank < 0 || s.Rank >= s.World:
		return badOption(fmt.Errorf("rank %d of %d: give 0 to %d", s.Rank, s.World, s.World-1), "rank", "world-size")
	}
	return nil
}
