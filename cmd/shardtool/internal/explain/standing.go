package explain

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Standing is where a checkpoint stands, from the checkpoint alone. Position counts samples over
// all epochs and ranks. Step is in batches of GlobalBatch samples: for one data set it is right
// only if the batch size never changed, and it is 0 if GlobalBatch is not known.
type Standing struct {
	Version  int    `json:"version"`  // 1: of one data set, 2: of a mix
	Position uint64 `json:"position"` // samples delivered
	Step     uint64 `json:"step"`     // the next one

	GlobalBatch   int          `json:"global_batch"`
	Epoch         uint64       `json:"epoch"`
	EpochPosition uint64       `json:"epoch_position"`
	EpochLength   uint64       `json:"epoch_length"`
	Seed          uint64       `json:"seed"`
	Shuffle       bool         `json:"shuffle"`
	Tail          order.Tail   `json:"tail"`
	Sources       []StandingAt `json:"sources"`
	// Other shares from a position on.
	Segments []StandingAhead `json:"segments"`
	// Steered is where the training program set the weights. It is nil where they are of the mix.
	Steered *StandingSteered `json:"steered,omitempty"`
	// LeftOut is what the run leaves out; no steps if the batch size changed.
	LeftOut []StandingHole `json:"left_out"`
	Skipped uint64         `json:"skipped"` // samples that could not be read
}

// StandingAt is a source in a Standing. One data set has one, without a name.
type StandingAt struct {
	Name       string  `json:"source,omitempty"`
	Digest     string  `json:"digest"`
	Tables     string  `json:"tables"`
	Samples    uint64  `json:"samples"` // of an epoch
	Share      float64 `json:"share"`   // that its weight asks for
	Given      uint64  `json:"given"`
	GivenShare float64 `json:"given_share"`
	// Where its next sample is.
	Epoch uint64 `json:"epoch"`
	Place uint64 `json:"place"`

	MaxEpochs uint64         `json:"max_epochs"` // 4294967296: no limit
	Lanes     uint32         `json:"lanes"`
	RunBlocks uint32         `json:"run_blocks"`
	Delay     uint32         `json:"delay"`
	Head      uint32         `json:"head"`
	Affinity  order.Affinity `json:"affinity"`
}

// StandingAhead is a segment that begins later: the shares that hold from position At on.
type StandingAhead struct {
	At     uint64             `json:"at"`
	Shares map[string]float64 `json:"shares"`
}

// StandingSteered is a position, and the step that begins there. It is nil if the batch size has
// changed since.
type StandingSteered struct {
	Position uint64  `json:"position"`
	Step     *uint64 `json:"step,omitempty"`
}

// StandingHole holds positions that the run leaves out, FirstPosition ≤ g < NextPosition. The steps
// are nil if the batch size has changed since.
type StandingHole struct {
	FirstPosition uint64  `json:"first_position"`
	NextPosition  uint64  `json:"next_position"`
	FirstStep     *uint64 `json:"first_step,omitempty"`
	LastStep      *uint64 `json:"last_step,omitempty"`
}

// noLimit is the MaxEpochs of a source without a limit.
const noLimit = 1 << 32

// ErrUnits refuses a checkpoint of one data set whose positions count packed sequences or
// micro-batches: epochs differ, so what it has given is not known without the lengths of the
// samples.
var ErrUnits = errors.New("the checkpoint counts packed sequences or micro-batches, whose epochs differ: give the data set too, which has the lengths of its samples")

// Checkpoint returns where a checkpoint stands. For a checkpoint of the units of one data set, the
// error wraps ErrUnits.
func Checkpoint(c reader.Checkpoint) (*Standing, error) {
	if c.Mix != nil {
		return mixCheckpoint(c.Mix)
	}
	return datasetCheckpoint(c.Dataset)
}

func datasetCheckpoint(c *order.Checkpoint) (*Standing, error) {
	if c.Units != nil {
		return nil, ErrUnits
	}
	of := c.Sources[0]
	n := max(of.Samples, 1)
	if hi, lo := bits.Mul64(c.Epoch, n); hi > 0 || lo+c.Position >= 1<<63 {
		return nil, fmt.Errorf("epoch %d of %d samples: positions over all epochs end at 2^63", c.Epoch, n)
	}
	s := &Standing{
		Version: order.CheckpointVersion, Position: c.Epoch*n + c.Position, GlobalBatch: c.GlobalBatch, Epoch: c.Epoch,
		EpochPosition: c.Position,
		EpochLength:   of.Samples, Seed: c.Seed, Shuffle: c.Shuffle, Tail: c.Tail, Skipped: c.Skipped,
		Segments: []StandingAhead{}, LeftOut: []StandingHole{},
		Sources: []StandingAt{{
			Digest: of.Digest, Tables: c.Tables, Samples: of.Samples, Share: 1, Given: c.Epoch*n + c.Position,
			Epoch: c.Epoch, Place: c.Position, MaxEpochs: noLimit,
			Lanes: c.Lanes, RunBlocks: c.RunBlocks, Delay: c.Delay, Head: c.Head, Affinity: c.Affinity,
		}},
	}
	s.Sources[0].GivenShare = mix.Part(s.Position, s.Position)
	if c.GlobalBatch > 0 {
		var err error
		m := mix.Mix{Tail: c.Tail, Epoch: n}
		if s.Step, err = m.Step(mix.Steps{GlobalBatch: c.GlobalBatch}, s.Position); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func mixCheckpoint(c *mix.Checkpoint) (*Standing, error) {
	plan, err := mix.New(c.Mix)
	if err != nil {
		return nil, err
	}
	s := &Standing{
		Version: mix.CheckpointVersion, Position: c.Position, GlobalBatch: c.Steps.GlobalBatch,
		Epoch: c.Position / c.Epoch, EpochPosition: c.Position % c.Epoch,
		EpochLength: c.Epoch, Seed: c.Seed, Shuffle: c.Shuffle, Tail: c.Tail, Skipped: c.Skipped,
		Segments: []StandingAhead{}, LeftOut: []StandingHole{},
	}
	if c.Steps.GlobalBatch > 0 {
		if s.Step, err = c.Next(c.Steps, c.Position); err != nil {
			return nil, err
		}
	}
	if c.Steered {
		s.Steered = &StandingSteered{Position: c.Segments[0].At}
		if c.Steps.GlobalBatch > 0 && s.Steered.Position >= c.Steps.Position {
			step, err := c.Next(c.Steps, s.Steered.Position)
			if err != nil {
				return nil, err
			}
			s.Steered.Step = &step
		}
	}
	parts, err := plan.Shares(c.Position, c.Position)
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		of := &c.Sources[i]
		s.Sources = append(s.Sources, StandingAt{
			Name: p.Name, Digest: of.Digest, Tables: of.Tables, Samples: p.Samples, Share: p.Share, Given: p.Given,
			GivenShare: p.GivenShare,
			Epoch:      p.Epoch, Place: p.Place, MaxEpochs: cmp.Or(of.MaxEpochs, noLimit),
			Lanes: of.Lanes, RunBlocks: of.RunBlocks, Delay: of.Delay, Head: of.Head, Affinity: of.Affinity,
		})
	}
	for _, g := range c.Segments[1:] {
		ahead := StandingAhead{At: g.At, Shares: map[string]float64{}}
		for i, share := range mix.Fractions(g.Weights) {
			if share > 0 {
				ahead.Shares[c.Sources[i].Name] = share
			}
		}
		s.Segments = append(s.Segments, ahead)
	}
	for _, r := range c.LeftOut {
		hole := StandingHole{FirstPosition: r.From, NextPosition: r.To}
		if c.Steps.GlobalBatch > 0 && r.From >= c.Steps.Position {
			first, err := c.Step(c.Steps, r.From)
			if err != nil {
				return nil, err
			}
			last, err := c.Step(c.Steps, r.To-1)
			if err != nil {
				return nil, err
			}
			hole.FirstStep, hole.LastStep = &first, &last
		}
		s.LeftOut = append(s.LeftOut, hole)
	}
	return s, nil
}
