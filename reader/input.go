package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// input is one source of a stream: a data set and its order. A data set that is read alone is the
// only source of its stream.
type input struct {
	*Dataset        // nil: a source that was removed from a mix, and gives nothing
	name     string // in a mix
	plan     *order.Plan
	table    order.Table
	share    float64 // of the samples; in a mix the largest over its segments
	unit     unitSize
	delayed  bool // the user fixed the delay of its order
}

// unitSize describes a source's units for a stream.
type unitSize struct {
	samples float64 // of a mean unit; 1 where positions hold samples
	window  float64 // samples of each lane that units are formed from; 0 where positions hold samples
	params  units.Params
}

// use makes the positions of the source hold units.
func (in *input) use(u *epochplan.Order) {
	sum, p := u.Summary(), u.Units.Params()
	in.plan = u.Order()
	in.unit = unitSize{max(1, float64(sum.Samples)*float64(p.Size)/float64(max(sum.Tokens, 1))), float64(p.Window), p}
}

// shares reports whether a stream shares the blocks of the source with others.
func (in *input) shares(o *StreamOptions) bool { return o.Tuning.Share && in.plan.Whole() }

// failed names the source in an error.
func (in *input) failed(err error) error {
	if err == nil || in.name == "" {
		return err
	}
	return &mix.SourceError{Source: in.name, Err: err}
}

// samples returns the number of samples of all sources.
func samples(in []*input) (n uint64) {
	for _, x := range in {
		if x.Dataset != nil {
			n += x.tables.Samples
		}
	}
	return n
}

// shards finds the shards of a stream for the planner, and keeps those used last.
type shards struct {
	inputs []*input
	first  []int // number of each source's first data set
	opts   *StreamOptions
	known  map[shardID][]planner.Shard
}

type shardID struct{ source, number int }

func (s *shards) Shards(ctx context.Context, source int, block uint32) ([]planner.Shard, int, error) {
	in := s.inputs[source]
	id := shardID{source, in.plan.ShardOf(block)}
	if sh := s.known[id]; sh != nil {
		return sh, in.table.ShardFirst[id.number], nil
	}
	sh, err := in.shards(ctx, id.number, &in.table, s.first[source])
	if err != nil {
		return nil, 0, in.failed(err)
	}
	if s.known == nil || len(s.known) >= 4096 {
		s.known = map[shardID][]planner.Shard{}
	}
	for i := range sh {
		sh[i].Of.Mark()
		if in.shares(s.opts) {
			sh[i].Held = in.parts[sh[i].Set-s.first[source]].held()
		}
	}
	s.known[id] = sh
	return sh, in.table.ShardFirst[id.number], nil
}

// ErrFields is returned if a data set lacks a field that StreamOptions.Expect names, or that
// another source has.
var ErrFields = errors.New("missing fields")

// expect refuses sources without the named fields, and sources of a mix that differ in fields other
// than those named with a question mark.
func expect(in []*input, fields []string) error {
	var sets []*Dataset
	first := -1
	for i, x := range in {
		if x.Dataset == nil {
			continue
		}
		if err := x.failed(x.expect(fields)); err != nil {
			return err
		}
		if sets = append(sets, x.Dataset); first < 0 {
			first = i
		}
		if err := errors.Join(in[first].has(x, fields), x.has(in[first], fields)); err != nil {
			return err
		}
	}
	return lacking(sets, fields)
}

// expect refuses a data set without the named fields.
func (d *Dataset) expect(fields []string) error {
	for _, want := range fields {
		if strings.HasSuffix(want, "?") {
			continue
		}
		fields, err := d.fieldsNamed(want)
		switch {
		case errors.Is(err, errNoField):
			return d.noField(want)
		case err != nil:
			return err
		}
		if len(fields) != 1 || slices.Contains(d.Lists(), want) && fields[0] != want {
			continue // a list, which a sample may have none of
		}
		field, all := fields[0], d.Fields()
		i := slices.IndexFunc(all, func(f format.FieldTotal) bool { return f.Name == field })
		if n := all[i].Samples; n < d.tables.Samples-min(d.nothing(field), d.tables.Samples) {
			return fmt.Errorf("%w: field %q is in %d of %d samples of %v: declare it with a question mark if samples may lack it", ErrFields, want, n, d.tables.Samples, d.Store())
		}
	}
	return nil
}

// nothing is how many samples, at most, lack a field of a layer because they were removed before
// the layer was made. Nobody gets them.
func (d *Dataset) nothing(field string) (n uint64) {
	for i := range d.parts[1:] {
		p := &d.parts[1+i]
		if slices.Contains(fieldNames(p.fields()), field) {
			stay := without(p.tables.Purged, d.tables.Removed)
			n = uint64(len(p.tables.Purged) - len(stay))
		}
	}
	return n
}

// mayLack reports whether a name has a question mark and stands for the field.
func mayLack(name, field string) bool {
	name, optional := strings.CutSuffix(name, "?")
	_, element := fieldname.Element(field, name)
	return optional && (name == field || fieldname.Extends(field, name) || element)
}

// has refuses a source that lacks a field of another one.
func (in *input) has(other *input, optional []string) error {
	own, lists := fieldNames(in.Fields()), in.Lists()
	element := func(field string) bool {
		return slices.ContainsFunc(lists, func(list string) bool {
			_, is := fieldname.Element(field, list)
			return is
		})
	}
	for _, f := range other.Fields() {
		lacks := func(name string) bool { return mayLack(name, f.Name) }
		if !element(f.Name) && !slices.Contains(own, f.Name) && !slices.ContainsFunc(optional, lacks) {
			return in.failed(fmt.Errorf("%w: it has no field %q, which source %q has: where samples may lack it, expect %q", ErrFields, f.Name, other.name, f.Name+"?"))
		}
	}
	return nil
}

// origin is where a sample of a stream is from. It keeps the memory of the sample, also after
// Close.
type origin struct {
	*input
	memory *window.Window
	clones *origin // of copies, which need no memory of the stream
}

// origins returns the origins of a stream's samples, by source.
func origins(inputs []*input, w *window.Window) []*origin {
	from := make([]*origin, len(inputs))
	for i, in := range inputs {
		clones := &origin{input: in}
		clones.clones = clones
		from[i] = &origin{in, w, clones}
	}
	return from
}
