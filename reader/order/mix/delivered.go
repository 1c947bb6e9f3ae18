package mix

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/shardtool/shardtool/reader/order"
)

// delivered is what was delivered of one data set: all samples whole times, and parts of epochs
// once more or once less.
type delivered struct {
	source Source
	whole  int64
	parts  []epochPart
	orders []order.Params // of parts
	given  uint64
	out    uint64
}

// epochPart is places of one epoch that were delivered times more than those of others: from ≤ p <
// to.
type epochPart struct {
	order    int // in delivered.orders
	epoch    uint64
	from, to uint64
	times    int64
}

// add adds the units from ≤ j < to of a source, times more.
func (d *delivered) add(x *Source, params order.Params, from, to uint64, times int64) {
	if from >= to || x.Units == 0 {
		return
	}
	if times > 0 {
		d.given += to - from
	} else {
		d.given, d.out = d.given-(to-from), d.out+(to-from)
	}
	o := slices.Index(d.orders, params)
	if o < 0 {
		o, d.orders = len(d.orders), append(d.orders, params)
	}
	epoch, place, _ := x.Place(from)
	if rest := x.Units - place; place > 0 {
		n := min(rest, to-from)
		d.parts = append(d.parts, epochPart{o, epoch, place, place + n, times})
		from, epoch = from+n, epoch+1
	}
	d.whole += times * int64((to-from)/x.Units)
	epoch += (to - from) / x.Units
	if n := (to - from) % x.Units; n > 0 {
		d.parts = append(d.parts, epochPart{o, epoch, 0, n, times})
	}
}

// level is places of one epoch that were all delivered equally often.
type level struct{ from, to, times int64 }

// levels are the levels of an epoch, from its parts.
func levels(parts []epochPart, units uint64) (all []level) {
	type step struct{ at, times int64 }
	steps := []step{{int64(units), 0}}
	for _, p := range parts {
		steps = append(steps, step{int64(p.from), p.times}, step{int64(p.to), -p.times})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	var at level
	for _, s := range steps {
		switch at.to = s.at; {
		case at.to == at.from:
		case len(all) > 0 && all[len(all)-1].times == at.times:
			all[len(all)-1].to = at.to
		default:
			all = append(all, at)
		}
		at.from, at.times = s.at, at.times+s.times
	}
	return all
}

// cover counts the samples by how often they were delivered.
func (d *delivered) cover(orders func(Source, order.Params) (*order.Plan, error)) (Coverage, error) {
	c := Coverage{Source: d.source.Name, Digest: d.source.Digest, Samples: d.source.Units, Delivered: d.given, LeftOut: d.out}
	if d.source.Units == 0 {
		return c, nil
	}
	times, uneven := d.whole, []epochPart{}
	var lists [][]level
	slices.SortStableFunc(d.parts, func(a, b epochPart) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.order, b.order))
	})
	for i := 0; i < len(d.parts); {
		n := 1
		for i+n < len(d.parts) && d.parts[i+n].epoch == d.parts[i].epoch && d.parts[i+n].order == d.parts[i].order {
			n++
		}
		if list := levels(d.parts[i:i+n], d.source.Units); len(list) == 1 {
			times += list[0].times
		} else {
			uneven, lists = append(uneven, d.parts[i]), append(lists, list)
		}
		i += n
	}
	found := map[int64]uint64{}
	switch len(lists) {
	case 0:
		found[times] = d.source.Units
	case 1: // one epoch: which samples they are does not matter
		for _, l := range lists[0] {
			found[times+l.times] += uint64(l.to - l.from)
		}
	default:
		if orders == nil {
			return c, ErrOrder
		}
		var err error
		if found, err = d.list(uneven, lists, times, orders); err != nil {
			return c, err
		}
	}
	for n, samples := range found {
		if n < 0 {
			return c, fmt.Errorf("%w: samples were left out that were not due", ErrHistory)
		}
		c.Seen = append(c.Seen, Seen{uint64(n), samples})
	}
	slices.SortFunc(c.Seen, func(a, b Seen) int { return cmp.Compare(a.Times, b.Times) })
	return c, nil
}

// list counts with the orders of several epochs: it lists all places that are not of the longest
// level of their epoch.
func (d *delivered) list(parts []epochPart, lists [][]level, times int64, orders func(Source, order.Params) (*order.Plan, error)) (map[int64]uint64, error) {
	var least, most int64
	for _, list := range lists {
		usual := usual(list)
		times += usual
		low, high := int64(0), int64(0)
		for _, l := range list {
			low, high = min(low, l.times-usual), max(high, l.times-usual)
		}
		least, most = least+low, most+high
	}
	tally := newTally(d.source.Units, bits.Len64(uint64(most-least)))
	plans := make([]*order.Plan, len(d.orders))
	for i, list := range lists {
		p := &parts[i]
		if plans[p.order] == nil {
			plan, err := orders(d.source, d.orders[p.order])
			if err != nil {
				return nil, err
			}
			if plan.Samples() != d.source.Units {
				return nil, fmt.Errorf("its order has %d samples, the checkpoint %d", plan.Samples(), d.source.Units)
			}
			plans[p.order] = plan
		}
		usual := usual(list)
		for _, l := range list {
			if l.times == usual {
				continue
			}
			if err := tally.addPlaces(plans[p.order], p.epoch, uint64(l.from), uint64(l.to), l.times-usual); err != nil {
				return nil, err
			}
		}
	}
	return tally.count(times, least), nil
}

// usual is how often the longest level was delivered.
func usual(list []level) int64 {
	return slices.MaxFunc(list, func(a, b level) int { return cmp.Compare(a.to-a.from, b.to-b.from) }).times
}

// tally is a small number for each sample, modulo 2^bits: bit i of the numbers of 64 samples is a
// word, and the words of the same samples are neighbours.
type tally struct {
	words []uint64
	bits  int
	units uint64
}

func newTally(units uint64, bits int) *tally {
	return &tally{make([]uint64, (units+63)/64*uint64(bits)), bits, units}
}

// of is the words of a sample and 63 others.
func (t *tally) of(word uint64) []uint64 {
	return t.words[word*uint64(t.bits):][:t.bits]
}

// add adds n to the number of a sample.
func (t *tally) add(sample uint64, n int64) {
	words, bit := t.of(sample/64), sample%64
	carry := uint64(0)
	for i, word := range words {
		sum := word>>bit&1 + uint64(n)>>i&1 + carry
		words[i] = word&^(1<<bit) | sum&1<<bit
		carry = sum >> 1
	}
}

// listAtOnce is how many places are listed at a time.
const listAtOnce = 1 << 16

// addPlaces adds n to the samples at the places from ≤ p < to of an epoch.
func (t *tally) addPlaces(plan *order.Plan, epoch, from, to uint64, n int64) error {
	cursor, err := plan.Seek(epoch, from)
	if err != nil {
		return err
	}
	var refs []order.Ref
	for from < to {
		step := min(to-from, listAtOnce)
		if refs, _, err = cursor.NextPart(refs[:0], 0, step, 0, step); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("epoch %d is past the last one", epoch)
			}
			return err
		}
		for i := range refs {
			t.add(refs[i].Number, n)
		}
		from += step
	}
	return nil
}

// count counts the samples by their numbers, of which least is the lowest, each plus times.
func (t *tally) count(times, least int64) map[int64]uint64 {
	found := map[int64]uint64{}
	modulus := int64(1) << t.bits
	var split func(words []uint64, mask uint64, bit int, value int64)
	split = func(words []uint64, mask uint64, bit int, value int64) {
		if mask == 0 {
			return
		}
		if bit == t.bits {
			if value > least+modulus-1 { // a negative number
				value -= modulus
			}
			found[times+value] += uint64(bits.OnesCount64(mask))
			return
		}
		split(words, mask&words[bit], bit+1, value+1<<bit)
		split(words, mask&^words[bit], bit+1, value)
	}
	for word := range (t.units + 63) / 64 {
		mask := ^uint64(0)
		if rest := t.units - word*64; rest < 64 {
			mask = 1<<rest - 1
		}
		split(t.of(word), mask, 0, 0)
	}
	return found
}
