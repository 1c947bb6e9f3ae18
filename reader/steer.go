package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
)

// SetWeights sets the weights of a mix, by the names of its sources, from the batch after the last
// one that Next returned. A source that is not named has weight 0, as in a segment of a mix file.
// The new weights begin a segment there, which Checkpoint has: a stream that resumes from it takes
// them, whatever the mix file has. Segments of the mix file that lie ahead are dropped. All ranks
// must set the same weights after the same batch; otherwise their checkpoints differ.
//
// Batches that were read ahead are dropped, and the blocks that are in memory stay for the new
// ones. The memory budget and the parameters of the order stay what they were. Batches in hand stay
// valid; their Checkpoint has the weights from before. After io.EOF the stream goes on if the
// weights leave it something to read.
//
// A weight is the decimal number that the float64 prints as. SetWeights is for the goroutine that
// calls Next. If it returns an error that wraps ErrOptions, the stream is as it was: the stream has
// one data set, a source is unknown, or a weight is negative, not a finite number, or so small
// beside the others that it becomes 0, or all are 0. It returns the error of Next if that has
// failed.
func (s *Stream) SetWeights(weights map[string]float64) error {
	return s.steer(s.place.Place, weights)
}

// SetWeightsAt is SetWeights for callers of Next that take batches ahead for another consumer. The
// weights hold from the place of a checkpoint on: that of the last batch which the other consumer
// got, or of the stream before its first batch. Next continues there.
func (s *Stream) SetWeightsAt(at Checkpoint, weights map[string]float64) error {
	if at.Mix == nil || at.Mix.Position < s.run.Load().begin.Position || at.Mix.Position > s.place.Position {
		return optionsError{errors.New("the checkpoint is not one of this stream, or from before weights were set")}
	}
	return s.steer(Place{Position: at.Mix.Position}, weights)
}

// steer begins another leg, with other weights, at a place.
func (s *Stream) steer(at Place, weights map[string]float64) error {
	if s.place.err != nil && !errors.Is(s.place.err, io.EOF) {
		return s.place.err
	}
	s.life.turn.Lock()
	defer s.life.turn.Unlock()
	if s.life.ctx.Err() != nil {
		return context.Cause(s.life.ctx)
	}
	was := s.run.Load()
	run, err := was.steered(s.life.ctx, at, s.split.GlobalBatch, weights)
	if err != nil {
		return err
	}
	cursor, err := run.Seek(s.life.ctx, at, s.split)
	if err != nil {
		return err
	}
	s.end()
	keep := s.sizes.keep
	for i, in := range run.inputs {
		keep = keep && (in.share == 0 || s.inputs[i].share > 0) // else the window has no room for all of it
	}
	s.planner.Turn(keep)
	s.run.Store(run)
	s.place.Place, s.place.err = at, nil
	s.begin(cursor)
	s.logWeights(was, at, weights)
	return nil
}

// end ends the leg under way, and drops its batches.
func (s *Stream) end() {
	s.leg.cancel(errors.New("other weights were set"))
	s.leg.wg.Wait()
	for d := range s.leg.drafts {
		s.planner.Drop(d)
	}
	for out := range s.leg.ready {
		s.drop(out)
	}
}

// logWeights logs the weights, and the segments of the mix file that will not come.
func (s *Stream) logWeights(was *Run, at Place, weights map[string]float64) {
	if s.opts.Log == nil {
		return
	}
	attrs := []any{"rank", s.split.Rank, "position", at.Position}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		attrs = append(attrs, "weight."+name, weights[name])
	}
	s.opts.Log.Info("stream: weights were set", attrs...)
	if c, err := was.Plan().(*mix.Plan).Checkpoint(at.Position); err == nil {
		for _, g := range c.Segments[1:] {
			s.opts.Log.Warn("stream: a segment of the mix is dropped, because weights were set before it", "at", g.At)
		}
	}
}

// steered returns the run that continues from a place with other weights. It has the sources of r,
// and ends with it.
func (r *Run) steered(ctx context.Context, at Place, globalBatch int, weights map[string]float64) (*Run, error) {
	e, ok := r.engine.(*mixEngine)
	if !ok {
		return nil, optionsError{errors.New("the stream reads one data set: weights are for the sources of a mix")}
	}
	m := e.plan.Mix()
	quantised, err := r.quantised(ctx, &m, weights)
	if err != nil {
		return nil, optionsError{err}
	}
	if m, err = e.plan.Steer(at.Position, quantised); err != nil {
		return nil, optionsError{err}
	}
	before, err := e.checkpoint(at, globalBatch, ledger.Mark{})
	if err != nil {
		return nil, err
	}
	next, run := *e, *r
	if next.plan, err = mix.New(m); err != nil {
		return nil, err
	}
	if next.steps, err = m.Resize(before.Mix.Steps, at.Position, globalBatch); err != nil {
		return nil, err
	}
	next.begin, run.begin, run.engine, run.stop = at.Position, at, &next, nil
	run.inputs = make([]*input, len(r.inputs))
	for i, in := range r.inputs {
		with := *in
		with.share, _ = m.LargestShare(i).Float64()
		run.inputs[i] = &with
	}
	return &run, nil
}

// quantised turns shares by name into the weights of a mix, as those of a mix file.
func (r *Run) quantised(ctx context.Context, m *mix.Mix, weights map[string]float64) ([]uint64, error) {
	names, shares := make([]string, len(m.Sources)), make([]*big.Rat, len(m.Sources))
	for i := range shares {
		names[i], shares[i] = m.Sources[i].Name, new(big.Rat)
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		w, i := weights[name], slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("there is no source %.40q: the mix has %s", name, strings.Join(names, ", "))
		}
		err := r.canWeigh(i, w)
		if err == nil {
			shares[i].SetString(strconv.FormatFloat(w, 'g', -1, 64))
		}
		if err == nil && r.tokens != nil && w > 0 {
			var tokens uint64
			if tokens, err = r.tokens(ctx, name); err == nil {
				shares[i], err = mix.PerToken(shares[i], tokens, m.Sources[i].Units)
			}
		}
		if err != nil {
			return nil, &mix.SourceError{Source: name, Err: err}
		}
	}
	return mix.Quantize(names, shares)
}

// canWeigh refuses a weight that source i of the run cannot have.
func (r *Run) canWeigh(i int, w float64) error {
	switch {
	case math.IsNaN(w) || math.IsInf(w, 0) || w < 0:
		return fmt.Errorf("weight %v: give a finite number that is not negative", w)
	case w > 0 && r.inputs[i].Dataset == nil:
		return errors.New("it was removed from the mix, and no data set is open for it: give weight 0")
	case w > 0 && r.costs != nil && !r.costs.has[i]:
		return errors.New("its samples have no cost, or their costs were not read: give it a weight in the mix, " +
			"and its samples all attributes of the cost")
	}
	return nil
}
