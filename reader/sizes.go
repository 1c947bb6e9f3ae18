package reader

import (
	"cmp"
	"math"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
)

// sizes says how a stream divides its memory budget, and what follows from it.
//
//	memory = scratch of workers + batches planned and assembled + stored bytes on their way (flight)
//	       + window: blocks, and in proportion to them the tables of their samples
type sizes struct {
	memory   int64 // the whole budget
	window   int64 // of it, for blocks
	flight   int64 // of it, for stored bytes of a remote store
	requests int   // in flight at first; 0 where the workers bound reading
	most     int   // requests that tuning may reach
	workers  int   // goroutines that fetch
	ahead    int   // drafts
	queue    int   // batches that lie ready
	keep     bool  // the window holds all data: it is read once for all epochs
	depth    int   // batches that tuning may go ahead
	pieces   []int // by source: blocks of a piece
	room     float64
}

const (
	// pieceBlocks is the most blocks that are fetched, decoded and held together: a run, or a part of
	// one.
	pieceBlocks = 8
	// joinedBytes bounds the decoded bytes of pieces of more blocks, where order.Table.Joined allows
	// them.
	joinedBytes = 2 << 20
	// Bytes held for each sample and field: of a start and a member in a block.Table; of a reference
	// and its use in a draft; of a Sample and a FieldView in a batch.
	startCost, memberCost, refCost, sampleCost, fieldCost = 4, 24, 44, 72, 48
	// placeCost is held for each sample of a block that is packed, whatever its fields.
	placeCost = 12
	// rowCost is the reference to a row of a batch.
	rowCost = 8 + 4
	// tickCost is how much the order holds for each sample of a lane that is a single tick.
	tickCost = 12
	// madeKey is the key of a sample that is made from a row; the fields lie in the batch too.
	madeKey = 64
	// requestCost is the memory of a request in flight: buffers of its connection, its goroutines'
	// stacks.
	requestCost = 64 << 10
	// queuedBytes of batches lie ready, or a part of Memory where that is less, mostQueued at most.
	// With few of small ones, goroutines slept and were woken at each batch: rows of 200 B, 256 to
	// a batch, came at 11 M/s with two batches, and at 15 M/s with 32.
	queuedBytes, queuedPart, mostQueued = 2 << 20, 16, 64
	// scratchCost is the memory of a worker: a decoder, and stored bytes.
	scratchCost = 6 << 20
)

// need is the memory that a source needs on one rank. In a mix, the needs of a batch are in
// proportion to the source's share.
type need struct {
	perBlock float64 // bytes that are kept in the window
	raw      float64 // decoded bytes of a block
	tables   float64 // bytes of sample tables per block
	lanes    int     // that this rank draws from
	live     float64 // bytes of the blocks that the order keeps live
	held     float64 // the same blocks with their tables
	all      float64 // all of the source's blocks with their tables
	data     float64 // the same without tables
	order    float64 // bytes of the order's tables, where a lane is a single tick
	whole    bool    // each lane is a single tick
	shared   float64 // bytes of all of the source's blocks, which are not in the window
	stored   int64   // all of its stored bytes
	request  float64 // stored bytes of a request
	decoded  float64 // the same in the window, with tables
	fields   float64 // of a sample
	made     float64 // bytes of a sample that is made from a row
	sample   float64 // bytes in the window
	block    float64 // the same of a sample's block with its table
	largest  float64 // possible sample, and so nearly the largest block
}

func (in *input) need(o *StreamOptions, local bool) (n need) {
	p := in.plan.Params()
	blocks := max(float64(in.tables.Blocks), 1)
	samples := float64(in.tables.Samples)
	for i := range in.parts {
		p := &in.parts[i]
		weight, made := p.weight(in.Dataset), 0.
		for _, f := range p.tables.Fields {
			n.fields += weight * float64(f.Samples) / max(samples, 1)
			n.largest += float64(f.Max)
			made += float64(f.Bytes) / max(samples, 1)
		}
		if p.tables.Stacked() && !o.Rows { // its samples are made
			n.made += in.share * (made + madeKey)
		}
	}
	decoded, stored := in.sums()
	kept, tables := in.kept(local)
	n.perBlock, n.raw = kept/blocks+1, decoded/blocks+1
	if !o.Rows { // the place of a row is computed
		n.tables = tables / blocks
	}
	n.block = n.perBlock + n.tables
	group := o.group()
	n.lanes = localLanes(p, o.World/group)
	n.whole = in.plan.Whole()
	n.live = n.perBlock * (liveBlocks(p, n.lanes, float64(in.tables.Blocks)/float64(max(in.tables.Shards, 1))) +
		in.unitBlocks(n.lanes))
	if n.whole {
		n.order = tickCost * float64(in.plan.Samples()) * float64(n.lanes) / float64(p.Lanes)
		n.live = n.perBlock * blocks
	}
	n.held = n.live * n.block / n.perBlock
	n.all, n.data = n.block*float64(in.tables.Blocks), n.perBlock*blocks
	if in.shares(o) {
		n.shared, n.live, n.held, n.all, n.data = n.data, 0, 0, 0, 0
	}
	ahead := in.runAhead(n.raw)
	n.stored = int64(stored)
	each := ahead / float64(len(in.parts)) // a piece is of one data set
	n.request, n.decoded = stored/blocks*each, n.block*each
	n.sample = in.share * n.perBlock / max(samples/blocks, 1e-9)
	n.fields, n.block = in.share*n.fields, in.share*n.block
	return n
}

// join adds the need of another source. Requests are of any source, so they are sized by the
// largest.
func (n *need) join(m *need) {
	n.live, n.held, n.all, n.stored = n.live+m.live, n.held+m.held, n.all+m.all, n.stored+m.stored
	n.data, n.order, n.whole = n.data+m.data, n.order+m.order, n.whole && m.whole
	n.shared += m.shared
	n.fields, n.made, n.sample, n.block = n.fields+m.fields, n.made+m.made, n.sample+m.sample, n.block+m.block
	n.request, n.decoded, n.largest = max(n.request, m.request), max(n.decoded, m.decoded), max(n.largest, m.largest)
}

// group returns how many ranks share their entries. Each of them reads the lanes of all.
func (o *StreamOptions) group() int {
	group, err := o.costs.ranks(o.World, 0)
	if err != nil { // Seek has refused it
		return 1
	}
	return group
}

// sizesOf divides the memory budget of a stream.
func sizesOf(inputs []*input, o *StreamOptions) (z sizes) {
	needs := make([]need, len(inputs))
	all := need{whole: true}
	for _, in := range inputs {
		if in.share > 0 { // sources without weight give nothing
			z.requests = max(z.requests, in.requests(o.Tuning.Requests))
		}
	}
	for i, in := range inputs {
		if in.share > 0 {
			needs[i] = in.need(o, z.requests == 0)
			all.join(&needs[i])
		}
	}
	local := int(localSamples(inputs, o)) + 1
	z.ahead = min(max(64<<10/local, 2), 1024)
	z.depth = cmp.Or(o.Tuning.Depth, z.ahead+4)
	inBatch := int64(sampleCost + fieldCost*all.fields + all.made)
	if o.Rows {
		inBatch = rowCost
	}
	queued := float64(queuedBytes)
	if o.Tuning.Memory > 0 {
		queued = min(queued, float64(o.Tuning.Memory)/queuedPart)
	}
	z.queue = min(max(int(queued/(float64(local)*max(float64(inBatch), all.sample))), 2), mostQueued)
	if o.Map != nil { // its result may be of any size
		z.queue = 2
	}
	assembled := 1 + z.queue
	rest := int64(o.Tuning.Workers+o.Tuning.Spare)*scratchCost +
		int64(local)*(int64(z.ahead)*refCost+int64(o.Hold+assembled)*inBatch) + int64(all.order) + o.costs.bytes()
	if z.memory = o.Tuning.Memory; z.memory == 0 {
		onTheirWay := min(int64(float64(z.requests)*all.request), all.stored) + int64(z.requests)*requestCost
		z.memory = all.memory(o, localSamples(inputs, o), z.requests, rest+onTheirWay)
	}
	z.workers = o.Tuning.Workers + o.Tuning.Spare
	if z.requests > 0 { // and stored bytes on their way
		z.most = z.requests
		for _, in := range inputs {
			if in.share > 0 && o.Tuning.Requests == 0 && !o.Tuning.NoAutotune {
				for _, p := range in.parts {
					z.most = max(z.most, mostRequests(p.source.Store, z.requests, z.memory, all.request))
				}
			}
		}
		z.flight = max(min(z.memory/4, int64(float64(z.most)*all.request), all.stored), 1<<20)
		rest += z.flight + int64(z.most)*requestCost
		z.workers = max(z.workers, z.most)
		if o.Tuning.Requests > 0 {
			z.workers = z.requests
		}
	}
	z.window = z.memory - min(rest, z.memory/2)
	if all.held > 0 {
		z.window = int64(float64(z.window) * all.live / all.held)
	}
	data := int64(all.data * 9 / 8)                           // as buffers of a few sizes
	if o.Tuning.Memory == 0 && all.whole && z.window < data { // then there is some in the window
		z.memory += int64(float64(data-z.window) * all.held / all.live)
		z.window = data
	}
	z.keep = z.window >= data
	for i, in := range inputs {
		n, piece := &needs[i], 1
		if in.share > 0 && !in.shares(o) {
			piece = pieceSize(in.plan.Params(), int(float64(z.window)*(n.live/all.live)/n.perBlock), n.lanes,
				in.pieceBlocks(n.raw))
			piece, _ = in.pieces(piece)
		}
		z.pieces = append(z.pieces, piece)
		// otherwise the first batch has other pieces than later ones
		z.keep = z.keep && (piece == 1 || !in.plan.Params().Shuffle)
	}
	comes := all.sample
	if group := o.group(); group > 1 { // with a batch come blocks of the group's
		comes = min(all.sample*float64(group), all.block)
	}
	z.room = max(float64(z.window)-all.live, (float64(z.window)+all.shared)/8) / max(comes*float64(local), 1)
	return z
}

// memory returns what the order keeps live for this rank and half as much to run ahead, or twice
// what a batch draws from; at least 64 MiB, and no more than holds all data with the rest beside
// it. Batches in hand have half of the window, and a batch may use all blocks. A batch of very many
// small samples does, and copying it out block by block takes twice the time. If the consumer holds
// several batches, that happens.
func (n *need) memory(o *StreamOptions, samples float64, requests int, rest int64) int64 {
	all := 2 * float64(max(o.Hold, 1)) * n.all * 9 / 8
	inHand := 2*n.drawn(samples, o.group())*9/8 + float64(rest)
	want := max(1.5*n.held+n.begun(samples, o.group()), inHand) + float64(o.Tuning.Workers+o.Tuning.Spare)*scratchCost
	want += 4. / 3 * float64(requests) * n.decoded // asked for, decoded, and a quarter for it stored
	return int64(max(64<<20, 2*n.largest, min(want, all+float64(rest))))
}

// drawn returns about how many bytes, with tables, the blocks have that a batch draws from: the
// blocks that the order keeps live, and the blocks that take their place in the course of the
// batch of this rank's group of ranks. With large samples these are many.
func (n *need) drawn(samples float64, group int) float64 {
	return min(n.held+n.sample*samples*float64(group), n.block*samples)
}

// begun returns the bytes, with tables, of the blocks that a batch can be the first to
// need: one for each sample at most. With small samples it is as many bytes as the batch has, in
// whole runs. Lanes reach the ends of their runs at different times, so the number of runs that a
// batch begins is near its mean, and four standard deviations bound it.
func (n *need) begun(samples float64, group int) float64 {
	mean := n.sample * samples * float64(group)
	return min(n.block*samples, mean+4*math.Sqrt(mean*n.decoded)+4*n.decoded)
}

// localSamples returns how many samples a batch of one rank has, nearly.
func localSamples(inputs []*input, o *StreamOptions) float64 {
	each, shares := 0., 0.
	for _, in := range inputs {
		each, shares = each+in.share*in.unit.samples, shares+in.share
	}
	return float64(o.GlobalBatch) / float64(o.World) * each / shares
}

// unitBlocks returns how many blocks windows of units keep live in addition to the order.
func (in *input) unitBlocks(lanes int) float64 {
	window := in.unit.window * float64(in.tables.Blocks) / float64(max(in.tables.Samples, 1))
	return min(window*float64(lanes), float64(in.tables.Blocks))
}

// localLanes returns about how many lanes one rank draws from.
func localLanes(p order.Params, world int) int {
	return int(min(p.Lanes, p.Lanes/uint32(world)+2))
}

// liveBlocks returns about how many blocks the order keeps live for one rank.
func liveBlocks(p order.Params, lanes int, perShard float64) float64 {
	if !p.Shuffle {
		return max(16, 2*float64(lanes))
	}
	run := float64(p.RunBlocks)
	if p.RunBlocks == 0 {
		run = perShard
	}
	return run * float64(lanes) * float64(p.Delay+4)
}

// pieceBlocks returns the most blocks of a piece, whose blocks have perBlock decoded bytes: a run
// where runs have many small blocks.
func (in *input) pieceBlocks(perBlock float64) int {
	return max(pieceBlocks, min(in.table.Joined, int(joinedBytes/perBlock)))
}

// runAhead returns how many blocks a request asks for, if memory allows.
func (in *input) runAhead(perBlock float64) float64 {
	p, most := in.plan.Params(), in.pieceBlocks(perBlock)
	if !p.Shuffle || p.RunBlocks == 0 {
		return float64(most)
	}
	return float64(min(most, int(p.RunBlocks)))
}

// pieceSize returns how many blocks make a piece, when fit of them fit the budget: at most most, a
// divisor of a run's, and few enough for every lane to have its current piece and the next one.
func pieceSize(p order.Params, fit, lanes, most int) int {
	if !p.Shuffle {
		return max(min(most, fit/max(8, 2*lanes)), 1)
	}
	n := max(min(most, fit/8), 1)
	if e := int(p.RunBlocks); e > 0 {
		for n = min(e, n); e%n != 0; n-- {
		}
	}
	return n
}

// requests returns how many requests are kept in flight: as many as the stores of its data sets
// send together, so that blocks of layers do not take the turns of the blocks beside them. Or want
// if it is set, up to the number that a store sends or can be asked to send.
func (in *input) requests(want int) (n int) {
	most := 0
	for i := range in.parts {
		of := in.parts[i].source
		n, most = n+of.Requests(), max(most, of.Requests(), objstore.TraitsOf(of.Store).MostRequests)
	}
	if want == 0 || n == 0 {
		return n
	}
	return min(most, want)
}

// mostRequests returns how many requests tuning may reach. They are more than at first if an eighth
// of the memory holds their bytes.
func mostRequests(store objstore.Store, requests int, memory int64, stored float64) int {
	traits := objstore.TraitsOf(store)
	if traits.Reserve == nil {
		return requests
	}
	fit := int(min(float64(memory/8)/(stored+requestCost), 1<<20))
	return min(max(fit, requests), max(traits.MostRequests, requests))
}
