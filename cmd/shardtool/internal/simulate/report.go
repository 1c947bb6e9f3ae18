package simulate

import (
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// Options describe the job, and what is walked of its order.
type Options struct {
	Epoch       uint64 // of one data set
	GlobalBatch int
	// Worlds are the world sizes to report.
	Worlds []int
	Job    Job // that reads samples
	// Square is b in the cost of an item of a unit, L + b·L²: the cost of attention, relative to the
	// rest of a step.
	Square float64
	// Steps is the number of global batches of a mix to walk, 0 all of the stream. End, when not 0,
	// ends the walk before the batch that begins at this position or later. LeftOut are positions to
	// skip.
	Steps, End uint64
	LeftOut    []mix.Range
	// Ranks, when not nil, returns the rank of each entry of a global batch for a world size.
	// Otherwise ranks have consecutive entries.
	Ranks func(refs []order.Ref, b *order.Batch, world int) ([]int32, error)
}

// Job describes what a training job needs. A rate of 0 leaves the figures that depend on it at 0.
type Job struct {
	// RanksPerNode is the number of ranks that share a node, its network and its cache; at least 1.
	RanksPerNode int
	// SamplesPerSecond is the rate of all ranks together.
	SamplesPerSecond float64
}

// Report has the figures that Epoch counted.
type Report struct {
	Epoch   uint64 `json:"epoch"`
	Samples uint64 `json:"samples"`
	Batches uint64 `json:"batches"`
	// ExactlyOnce reports that each sample of the data set is delivered once: Repeated and Missing
	// are 0. Padding is not counted as repeated.
	ExactlyOnce bool   `json:"exactly_once"`
	Repeated    uint64 `json:"repeated"`
	Missing     uint64 `json:"missing"`
	Padding     uint64 `json:"padding"`
	Mixing
	Worlds []World `json:"worlds"`
	// Window is the number of runs that samples are drawn from at a time. MixesLittle reports that it
	// is small for the global batch; see order.Params.
	Window uint64 `json:"window"`
	// Verdict is the verdict on the worst variance inflation, of batches or of a rank's part of them.
	Verdict uniformity.Verdict `json:"-"`
	// Weighted reports that the samples are drawn by a view, some several times.
	Weighted    bool `json:"-"`
	MixesLittle bool `json:"mixes_little"`
}

// Mixing are the figures of package uniformity for global batches.
type Mixing struct {
	Labels    int       `json:"labels"`
	VIF       float64   `json:"vif"`
	Pooled    float64   `json:"vif_accumulated"`
	First     []float64 `json:"vif_first_batches"`
	Adjacency float64   `json:"adjacency"`
	Expected  float64   `json:"adjacency_expected"`
}

// World describes what the ranks of one world size get.
type World struct {
	Reading
	// The figures of uniformity.World.
	LocalVIF    float64 `json:"local_vif"`
	LabelsLeast int     `json:"labels_per_rank_least"`
	LabelsMean  float64 `json:"labels_per_rank_mean"`
	SameBlock   float64 `json:"same_block"`
	Measured    int     `json:"ranks_measured"`
}

// Reading describes what the ranks of one world size read.
type Reading struct {
	Size  int    `json:"world_size"`
	Steps uint64 `json:"steps"`
	// Least and Most are the fewest and the most samples of a rank.
	Least uint64 `json:"samples_least"`
	Most  uint64 `json:"samples_most"`
	// Blocks is the largest number of blocks that a rank reads. Amplification is the number of blocks
	// that all ranks read, divided by the number of blocks of the data set.
	Blocks        uint64  `json:"blocks_per_rank"`
	Amplification float64 `json:"read_amplification"`
	Needs         Needs   `json:"needs"`
}

// Needs describes what an epoch asks of the nodes and of the store. Figures per node are for the
// node that needs most. They hold for ranks that read each block once, as streams with the default
// memory do, and count every block with the mean size.
type Needs struct {
	Nodes int `json:"nodes"`
	// ReadBytes and Requests are sums over the ranks of a node without a cache. CacheBytes is the size
	// of a cache that lets the node read each block once.
	ReadBytes  uint64 `json:"read_bytes_per_node"`
	Requests   uint64 `json:"requests_per_node"`
	CacheBytes uint64 `json:"cache_bytes_per_node"`
	// Amplification is the number of blocks that all nodes read, each once per node, divided by the
	// number of blocks of the data set.
	Amplification float64 `json:"node_read_amplification"`
	// First and Resume are the bytes that a rank must have before its first batch: at the beginning
	// and in the middle of the epoch.
	First  uint64 `json:"first_batch_bytes"`
	Resume uint64 `json:"resume_bytes"`
	// These hold at the rate of the Job: per node, and for all nodes together.
	NodeRate    float64 `json:"node_bytes_per_second,omitempty"`
	StoreRate   float64 `json:"store_bytes_per_second,omitempty"`
	RequestRate float64 `json:"store_requests_per_second,omitempty"`
	Hours       float64 `json:"hours_per_epoch,omitempty"`
}

// Source describes a data set, alone or in a mix: the number of its blocks, their stored bytes, and
// the labels of its samples. Labels are nil if a source of a mix has no data set.
type Source struct {
	Blocks, Bytes uint64
	Labels        *uniformity.Labels
}

// SourceReport describes what a source gave.
type SourceReport struct {
	Name    string `json:"name"`
	Samples uint64 `json:"samples"`
	// Share is the source's share of the samples. Epochs is Samples divided by the samples of the
	// source.
	Share  float64 `json:"share"`
	Epochs float64 `json:"epochs"`
	// Repeated counts samples that an epoch of the source had twice. Missing counts samples that an
	// epoch did not have when it ended.
	Repeated uint64 `json:"repeated"`
	Missing  uint64 `json:"missing"`
	// The figures of package uniformity for the source's part of global batches.
	Mixing
	// ReadBytes is the number of bytes that all ranks of the first world size read of the source.
	ReadBytes uint64 `json:"read_bytes"`
}

func mixingOf(f uniformity.Figures, labels int) Mixing {
	return Mixing{
		Labels: labels, VIF: f.VIF, Pooled: f.Pooled, Adjacency: f.Adjacent, Expected: f.Expected,
		First: append([]float64{}, f.First...), // in JSON an empty list rather than null
	}
}

// mixed fills in the figures of mixing.
func (r *Report) mixed(f uniformity.Figures, labels int) {
	r.Mixing = mixingOf(f, labels)
	for i, of := range f.Worlds {
		w := &r.Worlds[i]
		w.LocalVIF, w.LabelsLeast, w.LabelsMean, w.SameBlock, w.Measured = of.VIF, of.LabelsLeast, of.LabelsMean,
			of.SameBlock, of.Ranks
	}
}
