// Package readback reads a whole published data set back, slowly and with format alone, and checks
// everything that can be checked: for the writer's tests, which must not lean on package reader.
package readback

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/objstore"
)

// Field is a named payload.
type Field struct {
	Name string
	Data []byte
}

// Sample is the content of one sample, and its place.
type Sample struct {
	Key          string
	Fields       []Field
	Attrs        []format.AttrValue
	Shard, Block int
}

// Field returns a payload by name, or nil.
func (s *Sample) Field(name string) []byte {
	for _, f := range s.Fields {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// Set is a data set.
type Set struct {
	Summary  *metadata.Summary
	Manifest *metadata.Manifest
	Digest   format.Hash
	Samples  []Sample
}

// ByKey maps keys to samples; of several samples with one key it has the last.
func (s *Set) ByKey() map[string]*Sample {
	m := map[string]*Sample{}
	for i := range s.Samples {
		m[s.Samples[i].Key] = &s.Samples[i]
	}
	return m
}

// Keys returns the keys in storage order.
func (s *Set) Keys() []string {
	var keys []string
	for i := range s.Samples {
		keys = append(keys, s.Samples[i].Key)
	}
	return keys
}

// BlockSamples returns the numbers of samples of the blocks of shard i.
func (s *Set) BlockSamples(i int) []int {
	var n []int
	for _, r := range s.Manifest.Shards[i].Rows {
		if r.Samples > 0 {
			n = append(n, int(r.Samples))
		}
	}
	return n
}

const maxObject = 1 << 33

// Load reads the data set that manifest.json names.
func Load(ctx context.Context, store objstore.Store) (*Set, error) {
	text, _, err := objstore.ReadAll(ctx, store, format.ManifestName, maxObject)
	if err != nil {
		return nil, err
	}
	set := &Set{}
	if set.Summary, err = metadata.DecodeSummary(text); err != nil {
		return nil, err
	}
	tables, _, err := objstore.ReadAll(ctx, store, set.Summary.Tables, maxObject)
	if err != nil {
		return nil, err
	}
	if name := names.Tables(format.BlockHash(tables)); name != set.Summary.Tables {
		return nil, fmt.Errorf("tables %s hash to %s", set.Summary.Tables, name)
	}
	t, err := metadata.OpenTables(func(p []byte, off int64) error {
		copy(p, tables[off:])
		return nil
	}, int64(len(tables)))
	if err != nil {
		return nil, err
	}
	if set.Manifest, err = t.Load(); err != nil {
		return nil, err
	}
	set.Digest = t.Digest
	if want := t.Summary(set.Summary.Tables).Encode(); !bytes.Equal(want, text) {
		return nil, fmt.Errorf("manifest.json is\n%s, its tables say\n%s", text, want)
	}
	l := loader{ctx: ctx, store: store, set: set, dec: codec.NewDecoder(true), kinds: map[string]format.AttrKind{}}
	defer l.dec.Close()
	for i := range set.Manifest.Shards {
		if err := l.shard(i); err != nil {
			return nil, fmt.Errorf("%s: %w", set.Manifest.Shards[i].Name, err)
		}
	}
	if err := l.totals(); err != nil {
		return nil, err
	}
	return set, l.keys()
}

type loader struct {
	ctx   context.Context
	store objstore.Store
	set   *Set
	dec   *codec.Decoder
	kinds map[string]format.AttrKind
}

// object returns the bytes of a shard, the bytes of its tail, and the size for ParseTail.
func (l *loader) object(e *metadata.ShardEntry) (data, tail []byte, size int64, err error) {
	if data, _, err = objstore.ReadAll(l.ctx, l.store, e.Name, maxObject); err != nil {
		return nil, nil, 0, err
	}
	if uint64(len(data)) != e.Size {
		return nil, nil, 0, fmt.Errorf("object of %d bytes, the manifest says %d", len(data), e.Size)
	}
	if !e.Plain() {
		return data, data[uint64(len(data))-e.Tail:], int64(len(data)), nil
	}
	tail, _, err = objstore.ReadAll(l.ctx, l.store, e.IndexObject(), maxObject)
	if err == nil && uint64(len(tail)) != e.Tail {
		err = fmt.Errorf("sidecar of %d bytes, the manifest says %d", len(tail), e.Tail)
	}
	return data, tail, int64(len(tail)), err
}

func (l *loader) shard(number int) error {
	e := &l.set.Manifest.Shards[number]
	data, tailBytes, size, err := l.object(e)
	if err != nil {
		return err
	}
	tail, more, err := metadata.ParseTail(tailBytes, size)
	if err != nil || more > int64(len(tailBytes)) {
		return fmt.Errorf("tail: %d more bytes: %w", more, err)
	}
	off, n := tail.Cold()
	from := off - (size - int64(len(tailBytes)))
	ix, err := tail.DecodeCold(tailBytes[from : from+n])
	if err != nil {
		return err
	}
	if !slices.Equal(ix.Rows, e.Rows) || tail.Len != int64(e.Tail) || tail.Samples != e.Samples ||
		!tail.Layout.Equal(e.Layout) || !slices.Equal(tail.Numbered, e.Numbered) {
		return fmt.Errorf("index and tables differ")
	}
	eoa := data[tail.DataLen:tail.DataSize]
	if !bytes.Equal(eoa, metadata.EndOfArchive(e.Plain())) {
		return fmt.Errorf("no end of archive")
	}
	if lo, hi := ix.Keys.Ends(); lo != e.FirstKey || hi != e.LastKey {
		return fmt.Errorf("keys from %q to %q, the tables say %q to %q", lo, hi, e.FirstKey, e.LastKey)
	}
	hash, err := l.blocks(number, data[:tail.DataLen], ix)
	if err != nil {
		return err
	}
	if hash != e.Hash || ix.Meta["content"] != hash.String() {
		return fmt.Errorf("content hash %v, the tables say %v, the metadata %s", hash, e.Hash, ix.Meta["content"])
	}
	return nil
}

func (l *loader) blocks(number int, data []byte, ix *metadata.ShardIndex) (format.Hash, error) {
	var hasher metadata.ShardHasher
	sample, block := 0, 0
	for row := 0; row < len(ix.Rows); block++ {
		count := int(ix.Rows[row].Samples)
		var decoded []byte
		for first := true; row < len(ix.Rows) && (first || ix.Rows[row].Samples == 0); row++ {
			first = false
			r := ix.Rows[row]
			stored := data[:r.Stored]
			data = data[r.Stored:]
			if err := codec.CheckFrame(stored, r); err != nil {
				return format.Hash{}, err
			}
			var err error
			if decoded, err = l.dec.Decode(decoded, stored, r); err != nil {
				return format.Hash{}, err
			}
		}
		hasher.Add(format.BlockHash(decoded))
		check := metadata.NewBlockChecker(ix.Cursors([]int{sample})[0], count)
		if err := check.Write(decoded); err != nil {
			return format.Hash{}, err
		}
		if err := check.End(); err != nil {
			return format.Hash{}, err
		}
		if ix.Layout != nil { // the rest of this function sees an ordinary block
			var err error
			if decoded, err = ordinary(ix, sample, count, decoded); err != nil {
				return format.Hash{}, err
			}
		}
		it := tarblock.SampleIter{Walker: tarblock.Walker{Buf: decoded}}
		for it.Next() {
			if string(it.Key) != ix.Keys.At(sample) {
				return format.Hash{}, fmt.Errorf("sample %d is %q, the index says %q", sample, it.Key,
					ix.Keys.At(sample))
			}
			s := Sample{Key: string(it.Key), Shard: number, Block: block}
			for _, f := range it.Fields {
				s.Fields = append(s.Fields, Field{string(f.Name), f.Data})
			}
			for i := range ix.Attrs {
				if v, ok := ix.Attrs[i].At(sample); ok {
					s.Attrs = append(s.Attrs, v)
				}
			}
			l.set.Samples = append(l.set.Samples, s)
			sample++
			count--
		}
		if it.Err() != nil || count != 0 {
			return format.Hash{}, fmt.Errorf("block %d: %d samples too few: %w", block, count, it.Err())
		}
	}
	for _, a := range ix.Attributes {
		l.kinds[a.Name] = a.Kind
	}
	hasher.AddKeys(ix.Layout, ix.Keys.Ranges())
	return hasher.Sum(), nil
}

// ordinary returns a block of rows as an ordinary shard has it.
func ordinary(ix *metadata.ShardIndex, first, count int, decoded []byte) (out []byte, err error) {
	var rows stacked.Block
	if err := stacked.OpenBlock(&rows, decoded, ix.Layout, uint64(first), count, ix.Keys.Ranges() != nil); err != nil {
		return nil, err
	}
	for i := range count {
		out = rows.AppendTar(out, i, []byte(ix.Keys.At(first+i)))
	}
	return out, nil
}

func (l *loader) totals() error {
	totals := map[string]format.FieldTotal{}
	for _, s := range l.set.Samples {
		for _, f := range s.Fields {
			n := uint64(len(f.Data))
			t, ok := totals[f.Name]
			if !ok {
				t = format.FieldTotal{Name: f.Name, Min: n}
			}
			t.Samples, t.Bytes, t.Min, t.Max = t.Samples+1, t.Bytes+n, min(t.Min, n), max(t.Max, n)
			totals[f.Name] = t
		}
	}
	var want []format.FieldTotal
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		want = append(want, totals[name])
	}
	if !slices.Equal(want, l.set.Manifest.Fields) {
		return fmt.Errorf("fields %+v, the tables say %+v", want, l.set.Manifest.Fields)
	}
	var attrs []format.Attribute
	for _, name := range slices.Sorted(maps.Keys(l.kinds)) {
		attrs = append(attrs, format.Attribute{Name: name, Kind: l.kinds[name]})
	}
	if !slices.Equal(attrs, l.set.Manifest.Attributes) {
		return fmt.Errorf("attributes %+v, the tables say %+v", attrs, l.set.Manifest.Attributes)
	}
	return l.attrTotals()
}

// attrTotals compares the totals of integer attributes with the samples.
func (l *loader) attrTotals() error {
	sums := map[string]*metadata.AttrTotal{}
	for _, s := range l.set.Samples {
		for _, a := range s.Attrs {
			if a.Kind != format.AttrInteger {
				continue
			}
			if sums[a.Name] == nil {
				sums[a.Name] = &metadata.AttrTotal{Name: a.Name}
			}
			sums[a.Name].Add(a.Integer)
		}
	}
	var want []metadata.AttrTotal
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		want = append(want, *sums[name])
	}
	if !slices.Equal(want, l.set.Manifest.AttrTotals) {
		return fmt.Errorf("totals of attributes %+v, the tables say %+v", want, l.set.Manifest.AttrTotals)
	}
	return nil
}

// keys compares the keys table with the keys of the samples.
func (l *loader) keys() error {
	var want []samplekey.Entry
	for i := range l.set.Samples {
		want = append(want, samplekey.Entry{Hash: samplekey.Hash(l.set.Samples[i].Key), Number: uint64(i)})
	}
	slices.SortFunc(want, samplekey.Entry.Compare)
	var buf bytes.Buffer
	err := samplekey.WriteTable(&buf, uint64(len(want)), func(yield func(samplekey.Entry, error) bool) {
		for i := 0; i < len(want) && yield(want[i], nil); i++ {
		}
	})
	if err != nil {
		return err
	}
	numbered := !slices.ContainsFunc(l.set.Manifest.Shards,
		func(s metadata.ShardEntry) bool { return s.Numbered == nil })
	if name := l.set.Manifest.KeysName(); numbered && name == "" {
		return nil
	}
	got, _, err := objstore.ReadAll(l.ctx, l.store, l.set.Manifest.KeysName(), maxObject)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, buf.Bytes()) || format.BlockHash(got) != l.set.Manifest.Keys {
		return fmt.Errorf("keys table %s does not belong to the samples", l.set.Manifest.KeysName())
	}
	return nil
}
