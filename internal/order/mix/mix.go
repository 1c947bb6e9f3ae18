package mix

import (
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/shardtool/shardtool/internal/order/members"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Algorithm names the arithmetic of this package. A change of a single bit of any mix needs another
// name.
const Algorithm = "interleave/1"

// Mix describes what a job reads from a position on: its sources and their proportions. Mix and
// position decide every batch. Every checkpoint carries both.
type Mix struct {
	Seed    uint64
	Shuffle bool
	Tail    order.Tail
	Epoch   uint64 // N, the units of an epoch of the mix; frozen at the first start
	// Sources are in ascending order of names. A source that was removed stays, with weight 0.
	Sources []Source
	// Segments are in ascending order of At. The first one holds from From on.
	Segments []Segment
	From     uint64 // 0 at the first start
	// Steered tells that the training program set the weights, see Plan.Steer. There is one segment.
	Steered bool
}

// Segment is a set of weights that holds from a position on.
type Segment struct {
	At uint64
	// Weights are by source number, not all 0; their sum is below 2^62. The slice is not copied.
	Weights []uint64
}

// Plan is a Mix that has been checked. It is immutable and safe for concurrent use.
type Plan struct {
	mix   Mix
	first stretch
}

// New makes the plan of a mix. Errors name the source or the segment, and the member. The mix's
// slices must not change while the Plan is in use.
func New(m Mix) (*Plan, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	p := &Plan{mix: m}
	var err error
	if p.first, err = p.firstStretch(); err != nil {
		return nil, err
	}
	return p, nil
}

// Mix returns the mix of the plan.
func (p *Plan) Mix() Mix { return p.mix }

// Over returns the plan over other Lines of the same units. lines are by source number; a nil one
// leaves the source as it is.
func (p *Plan) Over(lines []*units.Line) *Plan {
	over := *p
	over.mix.Sources = slices.Clone(p.mix.Sources)
	for s, line := range lines {
		if line != nil {
			over.mix.Sources[s].line = line
		}
	}
	return &over
}

// Params returns the parameters of the order of source s. Its key is the seed. Its tail is wrap,
// because the tail of a mix applies to the mix's own epochs.
func (m *Mix) Params(s int) order.Params {
	x := &m.Sources[s]
	return order.Params{
		Seed: Key(m.Seed, x.Name), Shuffle: m.Shuffle, Lanes: x.Lanes, RunBlocks: x.RunBlocks, Delay: x.Delay,
		Head:     x.Head,
		Affinity: x.Affinity, Tail: order.TailWrap,
	}
}

// LargestShare returns the largest share that source s has in a segment.
func (m *Mix) LargestShare(s int) *big.Rat {
	largest := new(big.Rat)
	for _, g := range m.Segments {
		share := new(big.Rat).SetFrac(new(big.Int).SetUint64(g.Weights[s]), new(big.Int).SetUint64(sum(g.Weights)))
		if share.Cmp(largest) > 0 {
			largest = share
		}
	}
	return largest
}

func (m *Mix) validate() error {
	if err := m.Tail.Validate(); err != nil {
		return err
	}
	switch {
	case m.Epoch < 1 || m.Epoch >= maxPosition:
		return fmt.Errorf("an epoch of %d units: give 1 to 2^63-1", m.Epoch)
	case m.From >= maxPosition:
		return members.Bad("from", m.From)
	case m.Steered && (len(m.Segments) != 1 || m.Segments[0].At > m.From):
		return errors.New("steered: the weights that the training program set are the only segment, from its position on")
	}
	return m.validateParts()
}

// validateParts checks everything that does not need the length of the epoch.
func (m *Mix) validateParts() error {
	switch {
	case len(m.Sources) < 1:
		return errors.New("no sources: give at least one")
	case len(m.Sources) > MaxSources:
		return fmt.Errorf("%d sources: give at most %d", len(m.Sources), MaxSources)
	case len(m.Segments) < 1:
		return errors.New("no segments: give the weights from position 0 on")
	case len(m.Segments) > MaxSegments:
		return fmt.Errorf("%d segments: give at most %d", len(m.Segments), MaxSegments)
	case len(m.Segments)*len(m.Sources) > MaxWeights:
		return fmt.Errorf("%d segments of %d sources: give at most %d weights", len(m.Segments), len(m.Sources),
			MaxWeights)
	}
	var given uint64 // units given before From; they are one for each position
	for i := range m.Sources {
		s := &m.Sources[i]
		if err := m.validateSource(i); err != nil {
			return &SourceError{s.Name, err}
		}
		if given += s.Base; s.Base > m.From || given > m.From {
			return &SourceError{s.Name, members.Bad("base", s.Base)}
		}
	}
	if given != m.From {
		return fmt.Errorf("the sources have given %d units before position %d", given, m.From)
	}
	for i := range m.Segments {
		if err := m.validateSegment(i); err != nil {
			return err
		}
	}
	return m.oneKind()
}

func (m *Mix) validateSource(i int) error {
	s := &m.Sources[i]
	if err := s.validate(); err != nil {
		return err
	}
	switch {
	case !m.Shuffle && (s.Delay != 1 || s.Head != 1):
		return fmt.Errorf("delay %d and head %d without shuffling: both must be 1", s.Delay, s.Head)
	case i > 0 && s.Name == m.Sources[i-1].Name:
		return errors.New("given twice")
	case i > 0 && s.Name < m.Sources[i-1].Name:
		return fmt.Errorf("after %q: give sources in ascending order of names", m.Sources[i-1].Name)
	}
	return nil
}

func (m *Mix) validateSegment(i int) error {
	g := &m.Segments[i]
	switch {
	case len(g.Weights) != len(m.Sources):
		return fmt.Errorf("segment at %d: %d weights for %d sources", g.At, len(g.Weights), len(m.Sources))
	case g.At >= maxPosition:
		return fmt.Errorf("segment at %d: give a position below 2^63", g.At)
	case i == 0 && m.From == 0 && g.At != 0:
		return fmt.Errorf("segment at %d: the first segment begins at 0", g.At)
	case i > 0 && (g.At <= m.Segments[i-1].At || g.At <= m.From):
		return fmt.Errorf("segment at %d: give positions above 0 in ascending order, the one before is %d", g.At,
			max(m.Segments[i-1].At, m.From))
	}
	var total uint64
	for s, w := range g.Weights {
		if total += w; w >= maxWeights || total >= maxWeights {
			return fmt.Errorf("segment at %d: the sum of the weights is 2^62 or more", g.At)
		}
		if w > 0 && m.Sources[s].Units == 0 {
			return &SourceError{m.Sources[s].Name,
				fmt.Errorf("no samples, but weight %d in the segment at %d: give weight 0, or leave the source out", w,
					g.At)}
		}
	}
	if total == 0 {
		return fmt.Errorf("segment at %d: all weights are 0", g.At)
	}
	return nil
}

func sum(weights []uint64) uint64 {
	var total uint64
	for _, w := range weights {
		total += w
	}
	return total
}

// SourceError is an error about one source of a mix.
type SourceError struct {
	Source string
	Err    error
}

// Error names the source.
func (e *SourceError) Error() string { return fmt.Sprintf("source %.40q: %v", e.Source, e.Err) }

// Unwrap returns Err.
func (e *SourceError) Unwrap() error { return e.Err }

// Orders makes the orders of the sources, for Seek. tables are by source number; a source that was
// removed has one without blocks, and gets no order.
func (m *Mix) Orders(tables []order.Table) ([]*order.Plan, error) {
	orders := make([]*order.Plan, len(m.Sources))
	for s := range orders {
		if len(tables[s].Samples) == 0 {
			continue
		}
		o, err := order.New(tables[s], m.Sources[s].Digest, m.Params(s))
		if err != nil {
			return nil, &SourceError{m.Sources[s].Name, err}
		}
		orders[s] = o
	}
	return orders, nil
}
