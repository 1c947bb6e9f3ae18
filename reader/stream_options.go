package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/internal/tune"
	"github.com/shardtool/shardtool/reader/order"
)

// Errors of streams that a caller branches on.
var (
	// ErrHeld is returned if the consumer holds as many batches as StreamOptions.Hold allows and asks
	// for one more.
	ErrHeld = errors.New("too many batches held")
	// ErrOptions is returned if options are invalid, or do not fit the data set.
	ErrOptions = errors.New("stream options")
)

// StreamOptions configures a stream. The zero value of a field is its documented default.
type StreamOptions struct {
	// Shuffle, Seed and Tail choose the order, with Order, see order.Choice. Tail defaults to
	// order.DefaultTail(Epochs). With a Checkpoint, the checkpoint decides them and the values here
	// are ignored: use order.Params.Compare to find out whether they differ.
	Shuffle bool
	Seed    uint64
	Tail    order.Tail
	// Epoch is the first epoch, Epochs the number of epochs; 0 means no end.
	Epoch, Epochs uint64
	// GlobalBatch is the number of samples of a batch over all ranks. Default: the checkpoint's, or
	// 256.
	GlobalBatch int
	// Rank and World are the data-parallel rank and the number of ranks; World 0 means 1. Tensor,
	// pipeline or context parallel peers have the same rank: they build the same stream.
	Rank, World int
	// Checkpoint, when not nil, is where the stream continues.
	Checkpoint *Checkpoint
	// Units makes the positions of the stream hold units in place of samples, where its Kind is set:
	// packed sequences, or micro-batches of samples of similar length. By names the integer attribute
	// with the lengths; Long defaults to units.LongError, and Window is chosen. GlobalBatch then
	// counts units. With a Checkpoint, the checkpoint decides them, and the rest here is ignored.
	Units units.Params
	// Cost, when not empty, is what a sample costs: an arithmetic expression over integer attributes,
	// such as "tokens + 0.35 * patches" (ORDER.md, "Costs"). It decides which rank gets which entries
	// of a global batch, so that the parts of all ranks cost nearly the same, and nothing else:
	// places and checkpoints are as without it. With Units, a unit costs the sum of its samples, and
	// the attribute By has the length of a piece. All ranks must give the same Cost, CostGroup and
	// attributes: compare StreamInfo.CostHash. A rank then reads, and holds in memory, the blocks of
	// its group, and 8 bytes a sample of the data set.
	//
	// CostGroup is how many consecutive ranks exchange entries, a divisor of World; 0 means all. The
	// ranks of a host, that share a cache, are a good choice.
	//
	// MicroBatches is how many parts a training loop divides a batch of a rank into, to add up their
	// gradients; 0 means 1. A rank gets the same entries then, and has them micro-batch by micro-batch,
	// so that these cost nearly the same, too: see Batch.MicroBatch. More than one need a Cost, and a
	// GlobalBatch that has an entry for each.
	Cost         string
	CostGroup    int
	MicroBatches int
	// Expect names fields that every sample must have. One with a question mark, as in "caption?", may
	// be missing. The sources of a mix must have the same fields, except for fields with a question
	// mark.
	Expect []string
	// Map, when not nil, is called with every sample, from several goroutines, before its batch is
	// delivered. It may replace Fields by others that it allocates, but not write to the bytes they
	// had. An error ends the stream at that batch.
	Map func(ctx context.Context, s *Sample) error
	// Rows makes batches of stacked data deliver arrays instead of samples: see Batch.Rows. All shards
	// of all sources must be stacked and have the same fields, otherwise the error wraps ErrFields. It
	// excludes Map and Units.
	Rows bool
	// Shards, when not zero, are the number of the first shard to read and the number after the last.
	// The stream delivers their samples in storage order, once, and a batch ends where a shard does.
	// It is for one rank of one data set without Shuffle, Units and weights.
	Shards [2]int
	// Hold, when not 0, is how many batches the consumer may hold: each is valid until its Release,
	// and a Next beyond the limit returns ErrHeld. With 0 a batch is valid until the next call of
	// Next.
	Hold int

	// Log, when not nil, gets a line about the order at the start: its parameters, and how well this
	// rank's share is mixed (package uniformity; large epochs are measured in part). It gets a warning
	// if the window is small for the batch, or lanes are fewer than ranks. It gets a line every
	// StatsEvery, default a minute, and one after the last batch: batches and bytes per second, the
	// share of the time that Next waited, and its main causes, see Stalls. It also gets a line for
	// each decision of the autotuning, with the reason and the measurements.
	Log        *slog.Logger
	StatsEvery time.Duration

	Order  OrderOptions
	Tuning Tuning
	Faults Faults

	costs *costs // of the run; nil: none
}

// OrderOptions say how an order is chosen, see order.Choice. With a Checkpoint, the checkpoint
// decides it.
type OrderOptions struct {
	ShuffleMemory uint64 // bytes
	// Host chooses for ranks that share what they hold (Tuning.Share): a data set that fits
	// ShuffleMemory is held whole.
	Host                          bool
	WholeShards                   bool
	Lanes, RunBlocks, Delay, Head uint32
	Affinity                      order.Affinity
}

// Tuning says how a stream reads. It changes neither the samples nor their order.
type Tuning struct {
	// Memory bounds, in bytes, the blocks in hand, decoded ahead and in flight, with the tables that
	// find samples in them. Where samples are small, only their keys and fields count, because the
	// headers between them are not kept. Default: the blocks that the order keeps live for this rank
	// and half as much again to run ahead, or twice the blocks that a batch draws from if that is
	// more; all of a data set that the order holds whole (order.Choose); at least 64 MiB. A stream
	// whose memory holds all data reads each block once for all epochs. With less, blocks are evicted
	// and read again, and the samples of a batch are copied out of blocks when those would fill the
	// budget: slower, but the same order. A block larger than Memory is an error that wraps
	// format.ErrTooLarge. A batch larger than Memory, and batches in hand when Hold is set, come on
	// top.
	Memory int64
	// Workers is how many goroutines fetch and decode. Default: Options.Workers.
	Workers int
	// Share makes the stream share the blocks of a data set that its order holds whole with the other
	// streams of the same Dataset that have Share: each block is read once for all of them, and stays
	// in memory until the Dataset is closed. Those blocks come on top of Memory.
	Share bool
	// Spare is how many more workers decode while Next waits, because a loop that waits leaves a
	// processor idle and one that computes does not. See also Stream.Waits.
	Spare int
	// Requests is how many requests of a remote store are kept in flight; at most what the store
	// sends, or can be asked to send. Default: what the store sends, adjusted by autotuning.
	Requests int
	// Depth is how many batches are planned, and their blocks asked for, before the consumer takes
	// them, if Memory allows. Default: autotuned.
	Depth int
	// NoAutotune keeps the defaults of Requests and Depth: as many requests as the store sends, and as
	// many batches as Memory has room for. Otherwise, each of the two that is 0 follows measurements
	// of the store and of the consumer's step: more while the consumer waits and more helps, fewer if
	// the store asks for less load or the step needs fewer. A store may then get more requests than it
	// sends by default, out of an eighth of Memory.
	NoAutotune bool
	// RowsIf, when not nil, chooses between rows and samples when a stream with Rows opens. It gets
	// the fields that StreamInfo.Rows would have. If it returns false, or the data has no rows,
	// batches have Samples.
	RowsIf func(fields []RowField) bool
	// Plans is a folder for the plans of epochs of units and the lengths of samples, so that the next
	// start finds them there. "" keeps none. Files that cannot be kept or read there are made anew.
	Plans string

	// Tests replace the tuner and its interval.
	tune      func(tune.Measure) []tune.Decision
	tuneEvery time.Duration
}

// Faults is how much damage a stream accepts.
type Faults struct {
	// SkipCorrupt leaves out the samples of a block whose damage a second read confirmed. They are
	// holes, which move no other sample. Other errors (the store fails, an object was replaced) still
	// end the stream. Default: the damage ends it, at the batch that needs the block.
	SkipCorrupt bool
	// MaxSkipped is the most samples that SkipCorrupt may leave out, over all epochs, including the
	// samples of Skipped. MaxSkippedShare is the same as a share of the data set, default 0.001 if
	// both are zero. A stream with more ends with an error that wraps ledger.ErrFull. It counts what
	// its own rank skips. For one answer over all ranks, exchange Stream.Skipped after each step,
	// merge it (ledger.Merge), and stop all ranks at that step.
	MaxSkipped      uint64
	MaxSkippedShare float64
	// Skipped is the ledger of an earlier run that this one continues, of all its ranks, see
	// ledger.Merge.
	Skipped []ledger.Block
}

// optionsError is an ErrOptions with the text of the error that it wraps.
type optionsError struct{ error }

func (e optionsError) Unwrap() error        { return e.error }
func (e optionsError) Is(target error) bool { return target == ErrOptions }

// asOptions makes an error an ErrOptions.
func asOptions(err error) error {
	if err == nil {
		return nil
	}
	return optionsError{err}
}

// mostSkipped returns how many samples SkipCorrupt may leave out.
func (o *StreamOptions) mostSkipped(in []*input) uint64 {
	if o.Faults.MaxSkippedShare > 0 {
		return uint64(o.Faults.MaxSkippedShare * float64(samples(in)))
	}
	return o.Faults.MaxSkipped
}

// End returns the epoch to end before; 0: none.
func (o *StreamOptions) End() uint64 { return endOf(o.Epoch, o.Epochs) }

// allRemoved reports whether the inputs have samples, of their views if they have one, and all were
// removed.
func allRemoved(in []*input) bool {
	some := false
	for _, x := range in {
		if x.Dataset == nil || x.share == 0 {
			continue
		}
		left := x.selection.Distinct()
		some = some || left > 0
		for _, number := range x.tables.Removed {
			if x.selection.Has(number) {
				left--
			}
		}
		if left > 0 {
			return false
		}
	}
	return some
}

func (o StreamOptions) filled(in []*input) (StreamOptions, error) {
	o.World, o.StatsEvery = cmp.Or(o.World, 1), cmp.Or(o.StatsEvery, time.Minute)
	if o.Tuning.Workers == 0 {
		for _, x := range in {
			if x.Dataset != nil {
				o.Tuning.Workers = max(o.Tuning.Workers, x.opts.Workers)
			}
		}
	}
	if o.Faults.MaxSkipped == 0 && o.Faults.MaxSkippedShare == 0 {
		o.Faults.MaxSkippedShare = 0.001
	}
	switch {
	case o.Tuning.Workers < 0 || o.Tuning.Workers > maxWorkers || o.Tuning.Spare < 0 || o.Tuning.Spare > maxWorkers:
		return o, fmt.Errorf("%d workers and %d spare ones: give 1 to %d, or 0 for one a core and none",
			o.Tuning.Workers, o.Tuning.Spare, maxWorkers)
	case o.StatsEvery < 0:
		return o, fmt.Errorf("statistics every %v: give a time, or 0 for a minute", o.StatsEvery)
	case o.Tuning.Requests < 0:
		return o, fmt.Errorf("%d requests in flight: give how many, or 0 for what the store sends", o.Tuning.Requests)
	case o.Tuning.Depth < 0:
		return o, fmt.Errorf("depth of %d batches: give how many, or 0 for what the step and the store need",
			o.Tuning.Depth)
	case o.Hold < 0:
		return o, fmt.Errorf("hold %d batches: give how many, or 0", o.Hold)
	case o.Tuning.Memory < 0 || (o.Tuning.Memory > 0 && o.Tuning.Memory < minMemory):
		return o, fmt.Errorf("memory budget of %d bytes: give at least %d, or 0 to have it sized by the order",
			o.Tuning.Memory, minMemory)
	}
	return o, expect(in, o.Expect)
}

// Choice returns the order.Choice that decides the order without a checkpoint.
func (o *StreamOptions) Choice() order.Choice {
	return order.Choice{
		Seed: o.Seed, Shuffle: o.Shuffle, Memory: o.Order.ShuffleMemory, Host: o.Order.Host, WholeShards: o.Order.WholeShards,
		Lanes: o.Order.Lanes, RunBlocks: o.Order.RunBlocks,
		Delay: o.Order.Delay, Head: o.Order.Head, Affinity: o.Order.Affinity, Tail: o.Tail, Epochs: o.Epochs,
		GlobalBatch: o.GlobalBatch, World: max(o.World, 1),
	}
}

// spec returns the run that the options ask for, and how it plans units.
func (o *StreamOptions) spec() (Spec, Planning) {
	return Spec{Order: o.Choice(), Units: o.Units, Epoch: o.Epoch, Cost: o.Cost,
		CostGroup: o.CostGroup, MicroBatches: o.MicroBatches}, Planning{Folder: o.Tuning.Plans, Log: o.Log}
}
