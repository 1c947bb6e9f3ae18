package reader

import (
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// StreamInfo describes what a stream reads, and in which order: its options with their defaults, or
// the values of its checkpoint.
type StreamInfo struct {
	// Sources are the data sets of a mix by the numbers in its plan, nil for one that was removed. A
	// data set that is read alone is source 0.
	Sources []*Dataset
	// Names are the names of the sources; "" for one data set.
	Names []string
	// Plans are the orders of the samples of the sources with their frozen parameters, nil for one
	// that was removed.
	Plans []*order.Plan
	// Steps numbers the batches of a mix, and LeftOut are the positions that its run leaves out.
	Steps   mix.Steps
	LeftOut []mix.Range
	// Changed is how the mix differs from the checkpoint that its run continues.
	Changed []mix.Difference
	// GlobalBatch is the size of a batch over all ranks, and Tail what happens to the last one of an
	// epoch.
	GlobalBatch int
	Tail        order.Tail
	// Holds is what a position counts: "sample" or "unit".
	Holds string
	// Units are the parameters of the units, without a Kind if positions hold samples. For a mix they
	// have only the kind and the size, which all sources share; the sources have their own Window,
	// attribute and policy.
	Units units.Params
	// Lengths counts what units of an epoch have of the samples, and what the policy for long samples
	// cuts off and leaves out. For a mix it counts an epoch of each source.
	Lengths units.Summary
	// Cost, CostGroup and MicroBatches are those of the run, and CostHash is a hash of what all samples
	// cost: ranks must have the same. They are empty without a cost.
	Cost         string
	CostGroup    int
	MicroBatches int
	CostHash     string
	// Rows describes the arrays of Batch.Rows, in ascending order of names; nil where batches have
	// samples.
	Rows []RowField
	// Memory is the budget in bytes.
	Memory int64
}
