package reader

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Spec says what a user asks for: what a run reads, and in which order. Package mixfile reads one
// from a mix file.
type Spec struct {
	// Name is the name of the mix file, for errors.
	Name string
	// Sources is one source without a name, a data set that is read alone, or the sources of a mix, in
	// ascending order of names.
	Sources []SourceSpec
	// Segments have the shares of a mix from later positions on, in ascending order of At.
	Segments []Segment
	// Temperature is p/q, the exponent of the sizes of sources, which then have no Share; nil: none.
	Temperature *[2]int
	// Count names the integer attribute whose sum shares count, such as tokens; empty: they count
	// samples.
	Count string
	// Length is the length of an epoch of a mix.
	Length Length

	// Order chooses the order. A GlobalBatch of 0 means the checkpoint's, or 256. With a checkpoint,
	// the checkpoint decides the order; options that Said names must agree with it.
	Order order.Choice
	// Units makes positions hold units in place of samples, where its Kind is set: packed
	// sequences, or micro-batches of samples of similar length. By names the integer attribute with
	// the lengths; Long defaults to units.LongError, and a Window of 0 is chosen. GlobalBatch then
	// counts units.
	Units units.Params
	// Cost, CostGroup and MicroBatches are as in StreamOptions.
	Cost         string
	CostGroup    int
	MicroBatches int
	// Epoch is the first epoch. Order.Epochs is the number of epochs; 0 means no end.
	Epoch uint64
	// Said are the names of the options that the user gave, as order.OptionError has them, with
	// "shuffle", "seed", "epoch", "by", "long" and "unit-window".
	Said map[string]bool
}

// SourceSpec describes a data set that a run reads.
type SourceSpec struct {
	Name string // in a mix: 1 to 32 of the characters a-z, 0-9, '.', '_' and '-'
	Line int    // of the mix file, for errors; 0: none
	// Set is the data set, or Data says where it is, for the function given to OpenSources.
	Set  *Dataset
	Data string
	// Where is an expression that chooses samples, Keys a file with the keys of the samples chosen,
	// for that function too.
	Where, Keys string
	// Layers are the names or addresses of layers, for that function too.
	Layers    []string
	Share     *big.Rat // of a mix; nil: none is given
	MaxEpochs uint64   // of the source in a mix; 0: no limit
	Fixed     Lanes
}

// Lanes are the parts of its order that a source fixes, see order.Choice. 0 and "" leave them open.
type Lanes struct {
	Lanes, RunBlocks, Delay, Head uint32
	Affinity                      order.Affinity
	WholeShards                   bool
}

// Segment is the shares of a mix from a position on, by number of the source.
type Segment struct {
	At     uint64
	Shares []*big.Rat
	Line   int // of the mix file, for errors; 0: none
}

// Length is the length of an epoch of a mix: Units of them, or by a Rule. The zero value is chosen:
// each sample once where no shares are given, otherwise mix.EpochAll.
type Length struct {
	Units uint64
	Rule  mix.EpochRule
	Line  int // of the mix file, for errors; 0: none
}

// SpecError is an error in a Spec.
type SpecError struct {
	File   string // Spec.Name
	Line   int    // from 1; 0: the error is not about one line
	Member string // such as sources.web.weight
	Err    error
}

// Error names file, line and member.
func (e *SpecError) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Member != "" && at != "" {
		at += ": "
	}
	if at += e.Member; at == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", at, e.Err)
}

// Unwrap returns Err.
func (e *SpecError) Unwrap() error { return e.Err }

func (s *Spec) fail(line int, member string, err error) error {
	return &SpecError{s.Name, line, member, err}
}

// of returns an error about a source of the spec.
func (s *Spec) of(i int, err error) error {
	return s.fail(s.Sources[i].Line, "sources."+s.Sources[i].Name, err)
}

// globalBatch returns the batch size: the one asked for, the checkpoint's, or 256.
func (s *Spec) globalBatch(from *Checkpoint) int {
	of := 0
	if from != nil {
		of = from.GlobalBatch()
	}
	return cmp.Or(s.Order.GlobalBatch, of, 256)
}

// End returns the epoch to end before; 0: none.
func (s *Spec) End() uint64 { return endOf(s.Epoch, s.Order.Epochs) }

func endOf(first, epochs uint64) uint64 {
	if epochs == 0 {
		return 0
	}
	return first + min(epochs, math.MaxUint64-first)
}

// Change is how a run may differ from the checkpoint that it continues.
type Change struct {
	// Mix allows other sources, weights and segments than the checkpoint of a mix has. They hold from
	// its place on.
	Mix bool
	// KeepWeights, with Mix, keeps the weights that the program set last, see Stream.SetWeights, if
	// the mix differs from the checkpoint's in nothing else.
	KeepWeights bool
	// AsSaved takes only the data sets from the spec, and everything else of the mix from the
	// checkpoint.
	AsSaved bool
	// Begin, when not nil, moves the place where the run begins to the beginning of this epoch.
	Begin *uint64
	// Skip, when not nil, has the first and the last of the steps of a mix to leave out. Steps that
	// are over are an error unless Again is set, because a job that is resumed gives the same steps
	// again.
	Skip  *[2]uint64
	Again bool
}

// Planning says how units are planned.
type Planning struct {
	// Folder keeps the plans of epochs and the lengths of samples, so that the next start finds them
	// there; "" keeps none. Plans that cannot be kept or read there are made anew.
	Folder string
	// Log, when not nil, gets a warning if a plan cannot be kept.
	Log *slog.Logger
	// Progress, when not nil, returns a function that is called while epochs of a source are planned,
	// from several goroutines, with the epoch and how many of its samples have been planned.
	Progress func(source string) func(epoch, done, of uint64)
}

// of returns the options for a source, whose planning ends before an epoch unless that is 0.
func (p *Planning) of(source string, until uint64) epochplan.Options {
	o := epochplan.Options{Folder: p.Folder, Log: p.Log, Until: until}
	if p.Progress != nil {
		o.Progress = p.Progress(source)
	}
	return o
}

// located returns an error at a line, or at the line of the source that it is about.
func (s *Spec) located(line int, member string, err error) error {
	var of *mix.SourceError
	if !errors.As(err, &of) {
		return s.fail(line, member, err)
	}
	i := slices.IndexFunc(s.Sources, func(x SourceSpec) bool { return x.Name == of.Source })
	if i < 0 {
		return s.fail(line, member, err)
	}
	return s.of(i, of.Err)
}

// isAlone reports whether the spec is of one data set that is read alone.
func (s *Spec) isAlone() bool { return len(s.Sources) == 1 && s.Sources[0].Name == "" }

// ofSources refuses options that a mix has for each source.
func (s *Spec) ofSources() error {
	for _, option := range []string{"whole-shards", "lanes", "run-blocks", "delay", "head"} {
		if s.Said[option] && !s.isAlone() {
			return &SpecError{Member: option, Err: errors.New("a mix has it for each source")}
		}
	}
	return nil
}

// each calls f for each source, some at a time. It returns the error of the first source that has
// one, with its place in the file. member comes before the source's name there.
func (s *Spec) each(some int, member string, f func(i int) error) error {
	failed := make([]error, len(s.Sources))
	var g errgroup.Group
	g.SetLimit(some)
	for i := range s.Sources {
		g.Go(func() error {
			failed[i] = f(i)
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		var count *CountError
		switch {
		case err == nil:
		case s.isAlone():
			return err
		case errors.As(err, &count):
			return s.of(i, err)
		default:
			return &sourceFailure{SpecError{s.Name, s.Sources[i].Line, member + s.Sources[i].Name, err}}
		}
	}
	return nil
}

// sourceFailure is an error of a source that does not blame the spec. It is not a SpecError.
type sourceFailure struct{ at SpecError }

func (e *sourceFailure) Error() string { return e.at.Error() }

func (e *sourceFailure) Unwrap() error { return e.at.Err }
