package order

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Plan is an order: a data set and frozen parameters. It is immutable and safe for concurrent use.
// Making one costs a pass over the table; it holds no more than 8 bytes a run beside it.
type Plan struct {
	params  Params
	digest  string
	table   Table
	numbers numbers
	total   uint64 // samples of an epoch
	turn    []uint32
	groups  []uint32 // of a table with Groups: the first of each shard
	blocks  blocks   // of all epochs, or where they differ of epoch 0
	draws   bool     // they differ
}

// runs are the runs with samples, in storage order. A run is known by a small number: with one
// block to a run that is the block, or with one group the group, so the most common plans need no
// table.
type runs struct {
	samples []uint32 // by run
	first   []uint32 // first block by run; nil when runs are blocks or groups
	count   int      // runs with samples
}

// New makes the plan of an order. digest is the content digest of the data set, printable ASCII of
// at most 128 bytes. Checkpoints carry it and refuse another; the order itself does not depend on
// it. Errors say which parameter or which part of the table is wrong.
func New(t Table, digest string, p Params) (*Plan, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	plan := &Plan{params: p, digest: digest, table: t, turn: makeTurn(p.Lanes)}
	if !t.Fits(p) {
		return nil, badOption(fmt.Errorf("table: runs of %d blocks do not consist of groups of %d", p.RunBlocks, t.Groups.Grain), "run-blocks")
	}
	counts, _ := t.counts()
	plan.numbers, plan.total = newNumbers(counts)
	plan.groupShards()
	if t.View != nil {
		plan.total = t.View.Samples()
		plan.draws = !t.View.Fixed() && p.Affinity != AffinityRun // which keeps the draws of epoch 0
	}
	if plan.total > math.MaxInt64 {
		return nil, fmt.Errorf("table: %d samples, at most %d", plan.total, int64(math.MaxInt64))
	}
	var err error
	if plan.blocks, err = cutBlocks(&plan.table, &plan.params, 0); err != nil {
		return nil, err
	}
	return plan, nil
}

// Params returns the frozen parameters.
func (p *Plan) Params() Params { return p.params }

// Samples is N, the samples of an epoch: of the table, or of its view.
func (p *Plan) Samples() uint64 { return p.total }

// Stored is the number of samples of the table, all of which have numbers below it. With a view,
// Samples may be fewer or more.
func (p *Plan) Stored() uint64 { return p.numbers.total }

// Drawn calls f with the number of every sample that an epoch of the view has, in storage order, as
// often as it has it; without a view with all numbers. The cost is a pass over the table.
func (p *Plan) Drawn(epoch uint64, f func(number uint64)) {
	if !p.Viewed() {
		for number := range p.total {
			f(number)
		}
		return
	}
	b := p.blocksOf(uint32(epoch))
	var first uint64
	var list []uint32
	for block, n := range p.table.Samples {
		if b.samples[block] > 0 {
			list = b.chosen.Append(list[:0], uint32(block), first)
			for _, i := range list {
				f(first + uint64(i))
			}
		}
		first += uint64(n)
	}
}

// Viewed reports whether the plan is of a view.
func (p *Plan) Viewed() bool { return p.table.View != nil }

// Whole reports whether each lane is a single tick, so that all of its samples are live at a time.
// With one lane the order is then a uniform permutation, see Choose.
func (p *Plan) Whole() bool {
	return p.params.Shuffle && uint64(p.params.Head) >= uint64(p.blocks.runs.count)
}

// Live returns about how many decoded bytes are live at a time over all ranks, and the bytes of the
// whole table.
func (p *Plan) Live() (live, all uint64) {
	all = p.table.Decoded
	hi, runs := bits.Mul64(runBytes(&p.table, p.params.RunBlocks), p.params.Window()+windowExtra*uint64(p.params.Lanes))
	if hi > 0 {
		runs = all
	}
	return min(runs, all), all
}

// CheckSplit reports whether batches can be split that way: a batch of at least 1, a rank of the
// world, and with TailDrop a batch no larger than the epoch, which would drop every sample.
// NextBatch calls it each time.
func (p *Plan) CheckSplit(s Split) error {
	if err := s.validate(); err != nil {
		return err
	}
	if p.params.Tail == TailDrop && uint64(s.GlobalBatch) > p.total {
		return badOption(fmt.Errorf("global batch %d with tail drop delivers nothing of %d samples: give a smaller batch or another tail",
			s.GlobalBatch, p.total), "global-batch", "tail")
	}
	return nil
}

// cutRuns makes the runs of blocks with these samples. slack is by how much the samples of a block
// may grow in another epoch.
func cutRuns(t *Table, samples []uint32, slack uint64, e uint32) (runs, error) {
	_, grain := t.counts()
	per := int(e) / grain // groups, or blocks, of a run
	if int(e) == grain {
		r := runs{samples: samples}
		for _, n := range samples {
			if n > 0 {
				r.count++
			}
		}
		return r, nil
	}
	var r runs
	for i, first := range t.ShardFirst {
		own := samples[:t.groupsOf(i)]
		samples = samples[len(own):]
		for len(own) > 0 {
			n := len(own)
			if e != 0 {
				n = min(n, per)
			}
			var sum uint64
			for _, n := range own[:n] {
				sum += uint64(n)
			}
			if sum+slack*uint64(n) > math.MaxUint32 { // BOUNDED draws below 2^32
				return runs{}, badOption(fmt.Errorf("table: %d samples in the run of blocks %d to %d, at most %d: give runs of fewer blocks",
					sum, first, min(first+n*grain, t.shardEnd(i))-1, uint32(math.MaxUint32)), "run-blocks")
			}
			if sum > 0 {
				r.first = append(r.first, uint32(first))
				r.samples = append(r.samples, uint32(sum))
			}
			first, own = first+n*grain, own[n:]
		}
	}
	r.count = len(r.samples)
	if r.first == nil {
		r.first = []uint32{} // nil would mean that runs are blocks or groups
	}
	return r, nil
}

// appendAll appends the number of every run with samples, in storage order.
func (r *runs) appendAll(dst []uint32) []uint32 {
	if r.first != nil {
		for i := range r.samples {
			dst = append(dst, uint32(i))
		}
		return dst
	}
	for i, n := range r.samples {
		if n > 0 {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}

// makeTurn returns the place of each lane in a round of v positions (ORDER.md, "turn"). Digit
// reversal in the factors of v: lanes next to each other come far apart, so any few of them get
// their positions evenly.
func makeTurn(v uint32) []uint32 {
	var factors []uint32
	rest := v
	for p := uint32(2); p*p <= rest; p++ {
		for rest%p == 0 {
			factors = append(factors, p)
			rest /= p
		}
	}
	if rest > 1 {
		factors = append(factors, rest)
	}
	turn := make([]uint32, v)
	for i := range v {
		var l uint32
		w, x := v, i
		for _, p := range factors {
			w /= p
			l += x % p * w
			x /= p
		}
		turn[l] = i
	}
	return turn
}

// laneIndex is cnt(x, l): how many samples of lane l lie before global position x.
func (p *Plan) laneIndex(x uint64, l int) uint64 {
	v := uint64(p.params.Lanes)
	return round{x / v, uint32(x % v)}.index(p.turn[l])
}

// round is a global position as rounds of all lanes and the turn reached in the next one.
type round struct {
	full uint64
	turn uint32
}

func (r round) index(turn uint32) uint64 {
	if turn < r.turn {
		return r.full + 1
	}
	return r.full
}

// laneLength is the samples of lane l in an epoch: cnt(N, l).
func (p *Plan) laneLength(l int) uint64 { return p.laneIndex(p.total, l) }

// Share is where the part of rank r of a list begins: ⌊r·listed/world⌋, for r up to world.
func Share(listed uint64, r, world int) uint64 {
	hi, lo := bits.Mul64(listed, uint64(r))
	q, _ := bits.Div64(hi, lo, uint64(world)) // r ≤ world, so the quotient fits
	return q
}

// checkPlace accepts the positions of an epoch, 0..N; N is position 0 of the next.
func (p *Plan) checkPlace(epoch, position uint64) (uint64, uint64, error) {
	if position > p.total {
		return 0, 0, fmt.Errorf("position %d is past the %d samples of an epoch", position, p.total)
	}
	if position == p.total && p.total > 0 {
		epoch, position = epoch+1, 0
	}
	if epoch > maxEpochs || epoch == maxEpochs && position > 0 {
		return 0, 0, errors.New("epochs end at 4294967295: start again with another seed")
	}
	return epoch, position, nil
}
