package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Layer says where a layer is: a data set that adds fields to the samples of another.
type Layer struct {
	// Name is the layer's name or address. Errors name the layer by it.
	Name  string
	Store objstore.Store
	// Generation picks a generation, as Options.Generation does.
	Generation string
}

// layerError is an error of a layer.
type layerError struct {
	layer string
	err   error
}

func (e *layerError) Error() string { return fmt.Sprintf("layer %s: %v", e.layer, e.err) }
func (e *layerError) Unwrap() error { return e.err }

// part is a data set whose fields the samples of a Dataset have: the Dataset itself, or one of its
// layers.
type part struct {
	*Dataset
	layer  string         // its name; "" for the Dataset itself
	pick   *assemble.Pick // nil: all fields are delivered
	wanted bool           // it has fields that are delivered
}

// failed names the layer in an error.
func (p *part) failed(err error) error {
	if err == nil || p.layer == "" {
		return err
	}
	return &layerError{p.layer, err}
}

// fields returns the totals of the fields that are delivered.
func (p *part) fields() (out []format.FieldTotal) {
	for _, f := range p.tables.Fields {
		if p.wanted && (p.pick == nil ||
			slices.Contains(p.pick.Names, f.Name) && !slices.Contains(p.pick.Yields, f.Name)) {
			out = append(out, f)
		}
	}
	return out
}

// Layers yields the layers that were opened with the data set by their names, in the order of
// Options.Layers. They are closed with it.
func (d *Dataset) Layers() iter.Seq2[string, *Dataset] {
	return func(yield func(string, *Dataset) bool) {
		for _, p := range d.all[1:] {
			if !yield(p.layer, p.Dataset) {
				return
			}
		}
	}
}

// layerNames names the layers and their generations, for logs.
func (d *Dataset) layerNames() (all []string) {
	for name, l := range d.Layers() {
		all = append(all, fmt.Sprintf("%s@%s", name, names.Generation(l.catalog.Name)))
	}
	return all
}

// Fields returns the totals of the fields that samples are delivered with, of the data set and its
// layers, in ascending order of names. See Options.Fields.
func (d *Dataset) Fields() (all []format.FieldTotal) {
	for i := range d.parts {
		for _, f := range d.parts[i].fields() {
			if back := d.backOf(f.Name); back != nil {
				f = d.patched(f, back)
			}
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(x, y format.FieldTotal) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// backOf returns the part whose field of a name is delivered of samples that the layer which
// replaces it has none for; nil where no layer replaces it.
func (d *Dataset) backOf(name string) *part {
	for i := range d.parts {
		if p := &d.parts[i]; p.pick != nil && slices.Contains(p.pick.Yields, name) {
			return p
		}
	}
	return nil
}

// patched is the total of a field of a layer that replaces the one of back. How many samples have
// either is known where all have the one of back.
func (d *Dataset) patched(f format.FieldTotal, back *part) format.FieldTotal {
	i := slices.IndexFunc(back.tables.Fields, func(of format.FieldTotal) bool { return of.Name == f.Name })
	of := back.tables.Fields[i]
	if f.Samples >= d.tables.Samples || of.Samples == 0 {
		return f
	}
	n := max(f.Samples, of.Samples)
	f.Bytes += uint64(float64(n-f.Samples) * float64(of.Bytes) / float64(of.Samples))
	f.Samples, f.Min, f.Max = n, min(f.Min, of.Min), max(f.Max, of.Max)
	return f
}

// openLayers opens the layers of opts beside the data set, with its defaults.
func openLayers(ctx context.Context, opts Options) (layers []part, err error) {
	layers = make([]part, len(opts.Layers))
	if opts, err = opts.filled(); err != nil {
		return nil, nil // as the data set is opened
	}
	err = parallel(ctx, len(layers), openAtOnce, func(ctx context.Context, i int) (err error) {
		l := &opts.Layers[i]
		// The name goes into errors, logs and checkpoints, and an address may hold a secret.
		layers[i].layer, layers[i].pick = objstore.NewAddress(l.Name).String(), new(assemble.Pick)
		layers[i].Dataset, err = openGeneration(ctx, l.Store,
			Options{Generation: l.Generation, Workers: opts.Workers, Memory: opts.Memory, layer: true})
		return layers[i].failed(err)
	})
	if err != nil {
		_ = closeLayers(layers) // the first error says more
		return nil, err
	}
	return layers, nil
}

func closeLayers(layers []part) (err error) {
	for _, p := range layers {
		if p.Dataset != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return err
}

// join makes the layers part of the data set: it compares them with it, and chooses which data sets
// are read for the wanted fields. Without names, all fields are wanted.
func (d *Dataset) join(layers []part, wanted []string) error {
	d.all, d.allAttributes = append([]part{{Dataset: d}}, layers...), nil
	d.parts = d.all
	for i := range d.all {
		d.all[i].source.OneOf(len(d.all))
	}
	for i := range layers {
		p := &layers[i]
		if slices.ContainsFunc(layers[:i], func(o part) bool { return o.layer == p.layer }) {
			return fmt.Errorf("the layer %s is named twice", p.layer)
		}
		if err := p.failed(d.fits(p.Dataset)); err != nil {
			return fmt.Errorf("%v: %w", d.Store(), err)
		}
		p.random = d.random
		p.pick.None = without(p.tables.Removed, d.tables.Removed)
	}
	if err := d.joinAttributes(); err != nil {
		return err
	}
	owner, back, err := d.owners("field", func(p *part) []string { return fieldNames(p.tables.Fields) })
	if err != nil {
		return err
	}
	return d.choose(owner, back, wanted)
}

// fits refuses a layer that was not made for d.
func (d *Dataset) fits(layer *Dataset) error {
	b := layer.tables.Base
	if b == nil {
		return fmt.Errorf("%w: %v is not a layer: it has samples of its own", format.ErrMismatch, layer.Store())
	}
	return b.Fits(d.tables, layer.tables.Shards, layer.tables.Samples)
}

// without returns the numbers that are not in others. Both ascend.
func without(numbers, others []uint64) (out []uint64) {
	for _, n := range numbers {
		if _, in := slices.BinarySearch(others, n); !in {
			out = append(out, n)
		}
	}
	return out
}

// owners returns for each name the number of the part whose values are delivered, and for a name
// that it replaces the first part whose values are delivered of samples that it has none for. kind
// is what is named, for errors.
func (d *Dataset) owners(kind string, namesOf func(*part) []string) (owner, back map[string]int, err error) {
	has := map[string][]int{}
	for i := range d.parts {
		for _, name := range namesOf(&d.parts[i]) {
			if name != "" || i == 0 { // the empty field of a layer stands for nothing
				has[name] = append(has[name], i)
			}
		}
	}
	owner, back = map[string]int{}, map[string]int{}
	for name, in := range has {
		replaces := slices.DeleteFunc(slices.Clone(in), func(i int) bool {
			return i == 0 || !slices.Contains(d.parts[i].tables.Base.Replaces, name)
		})
		switch {
		case len(replaces) == 1:
			owner[name] = replaces[0]
			others := slices.DeleteFunc(slices.Clone(in), func(i int) bool { return i == replaces[0] })
			if len(others) > 0 {
				back[name] = others[0]
			}
		case len(in) == 1:
			owner[name] = in[0]
		case len(replaces) > 1:
			return nil, nil, fmt.Errorf("the %s %q: layer %s and layer %s both replace it: open one of them",
				kind, name, d.parts[replaces[0]].layer, d.parts[replaces[1]].layer)
		default:
			first := fmt.Sprintf("the data set %v", d.Store())
			if in[0] > 0 {
				first = "layer " + d.parts[in[0]].layer
			}
			return nil, nil, fmt.Errorf("the %s %q is in %s and in layer %s: make the layer again so that it replaces the %s, or open one of them",
				kind, name, first, d.parts[in[1]].layer, kind)
		}
	}
	return owner, back, nil
}

// joinAttributes finds out which data set has each attribute.
func (d *Dataset) joinAttributes() (err error) {
	d.attributes, _, err = d.owners("attribute", func(p *part) (names []string) {
		for _, a := range p.tables.Attributes {
			names = append(names, a.Name)
		}
		return names
	})
	for i := range d.all {
		for _, a := range d.all[i].tables.Attributes {
			if d.attributes[a.Name] == i {
				d.allAttributes = append(d.allAttributes, a)
			}
		}
	}
	slices.SortFunc(d.allAttributes, func(x, y format.Attribute) int { return strings.Compare(x.Name, y.Name) })
	return err
}

// choose decides which data sets are read for the wanted fields. Layers without one are left out of
// the parts.
func (d *Dataset) choose(owner, back map[string]int, wanted []string) error {
	for i := range d.parts {
		d.parts[i].wanted = len(wanted) == 0 && (i > 0 || len(d.tables.Fields) == 0)
	}
	all := map[string]bool{}
	for _, name := range wanted {
		name, optional := strings.CutSuffix(name, "?")
		fields, err := named(name, slices.Collect(maps.Keys(owner)), d.Lists())
		switch {
		case err == nil:
			for _, field := range fields {
				all[field] = true
			}
		case !errors.Is(err, errNoField):
			return fmt.Errorf("%w: %v: %w", ErrFields, d.Store(), err)
		case !optional:
			return d.noField(name)
		}
	}
	picked, yields := make([][]string, len(d.parts)), make([][]string, len(d.parts))
	for name, i := range owner {
		if len(wanted) > 0 && !all[name] {
			continue
		}
		picked[i] = append(picked[i], name)
		d.parts[i].wanted = true
		if j, ok := back[name]; ok && d.parts[i].patches(name, d.tables.Samples) {
			picked[j], yields[j] = append(picked[j], name), append(yields[j], name)
			d.parts[j].wanted = d.parts[j].wanted || j > 0 // for the data set itself see shards
		}
	}
	if !slices.ContainsFunc(d.parts, func(p part) bool { return p.wanted }) {
		d.parts[0].wanted = true // for its keys
	}
	for i := range d.parts {
		p := &d.parts[i]
		slices.Sort(picked[i])
		slices.Sort(yields[i])
		if i > 0 {
			p.pick.Names, p.pick.Yields = picked[i], yields[i]
		} else if len(picked[i]) < len(d.tables.Fields) || len(yields[i]) > 0 {
			p.pick = &assemble.Pick{Names: picked[i], Yields: yields[i]}
		}
	}
	d.parts = slices.DeleteFunc(slices.Clone(d.parts), func(p part) bool { return !p.wanted && p.layer != "" })
	return nil
}

// patches reports whether the layer may lack a field of one of that many samples.
func (p *part) patches(name string, samples uint64) bool {
	return !slices.ContainsFunc(p.tables.Fields,
		func(f format.FieldTotal) bool { return f.Name == name && f.Samples >= samples })
}

// lacks reports whether the layer lacks, for a sample of a shard that it does not list as removed,
// a field for which the data set itself has another value.
func (p *part) lacks(ctx context.Context, of *fetch.Shard, yields []string) (bool, error) {
	yields = slices.DeleteFunc(slices.Clone(yields), func(name string) bool {
		return !slices.Contains(p.pick.Names, name) || slices.Contains(p.pick.Yields, name)
	})
	if len(yields) == 0 || of.Layout != nil { // all samples of a stacked shard have the same fields
		return false, nil
	}
	ix, err := p.Dataset.Index(ctx, of.Number)
	if err != nil {
		return false, err
	}
	lacking := map[int]bool{} // shapes
	for i, shape := range ix.Shapes {
		for _, name := range yields {
			if !slices.ContainsFunc(shape, func(f uint32) bool { return ix.Fields[f] == name }) {
				lacking[i] = true
			}
		}
	}
	removed := metadata.Within(p.tables.Removed, of.First, of.First+of.Samples)
	for i := range ix.Keys.Len() {
		shape := 0
		if ix.ShapeOf != nil {
			shape = int(ix.ShapeOf[i])
		}
		if !lacking[shape] {
			continue
		}
		if _, gone := slices.BinarySearch(removed, of.First+uint64(i)); !gone {
			return true, nil
		}
	}
	return false, nil
}

var errNoField = errors.New("no field")

// named returns the fields that a name stands for, several or none of a list, or errNoField.
func named(name string, have, lists []string) ([]string, error) {
	fields, list, err := fieldname.FindAll(name, have, lists)
	if err == nil && len(fields) == 0 && !list {
		err = errNoField
	}
	return fields, err
}

// Lists returns the names of the lists of files that the data set and its layers record: their
// elements are the fields NAME.<n>.<ext> of a sample, with n from 0 (SPEC 4.6).
func (d *Dataset) Lists() (names []string) {
	for i := range d.all {
		p := &d.all[i]
		features := kinds.ParseFeatures(p.tables.Meta)
		if len(features) > 0 {
			names = append(names, features.Lists(fieldNames(p.tables.Fields))...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckFields refuses a name with a question mark in Options.Fields for which none of the data
// sets, which were opened with the same names, has a field.
func CheckFields(sets ...*Dataset) error {
	sets = slices.DeleteFunc(slices.Clone(sets), func(d *Dataset) bool { return d == nil })
	if len(sets) == 0 {
		return nil
	}
	return lacking(sets, sets[0].opts.Fields)
}

// lacking refuses a name with a question mark for which none of the data sets has a field.
func lacking(sets []*Dataset, names []string) error {
	for _, want := range names {
		name, optional := strings.CutSuffix(want, "?")
		if optional && len(sets) > 0 && !slices.ContainsFunc(sets, func(d *Dataset) bool { return d.hasField(name) }) {
			return sets[0].noField(name)
		}
	}
	return nil
}

func (d *Dataset) hasField(name string) bool {
	_, err := d.fieldsNamed(name)
	return !errors.Is(err, errNoField)
}

// fieldsNamed returns the fields of the data set and its layers that a name stands for: several or
// none of a list.
func (d *Dataset) fieldsNamed(name string) ([]string, error) {
	var have []string
	for i := range d.parts {
		have = append(have, fieldNames(d.parts[i].fields())...)
	}
	fields, err := named(name, have, d.Lists())
	if err != nil && !errors.Is(err, errNoField) {
		err = fmt.Errorf("%w: %v: %w", ErrFields, d.Store(), err)
	}
	return fields, err
}

func fieldNames(fields []format.FieldTotal) []string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Name
	}
	return names
}

// noField is the error of a field that neither the data set nor a layer has.
func (d *Dataset) noField(name string) error {
	var has []string
	for i := range d.all {
		has = append(has, fieldNames(d.all[i].tables.Fields)...)
	}
	for _, list := range d.Lists() { // instead of its elements
		has = slices.DeleteFunc(has, func(field string) bool { _, is := fieldname.Element(field, list); return is })
		has = append(has, list)
	}
	slices.Sort(has)
	return fmt.Errorf("%w: %v has no field %q; it has %s", ErrFields, d.Store(), name,
		strings.Join(slices.Compact(has), ", "))
}

// plain reports whether samples are delivered as the data set itself has them.
func (d *Dataset) plain() bool { return len(d.parts) == 1 && d.parts[0].pick == nil }

// weight returns the part of the samples for which a part is read: for a data set without wanted
// fields the samples that no layer covers, whose keys it has.
func (p *part) weight(d *Dataset) float64 {
	if p.wanted {
		return 1
	}
	covered := uint64(0)
	for i := range d.parts[1:] {
		covered = max(covered, d.parts[i+1].tables.Samples)
	}
	return float64(d.tables.Samples-covered) / float64(max(d.tables.Samples, 1))
}

// sums returns the decoded bytes of all blocks that are read, and their stored bytes.
func (d *Dataset) sums() (decoded, stored float64) {
	for i := range d.parts {
		p := &d.parts[i]
		decoded, stored = decoded+p.weight(d)*float64(p.tables.Decoded), stored+p.weight(d)*float64(p.tables.Bytes)
	}
	return decoded, stored
}

// kept returns about how many bytes of all blocks that are read are kept in a window, and the bytes
// of the tables of their samples. local tells that blocks stored raw can be read to other memory.
func (d *Dataset) kept(local bool) (blocks, tables float64) {
	for i := range d.parts {
		p := &d.parts[i]
		kept, per := p.keeps(local)
		blocks, tables = blocks+p.weight(d)*kept, tables+p.weight(d)*per*float64(p.tables.Samples)
	}
	return blocks, tables
}

// keeps returns about how many bytes of a part's blocks a window keeps, and of the table of a
// sample.
func (p *part) keeps(local bool) (blocks, table float64) {
	t := p.tables
	decoded, members := float64(t.Decoded), 0.
	for i := range t.Fields {
		members += float64(t.Fields[i].Samples)
	}
	if raw := t.Bytes >= t.Decoded; !t.Stacked() && (local || !raw) {
		kept, packed := window.Kept(decoded, float64(t.Blocks), float64(t.Samples), p.catalog.Headers(), madeKey)
		if packed {
			return kept, placeCost
		}
	}
	return decoded, startCost + memberCost*members/float64(max(t.Samples, 1))
}

// joinedBlocks is the most small blocks that make a run where the data set itself is not read.
const joinedBlocks = 1024

// sized makes a table choose an order by the bytes that are read: by the data set's own,
// unless it is not read or the layers add an eighth to its bytes.
func (d *Dataset) sized(t *order.Table) {
	decoded, _ := d.sums()
	if !d.parts[0].wanted {
		t.Joined = joinedBlocks
	} else if decoded < float64(d.tables.Decoded)*9/8 {
		return
	}
	t.Decoded = uint64(decoded)
}

// shards returns the shards of the parts that are read for a shard of the data set, by its number.
// set is the number of the first part.
func (d *Dataset) shards(ctx context.Context, number int, t *order.Table, set int) (all []planner.Shard, err error) {
	alone := d.parts[0].wanted // whether the data set itself is read
	var yields []string        // fields of it that are delivered where a layer lacks them
	if d.parts[0].pick != nil {
		yields = d.parts[0].pick.Yields
	}
	for i := range d.parts[1:] {
		p := &d.parts[1+i]
		if uint64(number) >= p.tables.Shards {
			alone = alone || len(yields) > 0
			continue
		}
		sh, err := p.catalog.Shard(ctx, number)
		if err != nil {
			return nil, p.failed(err)
		}
		if err := d.sameBlocks(ctx, p, sh.First, number, sh.Rows, t); err != nil {
			return nil, err
		}
		if !alone {
			if alone, err = p.lacks(ctx, sh, yields); err != nil {
				return nil, p.failed(err)
			}
		}
		sh.Removed = metadata.Within(d.tables.Removed, sh.First, sh.First+sh.Samples)
		// A purged sample has another key in the layer.
		purged := metadata.Within(p.tables.Purged, sh.First, sh.First+sh.Samples)
		if len(without(purged, sh.Removed)) > 0 {
			alone = true
		}
		all = append(all, planner.Shard{Of: sh, Set: set + 1 + i})
	}
	if !alone && len(all) > 0 {
		return all, nil
	}
	sh, err := d.catalog.OrderShard(ctx, number)
	if err != nil {
		return nil, err
	}
	return slices.Insert(all, 0, planner.Shard{Of: sh, Set: set}), nil
}

// sameBlocks compares the blocks of a shard of a layer with the data set's.
func (d *Dataset) sameBlocks(ctx context.Context, p *part, from uint64, number int, rows []format.Row,
	t *order.Table) error {
	first, err := d.FirstSample(ctx, number)
	if err != nil {
		return err
	}
	end := len(t.Samples)
	if number+1 < len(t.ShardFirst) {
		end = t.ShardFirst[number+1]
	}
	own := t.Samples[t.ShardFirst[number]:end]
	differ := func(what string, layer, base any) error {
		return p.failed(fmt.Errorf("%w: %s is %v, and %v in the data set %v: the layer %v is not of this data set, make it again",
			format.ErrMismatch, what, layer, base, d.Store(), p.Store()))
	}
	if from != first {
		return differ(fmt.Sprintf("the number of the first sample of shard %d", number), from, first)
	}
	block := 0
	for _, r := range rows {
		if r.Samples == 0 {
			continue
		}
		if block < len(own) && own[block] != r.Samples {
			return differ(fmt.Sprintf("the number of samples of block %d of shard %d", block, number), r.Samples,
				own[block])
		}
		block++
	}
	if block != len(own) {
		return differ(fmt.Sprintf("the number of blocks of shard %d", number), block, len(own))
	}
	return nil
}

// ownOnly refuses to deliver what is stored, where samples are delivered with other fields.
func (d *Dataset) ownOnly(what string) error {
	if d.plain() {
		return nil
	}
	return fmt.Errorf("%w: %s read one data set alone, and this one was opened with layers or some fields: read Samples, Blocks or a Stream", ErrFields, what)
}

// only returns the one part that is read for all samples. The error wraps ErrFields where there are
// several.
func (d *Dataset) only() (only *part, err error) {
	for i := range d.parts {
		p := &d.parts[i]
		if !p.wanted {
			continue
		}
		if only != nil || p.tables.Shards < d.tables.Shards || len(without(p.tables.Purged, d.tables.Removed)) > 0 {
			return nil, fmt.Errorf("%w: fields are of several data sets, so there are no rows: stream samples",
				ErrFields)
		}
		only = p
	}
	return only, nil
}
