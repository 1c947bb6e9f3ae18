package order

import (
	"cmp"
	"errors"
	"fmt"
)

// Defaults and limits of Choose (SPEC.md, "Parameters").
const (
	DefaultLanes  = 96
	DefaultHead   = 4
	DefaultMemory = 2 << 30 // bytes of decoded blocks, over all ranks

	maxChosenRuns  = 1 << 24 // E doubles until a table has no more runs: 64 MiB of them
	maxChosenDelay = 4096
	// The window holds up to W+4 runs of a lane, so a budget of 5 runs a lane is the least with a
	// delay of 1.
	windowExtra = 4
	// leastDelay is the least W for which a lane is worth having: with fewer ticks the runs that
	// windowExtra pays for take a larger part of the memory than mixing does.
	leastDelay = 12
	// Runs of less than enoughBytes are doubled, up to maxJoinedBlocks, where the memory leaves
	// every lane joinedRuns and the table has leastRuns for it. So many in 96 lanes mix batches of
	// 1,024 with a variance inflation of 1.3: see package uniformity.
	enoughBytes     = 3 << 18
	maxJoinedBlocks = 8
	joinedRuns      = 36 + windowExtra
	leastRuns       = 32

	// A data set of at most 1/wholePart of the memory is held whole, or of all of it where the ranks
	// of a host share it. So is one of at most 1/fewPart, which is no more than 1 GiB, that has fewer
	// than fewBlocks: ranks that read a part each would draw from too few of them. Every sample
	// counts as leastCounted bytes, which bounds the tables of its only tick: 12 bytes for each.
	wholePart, fewPart = 8, 2
	fewBlocks          = leastRuns * DefaultLanes
	leastCounted       = 64
)

// Choice is what a user asks for. The zero value of a field leaves it to Choose.
type Choice struct {
	Seed    uint64
	Shuffle bool
	// Memory is the shuffle memory in bytes of decoded blocks over all ranks; 0 is DefaultMemory. It
	// sizes Delay, so an explicit Delay leaves it unused.
	Memory uint64
	// WholeShards makes each shard one run: the preset "shards".
	WholeShards bool
	// Lanes, RunBlocks, Delay and Head fix a parameter. An explicit Lanes is never lowered to fit
	// Memory.
	Lanes, RunBlocks, Delay, Head uint32
	Affinity                      Affinity // "" is AffinityEpoch
	// Host tells that the ranks of a host share what they hold: a data set that fits the memory is
	// held whole. It must not depend on whether they do.
	Host bool
	Tail Tail // "" is DefaultTail(Epochs)
	// Epochs is how many epochs are asked for, 0 for no end. It only chooses Tail and is not
	// frozen.
	Epochs uint64
	// UnitBlocks is how many blocks of each lane a window of units takes beside the delay, 0 without
	// units. Package units chooses it.
	UnitBlocks uint64
	// GlobalBatch and World are the values of the first start, 0 when unknown: they set MixBlock,
	// and the lanes of unshuffled reading (1 for one rank, 96 for more). They are not frozen.
	GlobalBatch, World int
}

// Choose fixes the parameters for a table, by the rules of SPEC.md 9.3. A small data set becomes a
// uniform permutation. Of others, small blocks are joined to runs where each of 96 lanes still has
// many of them, then V is the largest divisor of 96 whose lanes get a delay of 12 or more from the
// shuffle memory, and W what the memory allows. Neither the ranks nor the machine decide. The
// result passes New; it is what a caller reports and keeps in checkpoints, since another version
// may choose otherwise. The error of a memory that is too small states the least that works.
func Choose(t Table, c Choice) (Params, error) {
	if err := t.validate(); err != nil {
		return Params{}, err
	}
	p := Params{
		Seed: c.Seed, Shuffle: c.Shuffle, Lanes: c.Lanes, RunBlocks: c.RunBlocks, Delay: c.Delay, Head: c.Head,
		Affinity: c.Affinity, Tail: c.Tail,
	}
	if p.Affinity == "" {
		p.Affinity = AffinityEpoch
	}
	if p.Tail == "" {
		p.Tail = DefaultTail(c.Epochs)
	}
	if c.WholeShards && c.RunBlocks != 0 {
		return Params{}, badOption(fmt.Errorf("whole shards and runs of %d blocks: give one of them", c.RunBlocks),
			"run-blocks")
	}
	if c.holdsWhole(&t) {
		all := uint32(t.blocks())
		p.Lanes, p.RunBlocks, p.Delay, p.Head = 1, 1, all, all
	} else if !c.WholeShards && p.RunBlocks == 0 {
		p.RunBlocks = chooseRunBlocks(&t, &c)
	}
	if c.Shuffle {
		if err := p.chooseWindow(&t, c); err != nil {
			return Params{}, err
		}
	} else {
		p.chooseUnshuffled(c)
	}
	if c.GlobalBatch > 0 { // T is G/V of the first start
		p.MixBlock = uint32(min(max(c.GlobalBatch/int(p.Lanes), 1), 1<<31))
	}
	if err := p.validate(); err != nil {
		return Params{}, err
	}
	return p, nil
}

// holdsWhole reports whether the order of a table is to be a uniform permutation: one lane whose
// only tick has all samples. Every rank then reads all blocks.
func (c *Choice) holdsWhole(t *Table) bool {
	if !c.Shuffle || c.WholeShards || c.Lanes|c.RunBlocks|c.Delay|c.Head != 0 || t.Decoded == 0 {
		return false
	}
	var samples uint64 // below 2^64: fewer than 2^32 blocks of fewer than 2^32
	counts, _ := t.counts()
	for _, n := range counts {
		samples += uint64(n)
	}
	if t.View != nil {
		samples = max(samples, t.View.Samples())
	}
	memory := c.memory()
	if samples == 0 || samples > memory/wholePart/leastCounted {
		return false
	}
	if c.Host {
		return t.Decoded <= memory
	}
	return t.Decoded <= memory/wholePart || t.Decoded <= min(memory, DefaultMemory)/fewPart &&
		t.blocks() < fewBlocks
}

func chooseRunBlocks(t *Table, c *Choice) uint32 {
	var largest int
	for i := range t.ShardFirst {
		largest = max(largest, t.shardEnd(i)-t.ShardFirst[i])
	}
	e := 1
	// Runs never span shards: past the largest shard, doubling changes nothing.
	for e < largest && countRuns(t, e) > maxChosenRuns {
		e *= 2
	}
	if !c.Shuffle || c.Delay != 0 || t.Decoded == 0 { // an explicit delay fixes how many runs are live, in any memory
		return uint32(e)
	}
	lanes := uint64(cmp.Or(c.Lanes, DefaultLanes))
	for e < min(largest, cmp.Or(t.Joined, maxJoinedBlocks)) && runBytes(t, uint32(e)) < enoughBytes &&
		c.memory()/runBytes(t, uint32(2*e))/lanes >= joinedRuns && uint64(countRuns(t, 2*e))/lanes >= leastRuns {
		e *= 2
	}
	return uint32(e)
}

// memory is the shuffle memory in bytes.
func (c *Choice) memory() uint64 { return cmp.Or(c.Memory, DefaultMemory) }

func countRuns(t *Table, e int) int {
	var runs int
	for i := range t.ShardFirst {
		runs += (t.shardEnd(i) - t.ShardFirst[i] + e - 1) / e
	}
	return runs
}

func (p *Params) chooseUnshuffled(c Choice) {
	if p.Lanes == 0 {
		p.Lanes = 1
		if c.World > 1 {
			p.Lanes = DefaultLanes
		}
	}
	if p.Delay == 0 {
		p.Delay = 1
	}
	if p.Head == 0 {
		p.Head = 1
	}
}

func (p *Params) chooseWindow(t *Table, c Choice) error {
	if p.Lanes == 0 {
		p.Lanes = DefaultLanes
	}
	if p.Delay == 0 {
		run := runBytes(t, p.RunBlocks)
		runs := c.memory() / run // that fit; ⌊⌊M/(E·B)⌋/V⌋ = ⌊M/(V·E·B)⌋
		extra := windowExtra + unitRuns(t, p.RunBlocks, c.UnitBlocks)
		if c.Lanes == 0 {
			p.Lanes = fitLanes(runs, extra, uint64(t.blocks()), c.UnitBlocks)
		}
		each := runs / uint64(p.Lanes)
		if each <= extra {
			return tooSmall(c.memory(), run, p, extra)
		}
		p.Delay = uint32(min(each-extra, maxChosenDelay))
	}
	if p.Head == 0 {
		p.Head = min(DefaultHead, p.Delay)
	}
	return nil
}

// unitRuns is how many runs have a number of blocks, rounded up.
func unitRuns(t *Table, runBlocks uint32, blocks uint64) uint64 {
	parts, e := uint64(1), uint64(runBlocks)
	if runBlocks == 0 {
		parts, e = max(uint64(len(t.ShardFirst)), 1), max(uint64(t.blocks()), 1)
	}
	blocks = min(blocks, uint64(t.blocks())) // below 2^32
	return (blocks*parts + e - 1) / e
}

// fitLanes is the largest divisor of 96 that gives each lane a delay of leastDelay beside extra
// runs, and with units the blocks of a window, or 1.
func fitLanes(runs, extra, blocks, unitBlocks uint64) uint32 {
	v := uint32(DefaultLanes)
	for v > 1 && (DefaultLanes%v != 0 || runs/uint64(v) < leastDelay+extra || unitBlocks > blocks/uint64(v)) {
		v--
	}
	return v
}

// runBytes is the mean decoded size of a run: E·B with B = ⌈Σ decoded bytes / blocks⌉, or ⌈Σ
// decoded bytes / shards⌉ where a run is a shard. At least 1.
func runBytes(t *Table, runBlocks uint32) uint64 {
	parts, e := uint64(t.blocks()), uint64(runBlocks)
	if runBlocks == 0 {
		parts, e = uint64(len(t.ShardFirst)), 1
	}
	if parts == 0 || t.Decoded == 0 {
		return 1
	}
	b := (t.Decoded-1)/parts + 1
	if b > 1<<62/e {
		return 1 << 62 // no memory holds five of these; the exact figure does not matter
	}
	return e * b
}

// tooSmall names the options that lower the need: not those that are at their least.
func tooSmall(memory, run uint64, p *Params, extra uint64) error {
	need := (extra + 1) * uint64(p.Lanes) // below 2^57
	if run > 1<<63/need {
		return badOption(errors.New("shuffle memory: a run is too large for any memory: give runs of fewer blocks"),
			"run-blocks")
	}
	less, options := "", []string{"shuffle-memory"}
	if p.Lanes > 1 {
		less, options = "fewer lanes", append(options, "lanes")
	}
	if p.RunBlocks != 1 {
		if less != "" {
			less += " and "
		}
		less, options = less+"smaller runs", append(options, "run-blocks")
	}
	if less != "" {
		less = "; " + less + " need less"
	}
	return badOption(fmt.Errorf("shuffle memory of %d bytes is too small: at least %d bytes for %d lanes with runs of %d bytes%s",
		memory, need*run, p.Lanes, run, less), options...)
}
