// Package reshard has the samples of data sets as a writer.Source: to cut shards anew, to join data
// sets, to divide one into training and validation, to take a part of one by its attributes, keys
// or fields.
//
//	d, err := reader.Open(ctx, from, reader.Options{})
//	src, err := reshard.New(ctx, []*reader.Dataset{d}, reshard.Options{})
//	result, err := writer.Pack(ctx, to, src, writer.Options{ShardSize: 64 << 20})
//
// Samples come in storage order, one data set behind the other, with their attributes. Blocks are
// read, compared with their checksums and decoded on all cores, ahead of Next and within the data
// set's Options.Memory; a block too large for that is read field by field when the writer gets to
// it. The samples of a block that is damaged are each a *writer.SampleError that says where the
// damage is.
//
// What names things rather than samples goes along where all data sets agree on it, the names of
// classes above all. Class numbers that mean something else in one data set than in another are
// refused.
package reshard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// ErrOption is what errors wrap that are in the options. They name the option as it is called in
// Options, in lower case.
var ErrOption = errors.New("option")

// Options choose samples and fields. The zero value takes all of them.
type Options struct {
	// Fields, when not empty, are the fields to take. A sample that has none of them is a
	// *writer.SampleError.
	Fields []string
	// Rename gives fields other names.
	Rename map[string]string
	// Include, when not empty, takes only samples whose keys one of these globs matches; Exclude
	// then leaves out. A glob without a slash is held against what follows the key's last slash,
	// others against the whole key; ** crosses slashes.
	Include, Exclude []string
	// Where takes samples whose attributes fulfil all these conditions: a name, one of = != < <= >
	// >=, and a value, or `name is null`, `name is not null`. Blocks in which no sample does are
	// not read.
	Where []string
	// Share takes the samples whose keys fall into it.
	Share Share
	// Classes are the names of classes of what the samples are to be added to.
	Classes []string
}

// Source is the samples of data sets, in order. It is for one goroutine. A sample is valid until
// the next call of Next; large payloads may be read later, from other goroutines, as long as the
// data sets are open.
type Source struct {
	sets   []*set
	filter *filter
	names  map[string]*fieldName
	shape  fieldChoice
	meta   format.Metadata
	sum    string
	total  uint64 // samples of all sets

	begin, end uint64 // the part, in samples over all sets
	set        int    // at hand
	at         uint64 // number of the next sample in it

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
	path  string // for messages
	first uint64 // number of its first sample over all sets
	// shard and index are of the shard that samples were taken from last.
	shard      int
	shardFirst uint64
	index      *format.ShardIndex
}

// fieldName is what becomes of a field.
type fieldName struct {
	name string
	drop bool
}

// reading is an iteration over blocks under way.
type reading struct {
	next   func() (*reader.Block, error, bool)
	stop   func()
	cancel context.CancelCauseFunc
}

// New makes a source of data sets, which stay the caller's and open as long as the source is used.
// It reads no sample. Errors in the options wrap ErrOption.
func New(ctx context.Context, sets []*reader.Dataset, opt Options) (*Source, error) {
	if len(sets) == 0 {
		return nil, errors.New("reshard: there is no data set to read")
	}
	s := &Source{names: map[string]*fieldName{}}
	for _, d := range sets {
		path := fmt.Sprintf("%v@%s", d.Store(), strings.TrimSuffix(strings.TrimPrefix(d.Tables(), "manifest-"), ".bin"))
		for _, other := range s.sets {
			if other.path == path {
				return nil, fmt.Errorf("reshard: %s is given twice: its samples would come twice", path)
			}
		}
		s.sets = append(s.sets, &set{Dataset: d, path: path, first: s.total, shard: -1})
		s.total += d.NumSamples()
	}
	s.end = s.total
	var err error
	if s.filter, err = newFilter(s.sets, opt); err != nil {
		return nil, err
	}
	if err := s.chooseFields(opt); err != nil {
		return nil, err
	}
	if s.meta, err = mergeMeta(s.sets, opt.Classes); err != nil {
		return nil, err
	}
	s.sum = fingerprint(s.sets, opt)
	return s, ctx.Err()
}

// Next is writer.Source's.
func (s *Source) Next(ctx context.Context) (writer.Sample, error) {
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
			ok, err = s.fromBad(ctx)
		default:
			var more bool
			if more, err = s.advance(ctx); err == nil && !more {
				err = io.EOF
			}
		}
		if ok || err != nil {
			return out, err
		}
	}
}

// limit is where the part ends in the set at hand.
func (s *Source) limit() uint64 {
	of := s.sets[s.set]
	return min(of.NumSamples(), s.end-min(of.first, s.end))
}

// advance goes to the next block, and says whether there was one.
func (s *Source) advance(ctx context.Context) (bool, error) {
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
		// The iteration lives under a context of its own, since each call brings one.
		cancel := s.open.cancel
		stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		b, err, ok := s.open.next()
		if !stop() && ctx.Err() != nil {
			s.drop()
			return false, context.Cause(ctx)
		}
		switch {
		case !ok: // all that is left is left out
			s.at = limit
		case err != nil && (b == nil || !reader.Damaged(err)):
			s.drop()
			return false, fmt.Errorf("%v: %w", of.Store(), err)
		case err != nil:
			s.at = max(s.at, b.First)
			s.bad = &badBlock{shard: b.Shard, end: min(b.First+uint64(b.Samples), limit), err: err}
			return true, nil
		case b.Large:
			s.at = max(s.at, b.First)
			s.large = &largeBlock{shard: b.Shard, end: min(b.First+uint64(b.Samples), limit)}
			return true, nil
		default:
			s.block = b
			return true, nil
		}
	}
	return false, nil
}

// read begins an iteration at the place.
func (s *Source) read(ctx context.Context, of *set, limit uint64) *reading {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	next, stop := iter.Pull2(of.Blocks(ctx, reader.BlockOptions{From: s.at, To: limit, Take: s.filter.take(of)}))
	return &reading{next: next, stop: stop, cancel: cancel}
}

// drop ends the iteration; the place stays.
func (s *Source) drop() {
	s.block, s.large, s.bad = nil, nil, nil
	if s.open != nil {
		s.open.cancel(nil)
		s.open.stop()
		s.open = nil
	}
}

// fromBlock looks at the next sample of the block at hand, which may not be wanted.
func (s *Source) fromBlock(ctx context.Context) (writer.Sample, bool, error) {
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
	if !s.filter.key(in.Key) {
		return writer.Sample{}, false, nil
	}
	ok, err := s.attributes(ctx, of, s.block.Shard, in.Number)
	switch {
	case err != nil && reader.Damaged(err):
		return writer.Sample{}, false, &writer.SampleError{Origin: of.path, Source: of.path, Row: int64(in.Number) + 1, Key: string(in.Key), Err: err}
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

// sample puts the fields and attributes together.
func (s *Source) sample(of *set, key string, number uint64) (writer.Sample, bool, error) {
	if len(s.fields) == 0 {
		return writer.Sample{}, false, &writer.SampleError{Origin: of.path, Source: of.path, Row: int64(number) + 1, Key: key,
			Err: fmt.Errorf("it has none of the fields %s", s.shape)}
	}
	return writer.Sample{Key: key, Fields: s.fields, Attrs: s.attrs, Origin: of.path, Source: of.path, Row: int64(number) + 1}, true, nil
}

// attributes gets a sample's attributes, and says whether they fulfil the conditions.
func (s *Source) attributes(ctx context.Context, of *set, shard int, number uint64) (bool, error) {
	s.attrs = s.attrs[:0]
	if len(of.Attributes()) == 0 {
		return s.filter.noAttributes(), nil
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
	return s.filter.attributes(of.index, i), nil
}

// load gets a shard's index.
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

// Cursor is the data set's number, and that of the sample in it that is looked at next.
func (s *Source) Cursor() string { return fmt.Sprintf("%d:%d", s.set, s.at) }

// Seek goes to a cursor. What is read again is one block at most.
func (s *Source) Seek(ctx context.Context, cursor string) error {
	left, right, ok := strings.Cut(cursor, ":")
	n, err := strconv.Atoi(left)
	at, err2 := strconv.ParseUint(right, 10, 64)
	if !ok || err != nil || err2 != nil || n < 0 || n >= len(s.sets) || at > s.sets[n].NumSamples() {
		return fmt.Errorf("reshard: cursor %q is no place in %d data sets of %d samples", cursor, len(s.sets), s.total)
	}
	if place := s.sets[n].first + at; place < s.begin || place > s.end {
		return fmt.Errorf("reshard: cursor %q is not in this part, which has the samples %d to %d", cursor, s.begin, s.end)
	}
	s.drop()
	s.set, s.at = n, at
	return ctx.Err()
}

// Split is writer.Splitter's. Parts are runs of samples of equal length, counted over all data sets
// before anything is left out.
func (s *Source) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("reshard: there is no part %d of %d: parts count from 0", part, parts)
	}
	s.drop()
	s.begin, s.end = fraction(s.total, part, parts), fraction(s.total, part+1, parts)
	for s.set = 0; s.set+1 < len(s.sets) && s.sets[s.set+1].first <= s.begin; s.set++ {
	}
	s.at = s.begin - s.sets[s.set].first
	return nil
}

// Fingerprint covers content and tables of all data sets, in their order, and the options.
func (s *Source) Fingerprint() string { return "dataset:" + s.sum }

// Meta is what all data sets agree on beside what the writer notes itself.
func (s *Source) Meta() format.Metadata { return s.meta }

// Total counts samples, and the bytes of the fields that are taken: of the part after Split. Where
// samples are left out their number is not known beforehand and 0; bytes are then what Share lets
// expect, and 0 where Where, Include or Exclude choose.
func (s *Source) Total() (samples, bytes int64) {
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

// Close ends what is read ahead. The data sets stay open.
func (s *Source) Close() error {
	s.drop()
	s.set, s.at = len(s.sets)-1, s.sets[len(s.sets)-1].NumSamples()
	s.end = 0
	return nil
}
