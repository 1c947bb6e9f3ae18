package reader

import (
	"cmp"
	"log/slog"

	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Spec is what a user asks for: what a run reads, and in which order.
type Spec struct {
	// Order chooses the order. GlobalBatch 0 is that of the checkpoint, or 256. With a checkpoint the
	// order is that of the checkpoint; where Said names an option, it must agree.
	Order order.Choice
	// Units makes positions hold units in place of samples, where its Kind is set: packed sequences, or
	// micro-batches of samples of similar length. By names the integer attribute with the lengths; Long
	// defaults to units.LongError, and a Window of 0 is chosen. GlobalBatch then counts units.
	Units units.Params
	// Epoch is the first epoch. Order.Epochs is the number of epochs; 0 means no end.
	Epoch uint64
	// Begin, when not nil, moves the place of a checkpoint to the beginning of this epoch.
	Begin *uint64
	// Said are the names of the options that the user gave, as order.OptionError has them, with
	// "shuffle", "seed", "epoch", "by", "long" and "unit-window".
	Said map[string]bool
}

// globalBatch is the batch size: the one asked for, that of the checkpoint, or 256.
func (s *Spec) globalBatch(from *Checkpoint) int {
	of := 0
	if from != nil {
		of = from.GlobalBatch()
	}
	return cmp.Or(s.Order.GlobalBatch, of, 256)
}

// End returns the epoch to end before; 0: none.
func (s *Spec) End() uint64 {
	if s.Order.Epochs == 0 {
		return 0
	}
	if s.Order.Epochs > 1<<64-1-s.Epoch {
		return 1<<64 - 1
	}
	return s.Epoch + s.Order.Epochs
}

// Planning says how units are planned.
type Planning struct {
	// Folder keeps the plans of epochs and the lengths of samples, so that the next start finds them
	// there; "" keeps none. What cannot be kept or read there is made anew.
	Folder string
	// Log, when not nil, takes a warning where a plan cannot be kept.
	Log *slog.Logger
	// Progress, when not nil, returns what is called while epochs of a source are planned, from several
	// goroutines: with the epoch, and how many of its samples have been planned.
	Progress func(source string) func(epoch, done, of uint64)
}

// of are the options for a source, whose planning ends before an epoch unless that is 0.
func (p *Planning) of(source string, until uint64) unitplan.Options {
	o := unitplan.Options{Folder: p.Folder, Log: p.Log, Until: until}
	if p.Progress != nil {
		o.Progress = p.Progress(source)
	}
	return o
}
