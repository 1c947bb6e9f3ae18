package reader

import (
	"cmp"
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
	real   int      // entries before the padding
	counts []int
	ranks  []int32 // by entry
}

// deal returns the rank of each entry of a group's part of a batch, counted from the first rank of
// the group.
func (c *costs) deal(d *dealing, refs []order.Ref, b *order.Batch, cuts []order.Cut, world, first,
	group int) ([]int32, error) {
	d.spent, d.real = d.spent[:0], 0
	for i := range refs {
		r := &refs[i]
		begins := cuts == nil || i == 0 || cuts[i].Unit != cuts[i-1].Unit
		if begins {
			d.spent = append(d.spent, 0)
		}
		if r.Padding { // it is at the end
			continue
		}
		d.real = len(d.spent)
		spent := &d.spent[d.real-1]
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
	d.counts = shares(d.counts[:0], b.Global, first, first+group, world)
	d.ranks = d.dealer.Deal(d.ranks[:0], d.spent, d.real, d.counts)
	return d.ranks, nil
}

// shares appends how many entries of a batch each of some of all parts has, of equal ones.
func shares(dst []int, global, from, to, all int) []int {
	for part := from; part < to; part++ {
		dst = append(dst, int(order.Share(uint64(global), part+1, all)-order.Share(uint64(global), part, all)))
	}
	return dst
}

// divider divides the part of a rank into its micro-batches.
type divider struct {
	dealer         cost.Dealer
	spent          []uint64 // by entry of the rank
	real           int      // entries before the padding
	counts         []int
	micro, padding []int32 // by entry
}

// add adds the next entry of the rank, place by place. Padding comes last.
func (d *divider) add(spent uint64, padding bool) {
	if d.spent = append(d.spent, spent); !padding {
		d.real = len(d.spent)
	}
}

// divide returns the micro-batch of each entry that was added, of k of a rank. Padding stays at the
// end of the rank.
func (d *divider) divide(global, rank, world, k int) []int32 {
	d.counts, d.padding = shares(d.counts[:0], global, rank*k, (rank+1)*k, world*k), d.padding[:0]
	left := d.real
	for m, all := range d.counts {
		d.counts[m] = min(all, left)
		left -= d.counts[m]
		d.padding = append(d.padding, slices.Repeat([]int32{int32(m)}, all-d.counts[m])...)
	}
	d.micro = append(d.dealer.Deal(d.micro[:0], d.spent[:d.real], d.real, d.counts), d.padding...)
	d.spent, d.real = d.spent[:0], 0
	return d.micro
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
	parts          divider
	number         uint64      // of the batch
	list           []order.Ref // of the group
	own            []entry
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
	used   use    // the rank's last one
	closed bool
}

// use is the number of a batch, and the place after a reference of the rank in it.
type use struct {
	batch uint64
	after int
}

// entry is an entry of the rank: its place in the group's part, its references there, and its
// micro-batch.
type entry struct {
	place, from, to int
	micro           int32
}

// deals returns a cursor that deals the batches of another one out to ranks, or the other one if
// there is nothing to deal.
func (r *Run) deals(of batches, s order.Split) (batches, error) {
	group, err := r.costs.ranks(s.World, s.GlobalBatch)
	if err != nil || group == 1 && (r.costs == nil || r.costs.micro == 1) {
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
	group, err := d.costs.ranks(s.World, 0)
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
	d.find(&b, ranks, int32(rank-first))
	d.divide(b.Global, rank, world)
	dst = d.take(dst, &b)
	d.close(&b)
	return dst, b, nil
}

// find finds the entries of a rank, of those listed for its group.
func (d *dealer) find(b *order.Batch, ranks []int32, rank int32) {
	d.own = d.own[:0]
	at := -1
	for i := range d.list {
		if begins := b.Cuts == nil || i == 0 || b.Cuts[i].Unit != b.Cuts[i-1].Unit; begins {
			if at++; ranks[at] == rank {
				d.own = append(d.own, entry{at, i, i, 0})
			}
		}
		if ranks[at] == rank {
			d.own[len(d.own)-1].to++
		}
	}
}

// divide puts the entries of the rank in the order of its micro-batches.
func (d *dealer) divide(global, rank, world int) {
	k := d.costs.micro
	if k == 1 {
		return
	}
	for _, e := range d.own {
		d.parts.add(d.spent[e.place], e.place >= d.real)
	}
	for i, m := range d.parts.divide(global, rank, world, k) {
		d.own[i].micro = m
	}
	slices.SortStableFunc(d.own, func(a, b entry) int { return cmp.Compare(a.micro, b.micro) })
}

// take appends the references of the rank.
func (d *dealer) take(dst []order.Ref, b *order.Batch) []order.Ref {
	from := len(dst)
	d.entries, d.cuts, d.opened = d.entries[:0], d.cuts[:0], d.opened[:0]
	for unit, e := range d.own {
		d.entries = append(d.entries, uint32(b.First+e.place))
		for i := e.from; i < e.to; i++ {
			if b.Cuts != nil {
				cut := b.Cuts[i]
				cut.Unit = uint32(unit)
				d.cuts = append(d.cuts, cut)
			}
			r := d.list[i]
			if !r.Padding {
				r.Slot = d.open(&r, len(dst)-from)
			}
			dst = append(dst, r)
		}
	}
	if b.Cuts != nil {
		b.Cuts = d.cuts
	}
	if b.Entries = d.entries; len(d.entries) > 0 {
		b.First = int(d.entries[0])
	}
	return dst
}

// open returns the rank's serial number of the span of the reference at a place, which it opens if
// need be.
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
	at.used = use{d.number, place + 1}
	return at.own
}

// close closes the spans that the group closes, if the rank has opened them: after its last
// reference to them in this batch.
func (d *dealer) close(b *order.Batch) {
	d.closed = d.closed[:0]
	for i := range b.Closed {
		span := b.Closed[i]
		of := &d.slots[span.Source]
		at := &of.open[span.Slot-of.first]
		if at.closed = true; at.own != 0 {
			span.Slot, span.Place = at.own, 0
			if at.used.batch == d.number {
				span.Place = at.used.after
			}
			d.closed = append(d.closed, span)
		}
		for len(of.open) > 0 && of.open[0].closed {
			of.open, of.first = of.open[1:], of.first+1
		}
	}
	b.Opened, b.Closed = d.opened, d.closed
	d.number++
}

// Ranks returns the rank that gets each entry of a global batch: each sample, or unit where
// positions hold units. refs and b are what a cursor over all ranks listed, one with a World of 1.
func (r *Run) Ranks(refs []order.Ref, b *order.Batch, world int) ([]int32, error) {
	var d dealing
	entries := make([]int32, 0, b.Global)
	if r.costs == nil || world == 1 {
		for rank, n := range shares(nil, b.Global, 0, world, world) {
			entries = append(entries, slices.Repeat([]int32{int32(rank)}, n)...)
		}
		return entries, nil
	}
	group, err := r.costs.ranks(world, 0)
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
