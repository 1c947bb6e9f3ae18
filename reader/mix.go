package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// resolving makes a run from the sources of a mix.
type resolving struct {
	Spec
	sets   []*Dataset // in the order of the spec
	data   []sourceData
	from   *mix.Checkpoint // nil: it begins anew
	change Change
}

// run makes the run. Planning ends with the context until the run is made, and then with the run.
func (r *resolving) run(ctx context.Context, p Planning) (run *Run, err error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	stop := func() {
		end(context.Canceled)
		closeUnits(r.data)
	}
	defer func() {
		if detach(); err != nil {
			stop()
		}
	}()
	r.keep()
	laid, err := r.makeUnits(life, r.sets, r.data, r.from, p)
	if err != nil {
		return nil, err
	}
	m, changed, err := r.mixed(life, laid)
	if err != nil {
		return nil, err
	}
	plan, err := r.plan(m, r.from)
	if err != nil {
		return nil, err
	}
	e := &mixEngine{plan: plan, steps: mix.Steps{GlobalBatch: r.Order.GlobalBatch}}
	if err := r.place(e, &m); err != nil {
		return nil, err
	}
	if run, err = r.over(e, &m); err != nil {
		return nil, err
	}
	run.end, run.changed, run.stop = r.End(), changed, []func(){stop}
	if err := run.useCosts(ctx, &r.Spec, p); err != nil {
		return nil, err
	}
	if r.Count != "" {
		run.tokens = r.tokensOf
	}
	return run, nil
}

// tokensOf returns the sum of Spec.Count over the units of a source.
func (r *resolving) tokensOf(ctx context.Context, source string) (uint64, error) {
	i := slices.IndexFunc(r.Sources, func(s SourceSpec) bool { return s.Name == source })
	if u := r.data[i].units; u != nil && u.params.By == r.Count && u.made != nil {
		return u.made.Summary().Tokens, nil
	}
	if n := r.data[i].tokens; n > 0 {
		return n, nil
	}
	return r.sets[i].Tokens(ctx, r.Count) // the mix had no share of the source
}

// over makes the run of an engine, and gives the sources their data sets and orders.
func (r *resolving) over(e *mixEngine, m *mix.Mix) (*Run, error) {
	in, made := make([]*input, len(m.Sources)), make([]*epochplan.Order, len(m.Sources))
	for i := range in {
		var err error
		if in[i], made[i], err = r.input(m, i); err != nil {
			return nil, (&input{name: m.Sources[i].Name}).failed(err)
		}
	}
	if err := e.use(m, in, made); err != nil {
		return nil, err
	}
	return &Run{engine: e, inputs: in, begin: Place{Position: e.begin}, globalBatch: cmp.Or(e.steps.GlobalBatch,
		256)}, nil
}

// keep takes the options that the user did not say from the checkpoint.
func (r *resolving) keep() {
	if r.from == nil {
		return
	}
	o := &r.Order
	if o.GlobalBatch == 0 {
		o.GlobalBatch = r.from.Steps.GlobalBatch
	}
	all := r.change.AsSaved
	if all {
		o.Memory = 0
	}
	if all || !r.Said["seed"] {
		o.Seed = r.from.Seed
	}
	if all || !r.Said["shuffle"] {
		o.Shuffle = r.from.Shuffle
	}
	if all || !r.Said["tail"] {
		o.Tail = r.from.Tail
	}
	if all || !r.Said["affinity"] {
		o.Affinity = ""
	}
}

// mixed returns the mix that the spec asks for. With a checkpoint it returns the checkpoint's mix,
// or if a change is allowed the mix asked for and how it differs. laid reports that positions hold
// units.
func (r *resolving) mixed(ctx context.Context, laid bool) (mix.Mix, []mix.Difference, error) {
	if r.change.AsSaved && r.from != nil {
		if !laid {
			return r.from.Mix, nil, nil
		}
		asked, err := r.mix(ctx, r.data, r.from)
		r.from.Attach(asked)
		return r.from.Mix, nil, err
	}
	asked, err := r.mix(ctx, r.data, r.from)
	if err != nil || r.from == nil {
		return asked, nil, err
	}
	r.from.Attach(asked)
	if err := r.from.Fits(asked); !r.change.Mix || r.change.KeepWeights && r.from.Steered && err == nil {
		if err != nil && !errors.Is(err, order.ErrMismatch) {
			err = r.located(0, "", err)
		}
		return r.from.Mix, nil, err
	}
	differences, err := r.from.Differences(asked)
	switch {
	case err != nil:
		return asked, nil, r.located(0, "", err)
	case len(differences) == 0:
		return r.from.Mix, nil, nil
	}
	m, err := r.from.Change(asked)
	if err != nil && !errors.Is(err, order.ErrMismatch) {
		err = checkpointError{err}
	}
	return m, differences, err
}

// checkpointError reports a mix that cannot continue from its checkpoint. It is an
// order.ErrMismatch.
type checkpointError struct{ error }

func (e checkpointError) Unwrap() error        { return e.error }
func (e checkpointError) Is(target error) bool { return target == order.ErrMismatch }

// plan makes the plan of a mix. Its errors are about the spec, or about the checkpoint that the mix
// continues.
func (s *Spec) plan(m mix.Mix, from *mix.Checkpoint) (*mix.Plan, error) {
	plan, err := mix.New(m)
	switch {
	case err == nil:
		return plan, nil
	case from == nil:
		return nil, s.located(0, "", err)
	}
	return nil, checkpointError{err}
}

// place sets where the run begins, how its steps are numbered, and which steps are left out.
func (r *resolving) place(e *mixEngine, m *mix.Mix) error {
	switch {
	case r.from != nil:
		if b := r.change.Begin; b != nil {
			if err := r.from.Begin(*b); err != nil {
				return r.wrong("epoch", err)
			}
		}
		e.begin, e.leftOut = r.from.Position, r.from.LeftOut
		var err error
		if e.steps, err = m.Resize(r.from.Steps, e.begin, r.Order.GlobalBatch); err != nil {
			return r.wrong("global-batch", err)
		}
	default:
		epoch := r.Epoch
		if r.change.Begin != nil {
			epoch = *r.change.Begin
		}
		if epoch > (1<<63-1)/m.Epoch {
			return r.wrong("epoch", fmt.Errorf("%d: there is no such epoch", epoch))
		}
		e.begin = epoch * m.Epoch
	}
	if r.change.Skip == nil {
		return nil
	}
	first, last := r.change.Skip[0], r.change.Skip[1]
	if r.change.Again {
		if last < e.steps.Step { // of batches of another size, and already over
			return nil
		}
		first = max(first, e.steps.Step)
	}
	out, err := m.LeaveOut(e.steps, first, last)
	switch {
	case err != nil:
		return r.wrong("skip-steps", err)
	case r.change.Again:
	case out.To <= e.begin:
		return r.wrong("skip-steps",
			fmt.Errorf("these steps are over, the checkpoint is at position %d: continue from an earlier one", e.begin))
	default: // what was read before stays read
		out.From = max(out.From, e.begin)
	}
	e.leftOut = mix.Join(e.leftOut, out)
	return nil
}

// wrong returns an error of an option, by its name in Said.
func (r *resolving) wrong(option string, err error) error {
	return &SpecError{Member: option, Err: err}
}

// input returns source i of the mix, and the order of its units, or nil if it has none. The data
// set must be the one that the mix is made for.
func (r *resolving) input(m *mix.Mix, i int) (*input, *epochplan.Order, error) {
	of := &m.Sources[i]
	in := &input{name: of.Name, unit: unitSize{samples: 1}}
	in.share, _ = m.LargestShare(i).Float64()
	k := slices.IndexFunc(r.Sources, func(s SourceSpec) bool { return s.Name == of.Name })
	if k < 0 && r.change.AsSaved { // an error only if it has samples in a batch
		in.share = 0
	}
	if k < 0 {
		if in.share > 0 {
			return nil, nil, optionsError{errors.New("it has weight, but no data set was given")}
		}
		return in, nil, nil
	}
	in.Dataset, in.table, in.delayed = r.sets[k], r.data[k].table, r.Sources[k].Fixed.Delay > 0
	for i := range in.parts {
		in.parts[i].source.OneOf(len(r.sets) * len(in.parts))
	}
	if is := format.DigestString(in.Digest()); is != of.Digest {
		return nil, nil, checkpointError{fmt.Errorf("the data set has digest %s, the run read %s: open that generation",
			is, of.Digest)}
	}
	if is := in.Selection().ID(); is != of.View {
		return nil, nil, &mix.MismatchError{Difference: mix.Difference{Field: "view", Checkpoint: of.View, Given: is}}
	}
	return in, r.data[k].units.order(), nil
}
