package reader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/internal/order/cost"
	"github.com/shardtool/shardtool/reader/order"
)

// dealing is the memory of a batch that is dealt out.
type dealing struct {
	dealer cost.Dealer
	spent  []uint64 // by entry
	counts []int
	ranks  []int32 // by entry
}

// deal returns the rank of each entry of a group's part of a batch, counted from the first rank of
// the group.
func (c *costs) deal(d *dealing, refs []order.Ref, b *order.Batch, cuts []order.Cut, world, first,
	group int) ([]int32, error) {
	d.spent, d.counts = d.spent[:0], d.counts[:0]
	real := 0
	for i := range refs {
		r := &refs[i]
		begins := cuts == nil || i == 0 || cuts[i].Unit != cuts[i-1].Unit
		if begins {
			d.spent = append(d.spent, 0)
		}
		if r.Padding { // it is at the end
			continue
		}
		real = len(d.spent)
		spent := &d.spent[real-1]
		if cuts == nil {
			*spent = c.of[r.Source][r.Number]
			continue
		}
		more, err := c.piece(r, &cuts[i])
		if *spent += more; err == nil && *spent >= cost.Limit {
			err = errors.New("its samples cost 2^47 or more together")
		}
		if err != nil {
			return nil, &CostError{c.expr.Text, "", fmt.Errorf("a unit of the batch at epoch %d, position %d: %w",
				b.Epoch,
				b.Position, err)}
		}
	}
	listed := uint64(b.Global)
	for rank := first; rank < first+group; rank++ {
		d.counts = append(d.counts, int(order.Share(listed, rank+1, world)-order.Share(listed, rank, world)))
	}
	d.ranks = d.dealer.Deal(d.ranks[:0], d.spent, real, d.counts)
	return d.ranks, nil
}

// piece returns the cost of a sample in a unit, or of a piece of it.
func (c *costs) piece(r *order.Ref, cut *order.Cut) (uint64, error) {
	if of := c.of[r.Source]; of != nil {
		return of[r.Number], nil
	}
	return c.expr.Cost([]int64{int64(cut.Length)})
}

// dealer is a cursor over one rank's part of batches that are dealt out by costs. It lists the
// entries of all ranks of a group, and keeps those of its rank.
type dealer struct {
	batches
	costs *costs
	slots []slots // by source
	dealing
	list           []order.Ref // of the group
	before         []int32     // references of the rank before each reference of the group
	entries        []uint32
	cuts           []order.Cut
	opened, closed []order.Span
}

// slots are the spans of a source that are open in the group's part, by serial number from first
// on. The rank opens one when it first needs it, and numbers those that it opens.
type slots struct {
	first, last uint64 // last is the serial number that the rank gave last
	open        []slot
}

type slot struct {
	order.Span
	own    uint64 // the rank's serial number; 0 until it needs the span
	closed bool
}

// deals returns a cursor that deals the batches of another one out to ranks, or the other one if
// there is nothing to deal.
func (r *Run) deals(of batches, world int) (batches, error) {
	group, err := r.costs.ranks(world)
	if err != nil || group == 1 {
		return of, err
	}
	d := &dealer{batches: of, costs: r.costs, slots: make([]slots, len(r.inputs))}
	for i := range d.slots {
		d.slots[i].first = 1 // serial numbers count from 1
	}
	return d, nil
}

// NextBatch implements batches.
func (d *dealer) NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error) {
	group, err := d.costs.ranks(s.World)
	if err != nil {
		return dst, order.Batch{}, err
	}
	rank, world := s.Rank, s.World
	first := rank - rank%group
	s.Rank, s.World = s.Rank/group, s.World/group
	list, b, err := d.batches.NextBatch(d.list[:0], s)
	if err != nil {
		return dst, b, err
	}
	d.list = list
	ranks, err := d.costs.deal(&d.dealing, list, &b, b.Cuts, world, first, group)
	if err != nil {
		return dst, b, err
	}
	for i := range b.Opened {
		of := &d.slots[b.Opened[i].Source]
		of.open = append(of.open, slot{Span: b.Opened[i]})
	}
	dst = d.take(dst, &b, ranks, int32(rank-first))
	d.close(&b)
	return dst, b, nil
}

// take appends the references of a rank, of those listed for its group.
func (d *dealer) take(dst []order.Ref, b *order.Batch, ranks []int32, rank int32) []order.Ref {
	from := len(dst)
	d.before, d.entries, d.cuts, d.opened = d.before[:0], d.entries[:0], d.cuts[:0], d.opened[:0]
	entry := -1 // of the group
	for i := range d.list {
		begins := b.Cuts == nil || i == 0 || b.Cuts[i].Unit != b.Cuts[i-1].Unit
		if begins {
			entry++
		}
		d.before = append(d.before, int32(len(dst)-from))
		if ranks[entry] != rank {
			continue
		}
		if begins {
			d.entries = append(d.entries, uint32(b.First+entry))
		}
		if b.Cuts != nil {
			cut := b.Cuts[i]
			cut.Unit = uint32(len(d.entries) - 1)
			d.cuts = append(d.cuts, cut)
		}
		r := d.list[i]
		if !r.Padding {
			r.Slot = d.open(&r, len(dst)-from)
		}
		dst = append(dst, r)
	}
	d.before = append(d.before, int32(len(dst)-from))
	if b.Cuts != nil {
		b.Cuts = d.cuts
	}
	if b.Entries = d.entries; len(d.entries) > 0 {
		b.First = int(d.entries[0])
	}
	return dst
}

// open returns the rank's serial number of the span of a reference, which it opens if need be.
func (d *dealer) open(r *order.Ref, place int) uint64 {
	of := &d.slots[r.Source]
	at := &of.open[r.Slot-of.first]
	if at.own == 0 {
		of.last++
		at.own = of.last
		span := at.Span
		span.Slot, span.Place = at.own, place
		d.opened = append(d.opened, span)
	}
	return at.own
}

// close closes the spans that the group closes, if the rank has opened them.
func (d *dealer) close(b *order.Batch) {
	d.closed = d.closed[:0]
	for i := range b.Closed {
		span := b.Closed[i]
		of := &d.slots[span.Source]
		at := &of.open[span.Slot-of.first]
		if at.closed = true; at.own != 0 {
			place := min(span.Place, len(d.list)) // of units, places count otherwise
			span.Slot, span.Place = at.own, int(d.before[place])
			d.closed = append(d.closed, span)
		}
		for len(of.open) > 0 && of.open[0].closed {
			of.open, of.first = of.open[1:], of.first+1
		}
	}
	b.Opened, b.Closed = d.opened, d.closed
}

// Ranks returns the rank that gets each entry of a global batch: each sample, or unit where
// positions hold units. refs and b are what a cursor over all ranks listed, one with a World of 1.
func (r *Run) Ranks(refs []order.Ref, b *order.Batch, world int) ([]int32, error) {
	var d dealing
	entries := make([]int32, 0, b.Global)
	if r.costs == nil || world == 1 {
		for rank := range world {
			n := order.Share(uint64(b.Global), rank+1, world) - order.Share(uint64(b.Global), rank, world)
			entries = append(entries, slices.Repeat([]int32{int32(rank)}, int(n))...)
		}
		return entries, nil
	}
	group, err := r.costs.ranks(world)
	if err != nil {
		return nil, err
	}
	at := 0 // reference
	for first := 0; first < world; first += group {
		end, to := int(order.Share(uint64(b.Global), first+group, world)), at
		for to < len(refs) && (b.Cuts == nil && to < end || b.Cuts != nil && int(b.Cuts[to].Unit) < end) {
			to++
		}
		var cuts []order.Cut
		if b.Cuts != nil {
			cuts = b.Cuts[at:to]
		}
		ranks, err := r.costs.deal(&d, refs[at:to], b, cuts, world, first, group)
		if err != nil {
			return nil, err
		}
		for _, rank := range ranks {
			entries = append(entries, rank+int32(first))
		}
		at = to
	}
	return entries, nil
}
