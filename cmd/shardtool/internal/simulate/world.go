package simulate

import (
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
)

// together is the number of blocks that a stream reads with one request where the order allows it.
const together = 8

// part is the blocks of one source among the blocks of all sources.
type part struct {
	from, to uint64 // words of a set that has blocks of all sources
	blocks   uint64
	block    float64 // stored bytes of a mean block
	run      float64 // blocks of a request
}

func newPart(from, blocks, bytes uint64, p order.Params) part {
	run := float64(together)
	if p.Shuffle && p.RunBlocks > 0 {
		run = min(run, float64(p.RunBlocks))
	}
	return part{from: from, to: from + (blocks+63)/64, blocks: blocks, block: float64(bytes) / float64(max(blocks, 1)),
		run: run}
}

// volume is the work of reading blocks.
type volume struct{ blocks, bytes, requests float64 }

func (v *volume) add(o volume) {
	v.blocks, v.bytes, v.requests = v.blocks+o.blocks, v.bytes+o.bytes, v.requests+o.requests
}

// in returns the words of a set that have the part's blocks.
func (p *part) in(b bitset) bitset { return b[p.from:p.to] }

// of returns the volume of the part's blocks that are in a set.
func (p *part) of(b bitset) volume {
	n := float64(p.in(b).count())
	return volume{n, n * p.block, n / p.run}
}

// parts holds the blocks of all sources, one source after the other.
type parts []part

func (ps parts) blocks() (n uint64) {
	for i := range ps {
		n += ps[i].blocks
	}
	return n
}

// set returns an empty set of blocks.
func (ps parts) set() bitset { return make(bitset, ps[len(ps)-1].to) }

func (ps parts) of(b bitset) (v volume) {
	for i := range ps {
		v.add(ps[i].of(b))
	}
	return v
}

// world collects what the ranks of one world size get.
type world struct {
	size    int
	dealt   []int32 // the rank of each entry of the batch at hand; nil: they have consecutive ones
	parts   parts
	samples []uint64 // of each rank
	blocks  []bitset // that each rank reads in the present epoch of each source
	// earlier is the volume that each rank read in earlier epochs of the sources, and seen has the
	// blocks that it read then.
	earlier []volume
	seen    []bitset
	sources []float64 // bytes of each source that all ranks read in earlier epochs
	// first and resume are the most bytes that a rank needs for its first batch, and for its batch in
	// the middle.
	first, resume float64
}

func newWorld(size int, ps parts) world {
	w := world{size: size, parts: ps, samples: make([]uint64, size), blocks: make([]bitset, size),
		earlier: make([]volume, size), seen: make([]bitset, size),
		sources: make([]float64, len(ps))}
	for r := range w.blocks {
		w.blocks[r] = ps.set()
	}
	return w
}

// rank returns the rank that gets entry i of a global batch: rank r gets the entries from
// ⌊r·global/size⌋ to ⌊(r+1)·global/size⌋, unless costs dealt them out.
func (w *world) rank(i, global int) int {
	if w.dealt != nil {
		return int(w.dealt[i])
	}
	return ((i+1)*w.size - 1) / global
}

// add counts sample i of a batch. Blocks count over all parts.
func (w *world) add(i, global int, block uint32, padding bool) {
	rank := w.rank(i, global)
	w.samples[rank]++
	if !padding {
		w.blocks[rank].set(uint64(block))
	}
}

// nextEpoch begins an epoch of a source: its blocks are read again.
func (w *world) nextEpoch(source int) {
	p := &w.parts[source]
	for r, of := range w.blocks {
		if w.seen[r] == nil {
			w.seen[r] = w.parts.set()
		}
		v := p.of(of)
		w.earlier[r].add(v)
		w.sources[source] += v.bytes
		w.seen[r].add(of)
		clear(p.in(of))
	}
}

// firstBatch records the blocks that ranks need for their first batch.
func (w *world) firstBatch() {
	for _, of := range w.blocks {
		w.first = max(w.first, w.parts.of(of).bytes)
	}
}

// resumeBatch records the blocks that ranks need for this batch alone. Blocks count over all parts.
func (w *world) resumeBatch(refs []order.Ref, global int) {
	type place struct {
		rank  int
		block uint32
	}
	seen, bytes := map[place]bool{}, make([]float64, w.size)
	for i := range refs {
		r := &refs[i]
		at := place{w.rank(i, global), r.Block}
		if !r.Padding && !seen[at] {
			seen[at] = true
			bytes[at.rank] += w.parts[r.Source].block
			w.resume = max(w.resume, bytes[at.rank])
		}
	}
}

// figures sums up what the ranks of this world size got. samples and batches count over all ranks.
func (w *world) figures(samples, batches uint64, job Job) Reading {
	out := Reading{Size: w.size, Steps: batches, Least: ^uint64(0)}
	read := 0.0
	for rank, n := range w.samples {
		v := w.volume(rank)
		out.Least, out.Most, out.Blocks = min(out.Least, n), max(out.Most, n), max(out.Blocks, uint64(v.blocks))
		read += v.blocks
	}
	out.Amplification = read / float64(max(w.parts.blocks(), 1))
	out.Needs = w.needs(samples, job)
	return out
}

// read returns the bytes of a source that all ranks read.
func (w *world) read(source int) float64 {
	bytes := w.sources[source]
	for _, of := range w.blocks {
		bytes += w.parts[source].of(of).bytes
	}
	return bytes
}

// volume returns the volume that a rank reads in all.
func (w *world) volume(rank int) volume {
	v := w.parts.of(w.blocks[rank])
	v.add(w.earlier[rank])
	return v
}

// needs computes what this world size asks of the nodes and of the store.
func (w *world) needs(samples uint64, job Job) Needs {
	perNode := max(job.RanksPerNode, 1)
	n := Needs{Nodes: (w.size + perNode - 1) / perNode, First: uint64(w.first), Resume: uint64(w.resume)}
	var read, once volume // of all ranks, and of all nodes with each block once per node
	for node := range n.Nodes {
		union := w.parts.set()
		var each volume
		for rank := node * perNode; rank < min((node+1)*perNode, w.size); rank++ {
			each.add(w.volume(rank))
			union.add(w.blocks[rank])
			union.add(w.seen[rank])
		}
		cached := w.parts.of(union)
		read.add(each)
		once.add(cached)
		n.ReadBytes = max(n.ReadBytes, uint64(each.bytes))
		n.Requests = max(n.Requests, uint64(each.requests+0.999))
		n.CacheBytes = max(n.CacheBytes, uint64(cached.bytes))
	}
	n.Amplification = once.blocks / float64(max(w.parts.blocks(), 1))
	if job.SamplesPerSecond > 0 {
		seconds := float64(samples) / job.SamplesPerSecond
		n.Hours = seconds / 3600
		n.NodeRate, n.StoreRate = float64(n.ReadBytes)/seconds, read.bytes/seconds
		n.RequestRate = read.requests / seconds
	}
	return n
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n uint64) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i uint64) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bitset) set(i uint64)      { b[i/64] |= 1 << (i % 64) }

// add adds the numbers of another set of the same size, or of an empty one.
func (b bitset) add(o bitset) {
	for i, word := range o {
		b[i] |= word
	}
}

func (b bitset) count() (n uint64) {
	for _, word := range b {
		n += uint64(bits.OnesCount64(word))
	}
	return n
}
