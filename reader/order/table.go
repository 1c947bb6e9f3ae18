package order

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// Table is all the order needs to know of a data set, in storage order (shards as the manifest
// lists them, blocks as they lie in a shard). The slices are not copied: they must not change while
// a Plan uses them.
type Table struct {
	// Samples is the number of samples of each block; 0 is allowed. Fewer than 2^32 blocks.
	Samples []uint32
	// Groups, when not nil, stands for Samples, which are nil: of a table too large to hold them.
	Groups *Groups
	// ShardFirst is the first block of each shard, ascending from 0. A shard ends where the next
	// begins, the last one with the last block; shards without blocks are allowed.
	ShardFirst []int
	// Decoded is the sum of the decoded bytes of all blocks. Only Choose uses it.
	Decoded uint64
	// Joined is the most small blocks that Choose joins to a run; 0 means 8.
	Joined int
	// View, when not nil, selects the samples of an epoch. The order of a view differs from the
	// order of the table; Choose does not depend on it.
	View View
}

// Groups are the samples of groups of blocks. The order is the same as with the samples of every
// block, but runs must consist of whole groups, see Table.Fits, there can be no view, and Lanes
// cannot be read.
type Groups struct {
	// Blocks is the number of blocks of the table. Grain is how many of them a group has; the last
	// group of a shard may have fewer.
	Blocks int
	Grain  uint32
	// Samples is the number of samples of each group, in storage order.
	Samples []uint32
	// Load returns the number of samples of each block of a shard, which add up to those of its
	// groups. A Cursor calls it when it comes to a run of the shard; if it fails, so does the cursor.
	Load func(ctx context.Context, shard int) ([]uint32, error)
	// Expect, when not nil, is called some time before Load. It must return at once.
	Expect func(ctx context.Context, shard int)
}

// Fits reports whether a plan with these parameters can be made of the table: with Groups, only if
// a run consists of whole groups.
func (t *Table) Fits(p Params) bool {
	return t.Groups == nil || t.View == nil && p.RunBlocks%max(t.Groups.Grain, 1) == 0
}

// blocks is the number of blocks.
func (t *Table) blocks() int {
	if t.Groups != nil {
		return t.Groups.Blocks
	}
	return len(t.Samples)
}

// counts is the number of samples of each block, or of each group of so many.
func (t *Table) counts() (samples []uint32, grain int) {
	if t.Groups != nil {
		return t.Groups.Samples, int(t.Groups.Grain)
	}
	return t.Samples, 1
}

// markEvery is the distance of stored prefix sums: a lookup adds up at most 63 neighbours (four
// cache lines), and 3e6 blocks cost 375 KB instead of 24 MB.
const (
	markShift = 6
	markEvery = 1 << markShift
)

func (t *Table) validate() error {
	blocks := t.blocks()
	if uint64(blocks) > math.MaxUint32 {
		return fmt.Errorf("table: %d blocks, at most %d: pack with larger blocks", blocks, uint32(math.MaxUint32))
	}
	if len(t.ShardFirst) == 0 {
		if blocks == 0 {
			return nil
		}
		return errors.New("table: blocks but no shards")
	}
	if t.ShardFirst[0] != 0 {
		return fmt.Errorf("table: the first shard begins at block %d, not 0", t.ShardFirst[0])
	}
	for i, first := range t.ShardFirst {
		if first > blocks || i > 0 && first < t.ShardFirst[i-1] {
			return fmt.Errorf("table: shard %d begins at block %d, out of order", i, first)
		}
	}
	if g := t.Groups; g != nil {
		n := 0
		for i := range t.ShardFirst {
			n += t.groupsOf(i)
		}
		if g.Grain == 0 || n != len(g.Samples) || t.Samples != nil || t.View != nil {
			return fmt.Errorf("table: %d groups of %d blocks, want %d, and neither samples of blocks nor a view", len(g.Samples), g.Grain, n)
		}
	}
	return nil
}

// groupsOf is the number of groups of shard i.
func (t *Table) groupsOf(i int) int {
	_, grain := t.counts()
	return (t.shardEnd(i) - t.ShardFirst[i] + grain - 1) / max(grain, 1)
}

// shardEnd is one past the last block of shard i.
func (t *Table) shardEnd(i int) int {
	if i+1 < len(t.ShardFirst) {
		return t.ShardFirst[i+1]
	}
	return t.blocks()
}

// numbers finds the number of the first sample of a block, or of a group.
type numbers struct {
	samples []uint32
	marks   []uint64 // samples before block 64·i
	total   uint64
}

func newNumbers(samples []uint32) (numbers, uint64) {
	n := numbers{samples: samples, marks: make([]uint64, 0, len(samples)>>markShift+1)}
	var sum uint64 // below 2^64: fewer than 2^32 blocks of fewer than 2^32 samples
	for b, s := range samples {
		if b&(markEvery-1) == 0 {
			n.marks = append(n.marks, sum)
		}
		sum += uint64(s)
	}
	n.total = sum
	return n, sum
}

func (n *numbers) first(block uint32) uint64 {
	at := block &^ (markEvery - 1)
	sum := n.marks[block>>markShift]
	for _, s := range n.samples[at:block] {
		sum += uint64(s)
	}
	return sum
}
