package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/tune"
	"github.com/shardtool/shardtool/reader/order"
)

// OnCorrupt says what happens to a block whose damage a second read confirmed.
type OnCorrupt int

const (
	// CorruptFails ends the stream with the error, at the batch that needs the block.
	CorruptFails OnCorrupt = iota
	// CorruptSkips leaves the block's samples out: holes, which move no other sample. Errors that are no proven damage (the
	// store fails, an object was replaced) end the stream all the same.
	CorruptSkips
)

// Errors of streams that a caller branches on.
var (
	// ErrSkipped: more samples were skipped than StreamOptions allow.
	ErrSkipped = errors.New("too many samples skipped")
	// ErrHeld: the consumer holds as many batches as StreamOptions.Hold allows and asks for one more.
	ErrHeld = errors.New("too many batches held")
	// ErrOptions: the options cannot be, or do not fit the data set.
	ErrOptions = errors.New("stream options")
	// ErrFields: the data set lacks a field that StreamOptions.Expect names.
	ErrFields = errors.New("missing fields")
)

// StreamOptions say which samples a stream delivers, in which order, and with what means. The zero value of a field is its
// documented default.
type StreamOptions struct {
	// Shuffle, Seed, ShuffleMemory, WholeShards, Lanes, RunBlocks, Delay, Head, Affinity and Tail choose the order, see
	// order.Choice. Tail defaults to order.DefaultTail(Epochs). With a Checkpoint they are those of the checkpoint, and
	// what is set here is ignored: compare with order.Params.Compare what a user asked for.
	Shuffle                       bool
	Seed                          uint64
	ShuffleMemory                 uint64
	WholeShards                   bool
	Lanes, RunBlocks, Delay, Head uint32
	Affinity                      order.Affinity
	Tail                          order.Tail
	// Epoch is the first epoch; Epochs is how many follow one another, 0 for no end.
	Epoch, Epochs uint64
	// GlobalBatch is the number of samples of a batch over all ranks; default that of the checkpoint, or 256.
	GlobalBatch int
	// Rank and World are the data-parallel rank and their number; World 0 is 1. Tensor, pipeline or context parallel peers
	// have the same rank here: they build the same stream.
	Rank, World int
	// Checkpoint, when not nil, is where to go on.
	Checkpoint *order.Checkpoint
	// Memory bounds, in bytes, what is held of blocks, in hand, decoded ahead and in flight, with what finds samples in them.
	// Default: what the order keeps live for this rank and half as much again to run ahead, at least 64 MiB. With less, blocks
	// are evicted and read again, and the samples of a batch are copied out of blocks when those would fill the budget: slower,
	// never another order. A block larger than Memory is an error that wraps format.ErrTooLarge; a batch larger than Memory, and
	// batches in hand when Hold is set, come on top.
	Memory int64
	// Workers fetch and decode; default Options.Workers.
	Workers int
	// Requests is how many requests of a remote store are kept in flight. Default: what the store sends, and what the autotuning makes
	// of it. One that is set stays; it is at most what the store sends, or can be asked to (objstore.Traits).
	Requests int
	// Depth, when not 0, is how many batches are planned, and their pieces asked for, before the consumer takes them, if Memory allows.
	Depth int
	// NoAutotune leaves Requests and Depth as they are: by default as many requests as the store sends, and as many batches as Memory
	// has room for. Otherwise those of the two that are 0 follow what is measured of the store and of the consumer's step: more while
	// it waits and more helps, fewer where the store asks for less load or the step has no use for them. A store with
	// Reserve (objstore.Traits) may get more requests than it sends by default, out of an eighth of Memory. Order and bytes of batches do not
	// depend on it, nor does Memory.
	NoAutotune bool
	// Hold, when not 0, is how many batches the consumer may hold: each is valid until its Release, and a Next beyond is
	// ErrHeld. With 0 a batch is valid until the next call of Next.
	Hold int
	// Map, when not nil, is called with every sample, from several goroutines, before its batch is delivered; it may
	// replace Fields by others that it allocates, but not write to the bytes they had. An error ends the stream at that batch.
	Map func(ctx context.Context, s *Sample) error
	// Expect are fields that must be in the data set; every sample of it, unless Partial.
	Expect    []string
	OnCorrupt OnCorrupt
	// MaxSkipped is the most samples that CorruptSkips may leave out, over all epochs, those of
	// Skipped included; MaxSkippedShare the same as a share of the data set, default 0.001 when
	// both are zero. A stream counts what its own rank skips. For one answer over all ranks,
	// exchange Stream.Skipped after each step and Merge it, and stop all at that step.
	MaxSkipped      uint64
	MaxSkippedShare float64
	// Skipped is the ledger of an earlier run that this one goes on from: that of all its ranks,
	// see Merge.
	Skipped []SkippedBlock
	// Log, when not nil, takes a line about the order at the start: its parameters, and how well
	// this rank's share is mixed, see package mixing (of large epochs measured in part); warnings
	// where the window is small for the batch, or lanes are fewer than ranks. It takes a line every
	// StatsEvery, and one behind the last: batches and bytes a second, the share of the time that
	// Next waited, and its main causes, see Stalls. StatsEvery defaults to a minute. It also takes
	// a line for each decision of the autotuning, with its reason and what it was measured by.
	Log        *slog.Logger
	StatsEvery time.Duration

	// Tests replace the tuner and its interval.
	tune      func(tune.Measure) []tune.Decision
	tuneEvery time.Duration
}

// optionsError is an ErrOptions that says only what the error below it does.
type optionsError struct{ error }

func (e optionsError) Unwrap() error        { return e.error }
func (e optionsError) Is(target error) bool { return target == ErrOptions }

// End is the epoch to end before, when Epochs is not 0.
func (o *StreamOptions) End() uint64 {
	if o.Epochs > math.MaxUint64-o.Epoch {
		return math.MaxUint64
	}
	return o.Epoch + o.Epochs
}

func (o StreamOptions) filled(d *Dataset) (StreamOptions, error) {
	if o.World == 0 {
		o.World = 1
	}
	if o.Checkpoint != nil && o.GlobalBatch == 0 {
		o.GlobalBatch = o.Checkpoint.GlobalBatch
	}
	if o.GlobalBatch == 0 {
		o.GlobalBatch = 256
	}
	if o.Workers == 0 {
		o.Workers = d.opts.Workers
	}
	if o.StatsEvery == 0 {
		o.StatsEvery = time.Minute
	}
	if o.MaxSkipped == 0 && o.MaxSkippedShare == 0 {
		o.MaxSkippedShare = 0.001
	}
	switch {
	case o.Workers < 0 || o.Workers > maxWorkers:
		return o, fmt.Errorf("reader: %d workers: give 1 to %d, or 0 for one a core", o.Workers, maxWorkers)
	case o.StatsEvery < 0:
		return o, fmt.Errorf("reader: statistics every %v: give a time, or 0 for a minute", o.StatsEvery)
	case o.Requests < 0:
		return o, fmt.Errorf("reader: %d requests in flight: give how many, or 0 for what the store sends", o.Requests)
	case o.Depth < 0:
		return o, fmt.Errorf("reader: depth of %d batches: give how many, or 0 for what the step and the store need", o.Depth)
	case o.Hold < 0:
		return o, fmt.Errorf("reader: hold %d batches: give how many, or 0", o.Hold)
	case o.Memory < 0 || (o.Memory > 0 && o.Memory < minMemory):
		return o, fmt.Errorf("reader: memory budget of %d bytes: give at least %d, or 0 to have it sized by the order", o.Memory, minMemory)
	}
	return o, d.expect(o.Expect)
}

// expect refuses a data set without the named fields.
func (d *Dataset) expect(fields []string) error {
	for _, want := range fields {
		i := slices.IndexFunc(d.tables.Fields, func(f format.FieldTotal) bool { return f.Name == want })
		if i < 0 {
			have := make([]string, len(d.tables.Fields))
			for j := range have {
				have[j] = d.tables.Fields[j].Name
			}
			return fmt.Errorf("reader: %w: %v has no field %q, it has %q", ErrFields, d.Store(), want, have)
		}
		if n := d.tables.Fields[i].Samples; n != d.tables.Samples {
			return fmt.Errorf("reader: %w: field %q is in %d of %d samples of %v", ErrFields, want, n, d.tables.Samples, d.Store())
		}
	}
	return nil
}

// Choice is what the order is chosen by when there is no checkpoint.
func (o *StreamOptions) Choice() order.Choice {
	return order.Choice{
		Seed: o.Seed, Shuffle: o.Shuffle, Memory: o.ShuffleMemory, WholeShards: o.WholeShards, Lanes: o.Lanes, RunBlocks: o.RunBlocks,
		Delay: o.Delay, Head: o.Head, Affinity: o.Affinity, Tail: o.Tail, Epochs: o.Epochs, GlobalBatch: o.GlobalBatch, World: o.World,
	}
}

// LocalWorkers is how many workers one of several local ranks should use: the CPUs this process may use, less one a rank for
// the training step, divided by the ranks; at least 1.
func LocalWorkers(localRanks int) int {
	localRanks = max(localRanks, 1)
	return max(1, (runtime.GOMAXPROCS(0)-localRanks)/localRanks)
}
