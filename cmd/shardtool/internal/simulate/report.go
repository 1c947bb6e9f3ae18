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

// Report has the figures that Epoch counted. ExactlyOnce reports that each sample of the data set
// is delivered once: Repeated and Missing are 0. Padding is not counted as repeated.
type Report struct {
	Epoch       uint64 `json:"epoch"`
	Samples     uint64 `json:"samples"`
	Batches     uint64 `json:"batches"`
	ExactlyOnce bool   `json:"exactly_once"`
	Repeated    uint64 `json:"repeated"`
	Missing     uint64 `json:"missing"`
	Padding     uint64 `json:"padding"`
	Mixing
	Worlds []World `json:"worlds"`
	Window uint64  `json:"window"` // blocks or runs drawn from at a time

	// Verdict is the verdict on the worst variance inflation, of batches or of a rank's part of them.
	Verdict uniformity.Verdict `json:"-"`
	// Weighted reports that the samples are drawn by a view, some several times.
	Weighted bool `json:"-"`

	MixesLittle bool `json:"mixes_little"` // the window is below 1.5 global batches
}

// Mixing is how well global batches are mixed. The figures are of package uniformity.
type Mixing struct {
	Labels int `json:"labels"` // their number
	// The [variance inflation](training-loop.md#how-well-it-mixes).
	VIF    float64   `json:"vif"`
	Pooled float64   `json:"vif_accumulated"` // of 16 batches together
	First  []float64 `json:"vif_first_batches"`

	Adjacency float64 `json:"adjacency"`          // how often two samples in a row have one label
	Expected  float64 `json:"adjacency_expected"` // of a uniform permutation
}

// World describes what the ranks of one world size get.
type World struct {
	Reading
	// As for `doctor`, of all ranks or of 256. The figures are of uniformity.World.
	LocalVIF    float64 `json:"local_vif"`
	LabelsLeast int     `json:"labels_per_rank_least"`
	LabelsMean  float64 `json:"labels_per_rank_mean"`
	SameBlock   float64 `json:"same_block"`
	Measured    int     `json:"ranks_measured"`
}

// Reading is what a number of ranks read.
type Reading struct {
	Size          int     `json:"world_size"`
	Steps         uint64  `json:"steps"`
	Least         uint64  `json:"samples_least"` // of a rank
	Most          uint64  `json:"samples_most"`
	Blocks        uint64  `json:"blocks_per_rank"`    // at most
	Amplification float64 `json:"read_amplification"` // blocks that all ranks read over blocks of the data
	Needs         Needs   `json:"needs"`
}

// Needs describes what an epoch asks of the nodes and of the store. Figures per node are for the
// node that needs most. They hold for ranks that read each block once, as streams with the default
// memory do, and count every block with the mean size. Amplification is the number of blocks that
// all nodes read, each once per node, divided by the number of blocks of the data set.
type Needs struct {
	Nodes int `json:"nodes"`
	// What a node reads in an epoch without a cache. It is the sum over its ranks.
	ReadBytes uint64 `json:"read_bytes_per_node"`
	Requests  uint64 `json:"requests_per_node"`
	// What a cache must hold to read it once.
	CacheBytes uint64 `json:"cache_bytes_per_node"`

	Amplification float64 `json:"node_read_amplification"`
	// What a rank must have before its first batch, and before a later one. A later one is in the
	// middle of the epoch.
	First  uint64 `json:"first_batch_bytes"`
	Resume uint64 `json:"resume_bytes"`
	// With a rate. These are per node, and for all nodes together.
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

// SourceReport describes what a source gave. Share is its share of the samples, and Epochs is
// Samples divided by the samples of the source. Repeated counts samples that an epoch of the source
// had twice, and Missing samples that an epoch did not have when it ended. Mixing is of the
// source's part of global batches, and ReadBytes what all ranks of the first world size read.
type SourceReport struct {
	Name     string  `json:"name"`
	Samples  uint64  `json:"samples"`
	Share    float64 `json:"share"`
	Epochs   float64 `json:"epochs"`
	Repeated uint64  `json:"repeated"`
	Missing  uint64  `json:"missing"`
	Mixing
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
