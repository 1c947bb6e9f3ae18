package reader

import (
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
)

// requests is how many requests are kept in flight; 0 where reading is a matter of the processor.
func (s *Stream) requests() int {
	n := s.d.requests()
	if s.opts.Requests == 0 || n == 0 {
		return n
	}
	if elastic, ok := s.d.store.(objstore.Elastic); ok {
		n = max(n, elastic.MostRequests())
	}
	return min(n, s.opts.Requests)
}

// ask has an elastic store send so many requests for this stream, where that is more than it sends anyway.
func (s *Stream) ask(requests int) {
	elastic, ok := s.d.store.(objstore.Elastic)
	if extra := max(requests-s.d.requests(), 0); ok && extra != s.asked {
		elastic.Allow(extra - s.asked)
		s.asked = extra
	}
}

// mostRequests is how many requests autotuning may come to: more than at first where an eighth of the budget holds their bytes.
func (s *Stream) mostRequests(requests int, stored float64) int {
	elastic, ok := s.d.store.(objstore.Elastic)
	if !ok || s.opts.NoAutotune || s.opts.Requests > 0 {
		return requests
	}
	fit := int(min(float64(s.opts.Memory/8)/(stored+requestCost), 1<<20))
	return min(max(fit, requests), max(elastic.MostRequests(), requests))
}

// localLanes is about how many lanes this rank draws from.
func (s *Stream) localLanes() int {
	return int(min(s.params.Lanes, s.params.Lanes/uint32(s.opts.World)+2))
}

// runAhead is how many blocks a request asks for, if memory allows.
func (s *Stream) runAhead() float64 {
	if !s.params.Shuffle || s.params.RunBlocks == 0 {
		return pieceBlocks
	}
	return float64(min(pieceBlocks, s.params.RunBlocks))
}

// pieceSize is how many blocks make a piece, when so many fit the budget: a divisor of a run's, and few enough for every lane to have
// the piece that it is at and the next one.
func pieceSize(p order.Params, fit, lanes int) int {
	if !p.Shuffle {
		return max(min(pieceBlocks, fit/max(8, 2*lanes)), 1)
	}
	n := max(min(pieceBlocks, fit/8), 1)
	if e := int(p.RunBlocks); e > 0 {
		for n = min(e, n); e%n != 0; n-- {
		}
	}
	return n
}

// Bytes of what is held for each sample and field: of a start and a member in a sampleTable; of a ref and its use in a draft; of a
// Sample and a FieldView in a batch.
const startCost, memberCost, refCost, sampleCost, fieldCost = 4, 24, 36, 64, 48

// requestCost is what a request in flight holds: buffers of its connection, its goroutines' stacks.
const requestCost = 64 << 10

// scratchCost is what a worker holds: a decoder, and stored bytes.
const scratchCost = 6 << 20

// defaultMemory is what the order keeps live for this rank, and half as much to run ahead; at least 64 MiB, and no more than a data set
// needs that is held whole, with the rest beside it: what batches in hand use has half of the budget, and a batch may use all blocks.
func (s *Stream) defaultMemory(perBlock float64, rest int64) int64 {
	all := 2 * float64(max(s.opts.Hold, 1)) * perBlock * float64(s.d.tables.Blocks) * 9 / 8
	live := s.live(perBlock)
	batch := perBlock * float64(s.opts.GlobalBatch) / float64(s.opts.World)
	want := 1.5*live + batch + float64(s.opts.Workers)*scratchCost
	want += 4. / 3 * float64(s.requests()) * perBlock * s.runAhead() // what is asked for, decoded, and a quarter for it stored
	var largest float64                                              // sample there can be, and so nearly the largest block
	for _, f := range s.d.tables.Fields {
		largest += float64(f.Max)
	}
	return int64(max(64<<20, 2*largest, min(want, all+float64(rest))))
}

// live is about what the order keeps live for this rank, in bytes.
func (s *Stream) live(perBlock float64) float64 {
	lanes := float64(s.localLanes())
	if !s.params.Shuffle {
		return perBlock * max(16, 2*lanes)
	}
	runs := float64(max(s.params.RunBlocks, 1))
	if s.params.RunBlocks == 0 {
		runs = float64(s.d.tables.Blocks) / float64(max(s.d.tables.Shards, 1))
	}
	return perBlock * runs * lanes * float64(s.params.Delay+4)
}
