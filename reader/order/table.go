package order

import (
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

// markEvery is the distance of stored prefix sums: a lookup adds up at most 63 neighbours (four
// cache lines), and 3e6 blocks cost 375 KB instead of 24 MB.
const (
	markShift = 6
	markEvery = 1 << markShift
)

func (t *Table) validate() error {
	if uint64(len(t.Samples)) > math.MaxUint32 {
		return fmt.Errorf("table: %d blocks, at most %d: pack with larger blocks", len(t.Samples),
			uint32(math.MaxUint32))
	}
	if len(t.ShardFirst) == 0 {
		if len(t.Samples) == 0 {
			return nil
		}
		return errors.New("table: blocks but no shards")
	}
	if t.ShardFirst[0] != 0 {
		return fmt.Errorf("table: the first shard begins at block %d, not 0", t.ShardFirst[0])
	}
	for i, first := range t.ShardFirst {
		if first > len(t.Samples) || i > 0 && first < t.ShardFirst[i-1] {
			return fmt.Errorf("table: shard %d begins at block %d, out of order", i, first)
		}
	}
	return nil
}

// shardEnd is one past the last block of shard i.
func (t *Table) shardEnd(i int) int {
	if i+1 < len(t.ShardFirst) {
		return t.ShardFirst[i+1]
	}
	return len(t.Samples)
}

// numbers finds the number of the first sample of a block.
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
