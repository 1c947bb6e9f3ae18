package writer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/sys/extsort"
	"github.com/shardtool/shardtool/internal/sys/keysort"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/internal/stacker"
)

// layerBase is the data set that a layer is written for, as it was when the run began.
type layerBase struct {
	store objstore.Store
	m     *metadata.Manifest
	base  *metadata.Base
	first int      // shards that the layer covers before this run
	at    []uint64 // the number of the first sample of each shard, and the number of all samples
}

func layerBaseOf(store objstore.Store, m *metadata.Manifest) *layerBase {
	b, number := &layerBase{store: store, m: m}, uint64(0)
	for i := range m.Shards {
		b.at = append(b.at, number)
		number += m.Shards[i].Samples
	}
	b.at = append(b.at, number)
	return b
}

func openBase(ctx context.Context, store objstore.Store) (*metadata.Manifest, error) {
	var now current
	sum, err := now.read(ctx, store)
	if err == nil && sum == nil {
		err = fmt.Errorf("there is no data set to add a layer to: %w", errNoBase)
	}
	return now.manifest, err
}

// shardOf returns the shard of a sample.
func (b *layerBase) shardOf(number uint64) int {
	return sort.Search(len(b.at), func(i int) bool { return b.at[i] > number }) - 1
}

// index reads the index of a shard of the base.
func (b *layerBase) index(ctx context.Context, shard int) (*metadata.ShardIndex, error) {
	s := &b.m.Shards[shard]
	ix, err := loadEntry(ctx, b.store, s)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", b.store, format.InShard(s.Name, err))
	}
	return ix, nil
}

// key reads the key of one sample.
func (b *layerBase) key(ctx context.Context, number uint64) (string, error) {
	shard := b.shardOf(number)
	ix, err := b.index(ctx, shard)
	if err != nil {
		return "", err
	}
	return ix.Keys.At(int(number - b.at[shard])), nil
}

// entries returns a function that returns the hashes of the base's keys in ascending order, and
// false after the last.
func (b *layerBase) entries(ctx context.Context, dir string,
	memory int64) (next func() (samplekey.Entry, bool, error), done func(), err error) {
	total := b.at[len(b.m.Shards)]
	if b.m.Keys != (format.Hash{}) {
		table, err := openKeys(ctx, b.store, b.m.KeysName(), total)
		if err != nil {
			return nil, nil, fmt.Errorf("%v: %w", b.store, err)
		}
		return table.next, table.close, nil
	}
	if !allNumbered(b.m.Shards) {
		return nil, nil, fmt.Errorf("%v has no keys table to find samples by: give the rows in the order of the samples", b.store)
	}
	t := &totals{keys: keysort.New[samplekey.Entry](dir, memory)}
	if err := t.numberedKeys(b.m.Shards, func(int) bool { return false }); err != nil {
		return nil, nil, errors.Join(err, t.keys.Close())
	}
	pull, stop := iter.Pull2(t.keys.All())
	return func() (samplekey.Entry, bool, error) {
			e, err, ok := pull()
			return e, ok && err == nil, err
		}, func() {
			stop()
			_ = t.keys.Close()
		}, nil
}

// layerSource gives the samples of a layer in the order of the base: with the rows that the sources
// have for them, or with nothing. It also decides where blocks and shards end and how each shard is
// stored, in place of the options.
type layerSource struct {
	*layerBase
	opt    *LayerOptions
	pack   *Options
	report *LayerResult
	from   rowsFrom
	part   bool // this run writes one shard
	last   int  // the shard after the last one of this run

	got sortedRows
	// reader reads an ordered source; it is nil where the rows of all shards are sorted. ahead are
	// rows of it that belong to later shards, and ended reports that it has no more rows.
	reader *intake
	ahead  []aheadRow
	ended  bool
	purged []uint64 // samples that have nothing because they were removed from the base
	// replaced are objects of shards that settle rewrote.
	replaced []string

	shard int // the current one
	open  *openLayerShard
	out   rowCursor
}

// aheadRow is a record, and how many rows the source has given or left out before it.
type aheadRow struct {
	before uint64
	rec    []byte
}

// rowsFrom is where the rows are from.
type rowsFrom struct {
	Source
	meta  format.Metadata
	types format.Metadata // of a shard that was adopted
	sum   string          // fingerprint
}

// sortedRows are rows in the order of samples: of all shards, or of the current one in an ordered
// source.
type sortedRows struct {
	stacks layouts
	first  uint64   // number of the first sample of this run
	have   []uint64 // a bit for each sample from the first on, set where there is a row
	rows   []shardRows
	sorter *extsort.Sorter
	bytes  int64  // decoded, of the rows so far
	record []byte // memory of the one that is added
}

// rowCursor reads sorted rows.
type rowCursor struct {
	next   func() ([]byte, error, bool)
	stop   func()
	record []byte // the next one
	row    layerRow
	number uint64 // of the sample that Next returned last
}

// shardRows is what is known of the rows of a shard before it is written.
type shardRows struct {
	rows   uint64
	layout uint32 // that all rows have
	mixed  bool   // they have several, or one of them has none
	bytes  int64  // of the members of the rows
}

// openLayerShard is the shard whose samples Next returns.
type openLayerShard struct {
	keys  []string // as the layer has them
	empty map[int]bool
	ends  []uint64 // the number after each block
	stack *stacker.Stack
	how   keysOf
	zero  []Field // the row of a removed sample in a stacked shard
}

// put adds a row to the sorter.
func (s *layerSource) put(number uint64, r *layerRow, rec []byte) error {
	if s.had(number) {
		return r.failed(fmt.Errorf("%w: sample %d of the base has another row: keep one of them", format.ErrDuplicate,
			number))
	}
	at := number - s.got.first
	s.got.have[at/64] |= 1 << (at % 64)
	t := &s.got.rows[s.shardOf(number)]
	if t.rows == 0 {
		t.layout = r.layout
	}
	t.rows++
	t.mixed = t.mixed || r.layout == 0 || r.layout != t.layout
	n := r.members()
	t.bytes += n
	s.got.bytes += n
	s.got.record = append(binary.BigEndian.AppendUint64(s.got.record[:0], number), rec...)
	return s.got.sorter.Add(s.got.record)
}

func (s *layerSource) had(number uint64) bool {
	at := number - s.got.first
	return s.got.have[at/64]>>(at%64)&1 != 0
}

// wanted reports whether the row of a sample is used: the sample is not removed, nor covered.
func (s *layerSource) wanted(number uint64) (bool, error) {
	switch {
	case number >= s.at[s.last]:
		return false, fmt.Errorf("%w: %v: the keys table has sample number %d of %d", format.ErrCorrupt, s.store,
			number, s.at[s.last])
	case number < s.at[s.first]:
		s.report.Covered++
		return false, nil
	case gone(s.m.Removed, number):
		s.report.Removed++
		return false, nil
	}
	return true, nil
}

func (s *layerSource) newSorter() *extsort.Sorter {
	return extsort.New(s.pack.TempDir, min(s.pack.Memory/4, 256<<20))
}

// collect reads the rows of sources in any order and sorts them.
func (s *layerSource) collect(ctx context.Context) error {
	j, err := newJoin(s.pack.TempDir, s.pack.Memory/4)
	if err != nil {
		return err
	}
	defer j.close()
	in := &intake{src: s.from, take: j.add, workers: s.pack.Workers, stacks: &s.got.stacks}
	if err := in.all(ctx); err != nil {
		return err
	}
	s.report.Left += in.left
	next, done, err := s.entries(ctx, s.pack.TempDir, s.pack.Memory/8)
	if err != nil {
		return err
	}
	defer done()
	if err := j.match(next, s.wanted, s.unknown); err != nil {
		return err
	}
	s.got.sorter = s.newSorter()
	var r layerRow
	err = j.each(func(number uint64, rec []byte) error {
		if err := r.decode(rec); err != nil {
			return err
		}
		return s.put(number, &r, rec)
	})
	if err != nil || s.opt.Before == nil {
		return err
	}
	return s.keep(ctx)
}

// keep adds the rows of the generation before for samples that have no new one.
func (s *layerSource) keep(ctx context.Context) error {
	in := &intake{src: s.opt.Before, workers: s.pack.Workers, stacks: &s.got.stacks}
	in.take = func(r *layerRow, rec []byte, _ uint64) error {
		number := uint64(r.Row - 1)
		if r.Row < 1 || number >= s.at[s.last] {
			return r.failed(fmt.Errorf("%w: the layer has sample number %d, the base has %d", format.ErrMismatch,
				number, s.at[s.last]))
		}
		if s.had(number) || gone(s.m.Removed, number) {
			return nil
		}
		return s.put(number, r, rec)
	}
	return in.all(ctx)
}

// all reads the rest of a source.
func (in *intake) all(ctx context.Context) error {
	for {
		more, err := in.next(ctx)
		if err != nil {
			return err
		}
		if !more {
			return in.flush(ctx)
		}
	}
}

// unknown counts a row whose key no sample of the base has.
func (s *layerSource) unknown(r *layerRow) error {
	err := r.failed(fmt.Errorf("%w: no sample of the base has this key", ErrUnknownKey))
	if !s.opt.SkipUnknown {
		return err
	}
	s.report.Unknown++
	if s.opt.Skipped != nil {
		s.opt.Skipped(err)
	}
	return nil
}

// missing refuses samples without a row, once the rows of all are known.
func (s *layerSource) missing(ctx context.Context) error {
	count, firstOne := uint64(0), uint64(0)
	for n := s.at[s.first]; n < s.at[s.last]; n++ {
		if at := n - s.got.first; at%64 == 0 && s.got.have[at/64] == 1<<64-1 {
			n += 63
			continue
		}
		if s.had(n) || gone(s.m.Removed, n) {
			continue
		}
		if count++; count == 1 {
			firstOne = n
		}
	}
	s.report.Missing = count
	if count == 0 || s.opt.AllowMissing || s.opt.Before != nil {
		return nil
	}
	key, err := s.key(ctx, firstOne)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %d in all, the first is %q (number %d): add rows for them, or allow such samples",
		ErrMissingRow, count, key, firstOne)
}

// ordered takes the rows of an ordered source for the current shard.
func (s *layerSource) ordered(ctx context.Context) error {
	if s.got.sorter != nil {
		_ = s.got.sorter.Close()
	}
	s.got.sorter = s.newSorter()
	end := s.at[s.shard+1]
	in, last := s.reader, func() uint64 { return s.reader.last }
	in.take = func(r *layerRow, rec []byte, before uint64) error {
		number := before
		if !s.opt.ByPlace {
			number = uint64(r.Row - 1)
		}
		if number >= end && s.part {
			return r.failed(fmt.Errorf("%w: it is for sample %d, and the part ends before sample %d",
				format.ErrMismatch, number, end))
		}
		if number >= end { // rows are read several at once
			s.ahead = append(s.ahead, aheadRow{before, slices.Clone(rec)})
			return nil
		}
		if number < s.at[s.shard] && number >= s.at[s.first] { // of a shard that was adopted
			return nil
		}
		if keep, err := s.wanted(number); !keep || err != nil {
			return err
		}
		return s.put(number, r, rec)
	}
	if s.opt.ByPlace {
		last = func() uint64 { return in.count }
	}
	ahead := s.ahead
	s.ahead = nil
	for _, a := range ahead {
		var r layerRow
		if err := r.decode(a.rec); err != nil {
			return err
		}
		if err := in.take(&r, a.rec, a.before); err != nil {
			return err
		}
	}
	for last() < end || s.part { // a program ends the rows of a part
		more, err := in.next(ctx)
		if err != nil {
			return err
		}
		if !more {
			s.ended = true
			break
		}
	}
	return in.flush(ctx)
}

// begin prepares the current shard.
func (s *layerSource) begin(ctx context.Context) error {
	ix, err := s.index(ctx, s.shard)
	if errors.Is(err, fs.ErrNotExist) && s.refresh(ctx) == nil { // a purge deleted it
		ix, err = s.index(ctx, s.shard)
	}
	if err != nil {
		return err
	}
	base := &s.m.Shards[s.shard]
	if s.reader != nil {
		if err := s.ordered(ctx); err != nil {
			return err
		}
	}
	first, t := s.at[s.shard], &s.got.rows[s.shard]
	o := &openLayerShard{empty: map[int]bool{}, ends: make([]uint64, 0, base.Blocks)}
	o.keys = slices.Clone(ix.Keys.Slice())
	var clear []int
	for _, n := range metadata.Within(s.m.Removed, first, first+base.Samples) {
		if !gone(s.m.Purged, n) {
			clear = append(clear, int(n-first))
		}
		o.empty[int(n-first)] = true
		s.purged = append(s.purged, n)
	}
	for i, key := range purgedKeys(&ix.Keys, first, clear) {
		o.keys[clear[i]] = key
	}
	at, largest := first, uint32(0)
	for _, r := range base.Rows {
		if at += uint64(r.Samples); r.Samples > 0 {
			o.ends, largest = append(o.ends, at), max(largest, r.Samples)
		}
	}
	if at != first+base.Samples || base.Samples == 0 {
		return format.InShard(base.Name, fmt.Errorf("%w: %d samples in its blocks, %d in the tables", format.ErrCorrupt,
			at-first, base.Samples))
	}
	lacks := base.Samples - uint64(len(o.empty)) - t.rows
	if s.reader != nil {
		if s.report.Missing += lacks; lacks > 0 && !s.opt.AllowMissing {
			return s.lacks(o)
		}
	}
	if err := s.checkSize(); err != nil {
		return err
	}
	if s.pack.Layout != LayoutSamples && lacks == 0 && t.rows > 0 && !t.mixed {
		o.stacks(s.got.stacks[t.layout-1], first, largest)
	}
	if s.pack.Layout == LayoutStacked && o.stack == nil {
		return format.InShard(base.Name,
			fmt.Errorf("%w: its samples do not all have arrays of one type and shape, or a block of them is longer than 16 MiB", ErrLayout))
	}
	s.open = o
	if s.out.next == nil || s.reader != nil {
		if s.out.stop != nil {
			s.out.stop()
		}
		s.out.next, s.out.stop = iter.Pull2(s.got.sorter.All())
		s.out.record = nil
	}
	return nil
}

// lacks is the error of an ordered source that has too few rows for a shard.
func (s *layerSource) lacks(o *openLayerShard) error {
	for i, key := range o.keys {
		if n := s.at[s.shard] + uint64(i); !s.had(n) && !o.empty[i] {
			return fmt.Errorf("%w: the first of %d samples is number %d (%q): add rows for them, or allow such samples",
				ErrMissingRow, s.at[s.last], n, key)
		}
	}
	return nil
}

// checkSize refuses rows that are much larger than the blocks of the base allow for.
func (s *layerSource) checkSize() error {
	blocks, begin, end := uint64(0), s.first, s.last
	if s.reader != nil {
		end = s.shard + 1
	}
	if s.part {
		begin = s.shard
	}
	for i := begin; i < end; i++ {
		blocks += s.m.Shards[i].Blocks
	}
	if mean := s.got.bytes / int64(max(blocks, 1)); mean > format.MaxFrame && !s.opt.LargeBlocks {
		return hint.With(fmt.Errorf("%w: a block of the base would hold %d MiB of this layer on average, and each is read whole: pack the fields as a "+
			"data set of its own, or allow large blocks", format.ErrTooLarge, mean>>20),
			hint.Set("large-blocks", "true", ""))
	}
	return nil
}

// stacks settles that the shard is stacked, unless a block would be too long, and how keys are
// stored.
func (o *openLayerShard) stacks(st *stacker.Stack, first uint64, largest uint32) {
	width, how, at := 0, keysNumbered, first
	for _, end := range o.ends {
		var ranges samplekey.Ranges
		for _, key := range o.keys[at-first : end-first] {
			ranges.Add(key)
			width = max(width, len(key))
		}
		if !ranges.Numbered() || len(ranges) > 1+int(end-at)/16 {
			how = keysStored
		}
		at = end
	}
	if int64(largest)*(st.RowLen()+int64(width)) > format.MaxFrame-st.Headers() || len(o.keys) > stacked.MaxSamples {
		return
	}
	o.stack, o.how = st, how
	for i := range st.Layout.Fields {
		f := &st.Layout.Fields[i]
		o.zero = append(o.zero, Field{Name: f.Name, Data: append(f.Header(), make([]byte, f.Row())...)})
	}
}

// Next implements Source.
func (s *layerSource) Next(ctx context.Context) (Sample, error) {
	if s.shard == s.last {
		return Sample{}, s.end(ctx)
	}
	if s.open == nil {
		if err := s.begin(ctx); err != nil {
			return Sample{}, err
		}
		s.out.number = s.at[s.shard]
	} else {
		s.out.number++
	}
	for s.out.record == nil || binary.BigEndian.Uint64(s.out.record) < s.out.number {
		rec, err, more := s.out.next()
		if err != nil {
			return Sample{}, err
		}
		if s.out.record = rec; !more {
			s.out.record = binary.BigEndian.AppendUint64(nil, ^uint64(0))
		}
	}
	i := int(s.out.number - s.at[s.shard])
	out := Sample{Key: s.open.keys[i], Fields: []Field{{}}}
	switch {
	case s.open.empty[i]:
		if s.open.stack != nil {
			out.Fields = s.open.zero
		}
	case binary.BigEndian.Uint64(s.out.record) == s.out.number:
		if err := s.out.row.decode(s.out.record[8:]); err != nil {
			return out, err
		}
		if !s.opt.ByPlace && s.out.row.Key != out.Key {
			return out, s.out.row.failed(fmt.Errorf("%w: sample %d of the base has the key %q: its keys table is of another data set, or the rows are",
				format.ErrMismatch, s.out.number, out.Key))
		}
		key := out.Key
		out = s.out.row.Sample
		out.Key = key
		if s.opt.InOrder { // rows of the base have its attributes, and a layer that has them too could not be read
			out.Attrs = slices.DeleteFunc(out.Attrs, func(a format.AttrValue) bool {
				return !slices.Contains(s.base.Replaces, a.Name) && slices.ContainsFunc(s.m.Attributes,
					func(of format.Attribute) bool { return of.Name == a.Name })
			})
		}
	}
	return out, nil
}

// end checks that an ordered source has no more rows.
func (s *layerSource) end(ctx context.Context) error {
	if s.reader == nil || s.ended || !s.opt.ByPlace {
		return io.EOF
	}
	if s.reader.take == nil { // an earlier run has put all shards: their rows are not needed
		s.reader.take = func(*layerRow, []byte, uint64) error { return nil }
	}
	more, err := true, error(nil)
	for more && err == nil && s.reader.count <= s.at[s.last] {
		more, err = s.reader.next(ctx)
	}
	if err == nil && (more || len(s.ahead) > 0) {
		err = fmt.Errorf("%w: the source has more rows than the base has samples, %d: row i must be sample i",
			format.ErrMismatch, s.at[s.last])
	}
	return cmp.Or(err, io.EOF)
}

// begins returns how the shard of the sample that Next returned last is stored: its stack, or nil
// for an ordinary one.
func (s *layerSource) begins() (*stacker.Stack, keysOf) { return s.open.stack, s.open.how }

// ends reports what ends after that sample.
func (s *layerSource) ends() (block, shard bool) {
	if block = s.open.ends[0] == s.out.number+1; block {
		s.open.ends = s.open.ends[1:]
	}
	if shard = block && len(s.open.ends) == 0; shard {
		s.shard, s.open = s.shard+1, nil
	}
	return block, shard
}

// Cursor implements Source: the number of the shard of the next sample. After a part it has the
// types of the fields, which a run that adopts the shard cannot learn from its rows.
func (s *layerSource) Cursor() string {
	at := "shard " + strconv.Itoa(s.shard)
	if s.part && s.shard == s.last && s.Learned()[MetaTypes] != "" {
		at += " " + s.Learned()[MetaTypes]
	}
	return at
}

// Seek implements Source.
func (s *layerSource) Seek(ctx context.Context, cursor string) error {
	number, types, _ := strings.Cut(cursor[min(len("shard "), len(cursor)):], " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < s.first || n > s.last || s.open != nil {
		return fmt.Errorf("cursor %q is not a shard of a layer of %d", cursor, s.last)
	}
	if s.shard = n; types != "" {
		s.from.types = format.Metadata{MetaTypes: types}
	}
	return ctx.Err()
}

// Learned returns what the rows have told about their fields.
func (s *layerSource) Learned() format.Metadata {
	if l, ok := s.from.Source.(learner); ok && s.from.types == nil {
		return l.Learned()
	}
	return s.from.types
}

// Fingerprint, Meta, Total and Close implement Source.
func (s *layerSource) Fingerprint() string { return s.from.sum }

func (s *layerSource) Meta() format.Metadata { return s.from.meta }

func (s *layerSource) Total() (samples, bytes int64) {
	_, bytes = s.from.Total()
	return int64(s.at[s.last] - s.at[s.first]), bytes
}

func (s *layerSource) Close() error {
	if s.out.stop != nil {
		s.out.stop()
	}
	if s.got.sorter != nil {
		return s.got.sorter.Close()
	}
	return nil
}
