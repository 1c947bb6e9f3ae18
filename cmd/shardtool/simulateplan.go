package main

import (
	"fmt"
	"io"
	"math/bits"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// needFlags say what a job wants, and what it costs.
type needFlags struct {
	perNode   int
	rate      float64
	tokens    float64
	price     float64
	getPrice  float64
	tokenRate float64
}

func (f *needFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.perNode, "ranks-per-node", 8, "ranks that share a node, its network and its cache")
	fl.Float64Var(&f.rate, "samples-per-second", 0, "what all ranks together train on: says what the store must give")
	fl.Float64Var(&f.tokenRate, "tokens-per-second", 0, "the same in tokens; with --tokens-per-sample")
	fl.Float64Var(&f.tokens, "tokens-per-sample", 0, "tokens of a sample, for --tokens-per-second")
	fl.Float64Var(&f.price, "price", 0, "of a node and hour: says what an epoch costs")
	fl.Float64Var(&f.getPrice, "get-price", 0, "of a thousand requests to the store")
}

// fill checks the flags, and turns tokens into samples.
func (f *needFlags) fill() error {
	switch {
	case f.perNode < 1:
		return usagef("--ranks-per-node %d: give 1 or more", f.perNode)
	case f.rate < 0 || f.tokenRate < 0 || f.tokens < 0 || f.price < 0 || f.getPrice < 0:
		return usagef("rates and prices: give numbers of 0 or more")
	case f.tokenRate > 0 && f.rate > 0:
		return usagef("--samples-per-second and --tokens-per-second: give one of them")
	case (f.tokenRate > 0) != (f.tokens > 0):
		return usagef("--tokens-per-second and --tokens-per-sample: give both")
	case f.price > 0 && f.rate == 0 && f.tokenRate == 0:
		return usagef("--price: give --samples-per-second or --tokens-per-second too, which say how long an epoch takes")
	}
	if f.tokenRate > 0 {
		f.rate = f.tokenRate / f.tokens
	}
	return nil
}

// needs is what a world size asks of nodes and store, an epoch; of a node the one that needs most. Figures are for ranks that read
// each block they use once: what StreamOptions.Memory lets them do by default.
type needs struct {
	Nodes int `json:"nodes"`
	// ReadBytes and Requests are those of all ranks of a node without a cache; CacheBytes holds what they read, once.
	ReadBytes  uint64 `json:"read_bytes_per_node"`
	Requests   uint64 `json:"requests_per_node"`
	CacheBytes uint64 `json:"cache_bytes_per_node"`
	// Amplification is what all nodes read together, each block once a node, over what the data set
	// holds.
	Amplification float64 `json:"node_read_amplification"`
	// First and Resume are what a rank must have before its first batch: at the beginning, and in the middle of the epoch.
	First  uint64 `json:"first_batch_bytes"`
	Resume uint64 `json:"resume_bytes"`
	// At the rate wanted: of a node, and of all nodes together.
	NodeRate    float64 `json:"node_bytes_per_second,omitempty"`
	StoreRate   float64 `json:"store_bytes_per_second,omitempty"`
	RequestRate float64 `json:"store_requests_per_second,omitempty"`
	Hours       float64 `json:"hours_per_epoch,omitempty"`
	Cost        float64 `json:"cost_per_epoch,omitempty"`

	first, resume uint64 // blocks
}

// popcount counts bits.
func popcount(words []uint64) (n uint64) {
	for _, w := range words {
		n += uint64(bits.OnesCount64(w))
	}
	return n
}

// firstBatch notes how many blocks the first batch of a rank needs, at most.
func (w *worldJSON) firstBatch() {
	for _, of := range w.blocks {
		w.Needs.first = max(w.Needs.first, popcount(of))
	}
}

// resumeBatch does the same for a batch in the middle, whose refs these are.
func (w *worldJSON) resumeBatch(refs []order.Ref, global int) {
	own := map[uint32]bool{}
	last := 0
	flush := func() {
		w.Needs.resume = max(w.Needs.resume, uint64(len(own)))
		clear(own)
	}
	for i := range refs {
		rank := ((i+1)*w.World - 1) / global
		if rank != last {
			flush()
			last = rank
		}
		if !refs[i].Padding {
			own[refs[i].Block] = true
		}
	}
	flush()
}

// plan says what the epoch asks of nodes and store. The data set's blocks count with their mean.
func (s *simulation) plan(ds *reader.Dataset, p order.Params, f *needFlags) {
	s.bytes = ds.Bytes()
	block := float64(ds.Bytes()) / float64(max(ds.NumBlocks(), 1))
	run := 8.0 // blocks that are read together where nothing is shuffled
	if p.Shuffle {
		run = min(run, float64(p.RunBlocks))
		if p.RunBlocks == 0 {
			run = 8
		}
	}
	for i := range s.Worlds {
		w := &s.Worlds[i]
		n := &w.Needs
		n.Nodes = (w.World + f.perNode - 1) / f.perNode
		allBlocks, nodeBlocks := uint64(0), uint64(0)
		for node := range n.Nodes {
			ranks := w.blocks[node*f.perNode : min((node+1)*f.perNode, w.World)]
			union := make([]uint64, len(ranks[0]))
			each := uint64(0)
			for _, r := range ranks {
				each += popcount(r)
				for k, word := range r {
					union[k] |= word
				}
			}
			allBlocks += each
			n.ReadBytes = max(n.ReadBytes, uint64(float64(each)*block))
			n.Requests = max(n.Requests, uint64(float64(each)/run+0.999))
			once := popcount(union)
			nodeBlocks += once
			n.CacheBytes = max(n.CacheBytes, uint64(float64(once)*block))
		}
		n.Amplification = float64(nodeBlocks) / float64(max(ds.NumBlocks(), 1))
		n.First, n.Resume = uint64(float64(n.first)*block), uint64(float64(n.resume)*block)
		if f.getPrice > 0 {
			n.Cost = float64(allBlocks) / run / 1000 * f.getPrice
		}
		if f.rate == 0 {
			continue
		}
		seconds := float64(s.Samples) / f.rate
		n.Hours = seconds / 3600
		n.NodeRate, n.StoreRate = float64(n.ReadBytes)/seconds, float64(allBlocks)*block/seconds
		n.RequestRate = float64(allBlocks) / run / seconds
		n.Cost += n.Hours * float64(n.Nodes) * f.price
	}
}

// printPlan prints what nodes and store must give.
func (s *simulation) printPlan(out io.Writer, p order.Params, f *needFlags) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\nRANKS\tNODES\tREAD A NODE\tREQUESTS\tCACHE A NODE\tFIRST BATCH\tAFTER A RESUME\t")
	if f.rate > 0 {
		fmt.Fprint(t, "A NODE\tTHE STORE\tREQUESTS/S\tAN EPOCH\t")
	}
	priced := f.price > 0 || f.getPrice > 0
	if priced {
		fmt.Fprint(t, "COST\t")
	}
	fmt.Fprintln(t)
	for i := range s.Worlds {
		n := &s.Worlds[i].Needs
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t", s.Worlds[i].World, n.Nodes, bytesText(n.ReadBytes), countText(n.Requests),
			bytesText(n.CacheBytes), bytesText(n.First), bytesText(n.Resume))
		if f.rate > 0 {
			fmt.Fprintf(t, "%.3g MB/s\t%.3g MB/s\t%.3g\t%s\t", n.NodeRate/1e6, n.StoreRate/1e6, n.RequestRate, hoursText(n.Hours))
		}
		if priced {
			fmt.Fprintf(t, "%.2f\t", n.Cost)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range s.Worlds {
		n := &s.Worlds[i].Needs
		if uint64(n.Nodes) > uint64(p.Lanes) {
			fmt.Fprintf(out, "%d nodes share %d lanes: with a cache in each node they still read %.1f times what the data set holds, %s more than once; "+
				"more --shuffle-memory gives more lanes, up to %d, and --lanes any number\n", n.Nodes, p.Lanes, n.Amplification,
				bytesText(uint64(max(n.Amplification-1, 0)*float64(s.bytes))), order.DefaultLanes)
		}
	}
	_, err := fmt.Fprintln(out, "read and requests: an epoch without a cache; cache: what keeps a node from reading it again, with --affinity run in every epoch;\n"+
		"first batch, after a resume: what a rank must have before it can begin; one S3 prefix gives some 5,500 requests/s")
	return err
}

func hoursText(h float64) string {
	switch {
	case h < 1.0/60:
		return fmt.Sprintf("%.1f s", h*3600)
	case h < 1:
		return fmt.Sprintf("%.1f min", h*60)
	}
	return fmt.Sprintf("%.1f h", h)
}
