// Package reshard reads data sets as a writer.Source: to change the size of shards, join data sets,
// divide one into training and validation, or select by attributes, keys or fields.
//
//	d, err := reader.Open(ctx, from, reader.Options{})
//	src, err := reshard.New(ctx, []*reader.Dataset{d}, reshard.Options{})
//	result, err := writer.Pack(ctx, to, src, writer.Options{ShardSize: 64 << 20})
//
// The source yields the samples in storage order, one data set after the other, with their
// attributes. It reads blocks ahead of Next, compares them with their checksums and decodes them on
// all cores, within the data set's Options.Memory. A block too large for that is read field by
// field when a worker of the writer needs it. Each sample of a damaged block is a
// *writer.SampleError with the place of the damage.
//
// Metadata on which all data sets agree, such as the names of classes, is kept. Data sets that use
// one class number for different classes are refused.
//
// [RemoveKeys] takes samples out of a data set by their keys, for example because a person asks for
// it or a licence ends.
package reshard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/stems"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// Options select samples and fields. The zero value selects all of them.
type Options struct {
	// Fields, when not empty, are the fields to take. A sample that has none of them is a
	// *writer.SampleError.
	Fields []string
	// Rename gives fields other names.
	Rename map[string]string
	// Include, when not empty, selects only samples whose keys match one of these globs; Exclude
	// then removes the samples that it matches. A glob without a slash is matched against what
	// follows the key's last slash, others against the whole key; ** crosses slashes.
	Include, Exclude []string
	// Where selects samples whose attributes fulfil all these conditions: a name, one of = != < <=
	// > >=, and a value, or `name is null`, `name is not null`. Blocks without such a sample are
	// not read.
	Where []string
	// Share selects the samples whose keys fall into it.
	Share Share
	// KeyPrefix has the keys of each data set begin with its name, a/000000 for the sample 000000 of
	// the data set a, because they may be the same in several. As many folders precede the name as it
	// takes to tell them apart. The other options see the keys without it.
	KeyPrefix bool `json:",omitempty"`
	// Classes are the names of the classes of the data set that the samples are appended to.
	Classes []string
}

// joined is the samples of data sets, in order.
type joined struct {
	sets   []*set
	filter *filter
	names  map[string]*fieldName
	shape  fieldChoice
	meta   format.Metadata
	sum    string
	total  uint64 // samples of all sets

	begin, end uint64 // the part, in samples over all sets
	from       uint64 // where reading began, likewise
	// taken are the samples from there on that were given or refused, and left those that were not
	// selected. The others were removed.
	taken int64
	left  writer.RowsLeft
	set   int    // the current one
	at    uint64 // number of the next sample in it

	open   *reading
	block  *reader.Block
	large  *largeBlock
	bad    *badBlock
	fields []writer.Field
	attrs  []format.AttrValue
}

// set is one of the data sets.
type set struct {
	*reader.Dataset
	path   string // for messages
	before string // the beginning of the keys
	first  uint64 // number of its first sample over all sets
	bare   bool   // no sample has attributes
	// shard is the shard of the last sample, index its index.
	shard      int
	shardFirst uint64
	index      *metadata.ShardIndex
}

// fieldName is what becomes of a field.
type fieldName struct {
	name string
	drop bool
}

// reading is an iteration over blocks.
type reading struct {
	next   func() (*reader.Block, error, bool)
	passed *passed
	stop   func()
	cancel context.CancelCauseFunc
}

// New returns a source of data sets, which the caller keeps open while it uses the source and then
// closes. A sample is valid until the next call of Next; large payloads may be read later, from
// other goroutines, as long as the data sets are open.
//
// A data set with a view in use gives the samples of the view, which must be a subset. New
// reads no sample. Errors in the options wrap writer.ErrOptions.
func New(ctx context.Context, sets []*reader.Dataset, opt Options) (writer.Splitter, error) {
	if len(sets) == 0 {
		return nil, errors.New("there is no data set to read")
	}
	s := &joined{names: map[string]*fieldName{}}
	for _, d := range sets {
		path := fmt.Sprintf("%v@%s", d.Store(), names.Generation(d.Info().Tables))
		if d.Selection().ID() != "" {
			path += "#" + d.Selection().ID()
		}
		for _, other := range s.sets {
			if other.path == path {
				return nil, fmt.Errorf("%s is given twice: its samples would occur twice", path)
			}
		}
		s.sets = append(s.sets, &set{Dataset: d, path: path, first: s.total, bare: len(d.Info().Attributes) == 0,
			shard: -1})
		s.total += d.NumSamples()
	}
	s.end = s.total
	var err error
	if opt.KeyPrefix {
		if err := s.setPrefixes(); err != nil {
			return nil, err
		}
	}
	if s.filter, err = newFilter(s.sets, opt); err != nil {
		return nil, err
	}
	if err := s.chooseFields(opt); err != nil {
		return nil, err
	}
	if s.meta, err = mergeMeta(s.sets, opt.Classes); err != nil {
		return nil, err
	}
	types, err := s.types()
	if err != nil {
		return nil, err
	}
	maps.Copy(s.meta, types)
	s.sum = fingerprint(s.sets, opt)
	return s, ctx.Err()
}

// setPrefixes has the keys of each data set begin with its name.
func (s *joined) setPrefixes() error {
	var paths []string
	for _, of := range s.sets {
		paths = append(paths, fmt.Sprint(of.Store()))
	}
	list, err := stems.Of(paths)
	for i := range list {
		s.sets[i].before = list[i] + "/"
	}
	return err
}

// Next implements writer.Source.
func (s *joined) Next(ctx context.Context) (writer.Sample, error) {
	for {
		if err := ctx.Err(); err != nil {
			return writer.Sample{}, context.Cause(ctx)
		}
		var out writer.Sample
		var ok bool
		var err error
		switch {
		case s.block != nil:
			out, ok, err = s.fromBlock(ctx)
		case s.large != nil:
			out, ok, err = s.fromLarge(ctx)
		case s.bad != nil:
			err = s.fromBad(ctx)
		default:
			var more bool
			if more, err = s.advance(ctx); err == nil && !more {
				err = io.EOF
			}
		}
		if _, refused := errors.AsType[*writer.SampleError](err); ok || refused {
			s.taken++
		}
		if ok || err != nil {
			return out, err
		}
	}
}

// LeftOut counts the samples that are not selected or were removed, see writer.LeftOut.
func (s *joined) LeftOut() (before, behind writer.RowsLeft) {
	left := s.left
	if at := s.sets[s.set].first + s.at; at > s.from {
		left.Removed = int64(at-s.from) - s.taken - left.Total()
	}
	return left, writer.RowsLeft{}
}

// limit is the end of the part in the current set.
func (s *joined) limit() uint64 {
	of := s.sets[s.set]
	return min(of.NumSamples(), s.end-min(of.first, s.end))
}

// advance moves to the next block, and reports whether there is one.
func (s *joined) advance(ctx context.Context) (bool, error) {
	for s.set < len(s.sets) {
		of, limit := s.sets[s.set], s.limit()
		if s.at >= limit {
			s.drop()
			if of.first+limit >= s.end {
				return false, nil
			}
			s.set, s.at = s.set+1, 0
			continue
		}
		if s.open == nil {
			s.open = s.read(ctx, of, limit)
		}
		// The iteration outlives the context of this call: each call has another one.
		cancel := s.open.cancel
		stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		b, err, ok := s.open.next()
		if !stop() && ctx.Err() != nil {
			s.drop()
			return false, context.Cause(ctx)
		}
		if ok && err != nil && (b == nil || !reader.Damaged(err)) {
			s.drop()
			return false, fmt.Errorf("%v: %w", of.Store(), err)
		}
		next := limit // all that is left is left out
		if ok {
			next = max(s.at, b.First)
		}
		s.left = s.left.Plus(s.open.passed.before(next))
		s.at = next
		if !ok {
			continue
		}
		end := min(b.First+uint64(b.Samples), limit)
		switch {
		case err != nil:
			s.bad = &badBlock{shard: b.Shard, end: end, err: err}
		case b.Large:
			s.large = &largeBlock{shard: b.Shard, end: end}
		default:
			s.block = b
		}
		return true, nil
	}
	return false, nil
}

// read begins an iteration at the current place.
func (s *joined) read(ctx context.Context, of *set, limit uint64) *reading {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p := &passed{from: s.at, to: limit}
	next, stop := iter.Pull2(of.Blocks(ctx, reader.BlockOptions{From: s.at, To: limit, Take: s.filter.take(of, p)}))
	return &reading{next: next, stop: stop, cancel: cancel, passed: p}
}

// drop ends the iteration and keeps the place.
func (s *joined) drop() {
	s.block, s.large, s.bad = nil, nil, nil
	if s.open != nil {
		s.open.cancel(nil)
		s.open.stop()
		s.open = nil
	}
}

// fromBlock takes the next sample of the current block, or skips it.
func (s *joined) fromBlock(ctx context.Context) (writer.Sample, bool, error) {
	of := s.sets[s.set]
	in, err := s.block.Next()
	if err != nil {
		first, end, shard := s.block.First, s.block.First+uint64(s.block.Samples), s.block.Shard
		s.block = nil
		s.at = max(s.at, first)
		end = min(end, s.limit())
		if errors.Is(err, io.EOF) {
			s.at = end
		} else {
			s.bad = &badBlock{shard: shard, end: end, err: err}
		}
		return writer.Sample{}, false, nil
	}
	switch {
	case in.Number < s.at:
		return writer.Sample{}, false, nil
	case in.Number >= s.limit():
		s.block = nil
		s.at = s.limit()
		return writer.Sample{}, false, nil
	}
	s.at = in.Number + 1
	if !s.chosen(in.Key) {
		return writer.Sample{}, false, nil
	}
	ok, err := s.attributes(ctx, of, s.block.Shard, in.Number)
	switch {
	case err != nil && reader.Damaged(err):
		return writer.Sample{}, false, &writer.SampleError{Origin: of.path, Source: of.path, Row: int64(in.Number) + 1,
			Key: string(in.Key), Err: err}
	case err != nil:
		s.at = in.Number // it was not given
		s.drop()
		return writer.Sample{}, false, fmt.Errorf("%v: %w", of.Store(), err)
	case !ok:
		return writer.Sample{}, false, nil
	}
	s.fields = s.fields[:0]
	for i := range in.Fields {
		f := &in.Fields[i]
		n := s.names[string(f.Name)]
		if n == nil {
			n = s.name(string(f.Name))
		}
		if !n.drop {
			s.fields = append(s.fields, writer.Field{Name: n.name, Data: f.Data})
		}
	}
	return s.sample(of, string(in.Key), in.Number)
}

// sample makes a sample of the fields and attributes.
func (s *joined) sample(of *set, key string, number uint64) (writer.Sample, bool, error) {
	if len(s.fields) == 0 {
		return writer.Sample{}, false, &writer.SampleError{Origin: of.path, Source: of.path, Row: int64(number) + 1,
			Key: key, Err: fmt.Errorf("it has none of the fields %s", s.shape)}
	}
	return writer.Sample{Key: of.before + key, Fields: s.fields, Attrs: s.attrs, Origin: of.path, Source: of.path,
		Row: int64(number) + 1}, true, nil
}

// attributes reads a sample's attributes, and reports whether they fulfil the conditions.
func (s *joined) attributes(ctx context.Context, of *set, shard int, number uint64) (bool, error) {
	s.attrs = s.attrs[:0]
	if !of.Selection().Has(number) {
		s.left.Filtered++
		return false, nil
	}
	if of.bare {
		return s.holds(s.filter.noAttributes()), nil
	}
	if err := of.load(ctx, shard); err != nil {
		return false, err
	}
	i := int(number - of.shardFirst)
	for c := range of.index.Attrs {
		if v, ok := of.index.Attrs[c].At(i); ok {
			s.attrs = append(s.attrs, v)
		}
	}
	return s.holds(s.filter.attributes(of.index, i)), nil
}

// chosen reports whether the key of a sample is chosen, and counts one that is not.
func (s *joined) chosen(key []byte) bool {
	ok := s.filter.key(key)
	if !ok {
		s.left.Filtered++
	}
	return ok
}

// holds counts a sample that does not fulfil the conditions.
func (s *joined) holds(ok bool) bool {
	if !ok {
		s.left.Where++
	}
	return ok
}

// load reads a shard's index.
func (of *set) load(ctx context.Context, shard int) error {
	if of.shard == shard {
		return nil
	}
	ix, err := of.Index(ctx, shard)
	if err != nil {
		return err
	}
	first, err := of.FirstSample(ctx, shard)
	if err != nil {
		return err
	}
	of.index, of.shard, of.shardFirst = ix, shard, first
	return nil
}

// Cursor is the number of the data set and the number of the next sample in it.
func (s *joined) Cursor() string { return fmt.Sprintf("%d:%d", s.set, s.at) }

// Seek moves to a cursor. It reads at most one block again.
func (s *joined) Seek(ctx context.Context, cursor string) error {
	left, right, ok := strings.Cut(cursor, ":")
	n, err := strconv.Atoi(left)
	at, err2 := strconv.ParseUint(right, 10, 64)
	if !ok || err != nil || err2 != nil || n < 0 || n >= len(s.sets) || at > s.sets[n].NumSamples() {
		return fmt.Errorf("cursor %q is not a place in %d data sets of %d samples", cursor, len(s.sets), s.total)
	}
	if place := s.sets[n].first + at; place < s.begin || place > s.end {
		return fmt.Errorf("cursor %q is not in this part, which has the samples %d to %d", cursor, s.begin, s.end)
	}
	s.drop()
	s.set, s.at = n, at
	s.count(s.sets[n].first + at)
	return ctx.Err()
}

// count begins to count what is left out.
func (s *joined) count(from uint64) { s.from, s.taken, s.left = from, 0, writer.RowsLeft{} }

// Split implements writer.Splitter. Parts are runs of samples of equal length, counted over all
// data sets before any selection.
func (s *joined) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("there is no part %d of %d: parts count from 0", part, parts)
	}
	s.drop()
	s.begin, s.end = order.Share(s.total, part, parts), order.Share(s.total, part+1, parts)
	for s.set = 0; s.set+1 < len(s.sets) && s.sets[s.set+1].first <= s.begin; s.set++ {
	}
	s.at = s.begin - s.sets[s.set].first
	s.count(s.begin)
	return nil
}

// Fingerprint covers content and tables of all data sets, in their order, and the options.
func (s *joined) Fingerprint() string { return "dataset:" + s.sum }

// Meta is the metadata on which all data sets agree, without what the writer writes itself.
func (s *joined) Meta() format.Metadata { return s.meta }

// Total returns the number of samples and the bytes of the selected fields, of the part after
// Split. With a selection the number of samples is not known beforehand and 0; the bytes are then
// estimated from Share, and 0 with Where, Include or Exclude.
func (s *joined) Total() (samples, bytes int64) {
	var all float64
	for _, of := range s.sets {
		for _, f := range of.Fields() {
			if !s.name(f.Name).drop {
				all += float64(f.Bytes)
			}
		}
	}
	share := s.filter.opt.Share.fraction() * float64(s.end-s.begin) / float64(max(s.total, 1))
	switch {
	case s.filter.selective():
		return 0, 0
	case s.filter.opt.Share.all():
		return int64(s.end - s.begin), int64(all * share)
	}
	return 0, int64(all * share)
}

// Close stops reading ahead. The data sets stay open.
func (s *joined) Close() error {
	s.drop()
	s.set, s.at = len(s.sets)-1, s.sets[len(s.sets)-1].NumSamples()
	s.end = 0
	return nil
}
