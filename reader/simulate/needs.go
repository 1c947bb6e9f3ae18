package simulate

import "github.com/shardtool/shardtool/reader/order"

// together is the number of blocks that a stream reads with one request where the order allows it.
const together = 8

// needs computes what an epoch asks of the nodes and of the store.
func (w *world) needs(samples uint64, p order.Params, o Options) Needs {
	perNode := max(o.Job.RanksPerNode, 1)
	block := float64(o.Bytes) / float64(max(o.Blocks, 1))
	run := float64(together) // blocks per request
	if p.Shuffle && p.RunBlocks > 0 {
		run = min(run, float64(p.RunBlocks))
	}
	n := Needs{
		Nodes: (w.size + perNode - 1) / perNode, First: uint64(float64(w.first) * block), Resume: uint64(float64(w.resume) * block),
	}
	read, once := uint64(0), uint64(0) // blocks of all ranks, and of all nodes with each block once per node
	for node := range n.Nodes {
		union, each := newBitset(o.Blocks), uint64(0)
		for _, of := range w.blocks[node*perNode : min((node+1)*perNode, w.size)] {
			each += of.count()
			union.add(of)
		}
		read, once = read+each, once+union.count()
		n.ReadBytes = max(n.ReadBytes, uint64(float64(each)*block))
		n.Requests = max(n.Requests, uint64(float64(each)/run+0.999))
		n.CacheBytes = max(n.CacheBytes, uint64(float64(union.count())*block))
	}
	n.Amplification = float64(once) / float64(max(o.Blocks, 1))
	n.Cost = float64(read) / run / 1000 * o.Job.RequestPrice
	if o.Job.SamplesPerSecond > 0 {
		seconds := float64(samples) / o.Job.SamplesPerSecond
		n.Hours = seconds / 3600
		n.NodeRate, n.StoreRate = float64(n.ReadBytes)/seconds, float64(read)*block/seconds
		n.RequestRate = float64(read) / run / seconds
		n.Cost += n.Hours * float64(n.Nodes) * o.Job.NodePrice
	}
	return n
}
