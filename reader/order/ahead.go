package order

import (
	"errors"
	"sort"
)

// LaneHead is where a lane stands at a position.
type LaneHead struct {
	Lane   int
	Done   uint64 // samples of the lane before the position
	Length uint64 // samples of the lane in the epoch
	// Next is its next sample, and Shard the shard of that; valid while Done < Length.
	Next  Ref
	Shard int
}

// LaneHeads returns the next sample of every lane at a position of an epoch.
func (p *Plan) LaneHeads(epoch, position uint64) ([]LaneHead, error) {
	c, err := p.Seek(epoch, position)
	if err != nil {
		return nil, err
	}
	if c.epoch >= maxEpochs {
		return nil, errors.New("the position is past the last epoch")
	}
	heads := make([]LaneHead, len(c.lanes))
	var next []Ref
	for l := range c.lanes {
		h := &heads[l]
		*h = LaneHead{Lane: l, Done: p.laneIndex(c.position, l), Length: p.laneLength(l)}
		if h.Done == h.Length {
			continue
		}
		next = c.lane(l).read(c, next[:0], h.Done, h.Done+1, false)
		h.Next, h.Shard = next[0], p.ShardOf(next[0].Block)
		// One lane's window at a time: nobody reads on.
		c.lanes[l].leave(c)
		c.opened, c.closed = c.opened[:0], c.closed[:0]
	}
	return heads, c.failed
}

// ShardOf is the shard of a block: the last one that begins at or before it, because shards without
// blocks begin where the next one does.
func (p *Plan) ShardOf(block uint32) int {
	return lastAtMost(p.table.ShardFirst, int(block))
}

// lastAtMost is the index of the last element that is at most x, of ascending ones from 0 on.
func lastAtMost[T int | uint32](sorted []T, x T) int {
	return sort.Search(len(sorted), func(i int) bool { return sorted[i] > x }) - 1
}
