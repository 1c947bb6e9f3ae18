// Package testset makes data sets for the reader's tests: what a writer makes, out of package
// format alone, since the reader's tests must not need the writer.
package testset

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/objstore"
)

// Field is a named piece of a sample.
type Field struct {
	Name string
	Data []byte
}

// Sample is a key and its fields, in ascending order of names.
type Sample struct {
	Key    string
	Fields []Field
}

// Options say how samples become shards.
type Options struct {
	// BlockSize closes a block, FrameSize divides it, ShardSize closes a shard: in decoded bytes.
	// Zero: 1 MiB, 16 MiB, 256 MiB.
	BlockSize, FrameSize, ShardSize int
	// Plain makes .tar shards with sidecars.
	Plain bool
	// NoKeys leaves the keys table out.
	NoKeys bool
	// Raw stores frames without compressing them, whatever they hold.
	Raw bool
	// Level is the level of the encoder.
	Level codec.Level
	// KeyHash replaces samplekey.Hash in the keys table, to make hashes collide.
	KeyHash func(key string) uint64
	// Label, when not nil, gives each sample an attribute "label".
	Label func(key string) string
	// Length, when not nil, gives each sample an integer attribute "length", whose total the tables
	// do not have.
	Length func(key string) int64
	// Integer, when not nil, gives each sample an attribute "tokens", unless it returns false.
	Integer func(key string) (int64, bool)
	// Member names the members of blocks in place of format.JoinName, so that headers say what the
	// index does not.
	Member func(key, field string) string
	// Edit, when not nil, changes the manifest before its tables are written.
	Edit func(*metadata.Manifest)
}

// Set is what Build made.
type Set struct {
	Manifest *metadata.Manifest
	Tables   string
	Summary  *metadata.Summary
	// Keys are the keys of all samples, in storage order.
	Keys []string
}

// Build packs samples into a store. It keeps one shard in memory.
func Build(ctx context.Context, store objstore.Store, samples iter.Seq[Sample], o Options) (*Set, error) {
	b := newBuilder(ctx, store, o)
	defer b.encoder.Close()
	for s := range samples {
		if err := b.add(s); err != nil {
			return nil, err
		}
		if len(b.block.Buf) < b.o.BlockSize {
			continue
		}
		if err := b.endBlock(); err != nil {
			return nil, err
		}
		if b.decoded >= b.o.ShardSize {
			if err := b.endShard(); err != nil {
				return nil, err
			}
		}
	}
	return b.finish()
}

// Layer makes a layer over a data set that Build made: the samples have the fields that the
// function returns for their key, and where it returns none they have nothing. replaces are the
// names that the layer replaces, ascending. The sizes in o are ignored, because the cuts are those
// of the base, and so is NoKeys. o.Edit can put another base into the manifest, or remove samples.
func Layer(ctx context.Context, store objstore.Store, base *Set, replaces []string, fields func(key string) []Field,
	o Options) (*Set, error) {
	o.NoKeys = true
	b := newBuilder(ctx, store, o)
	defer b.encoder.Close()
	b.manifest.Base = metadata.BaseOf(base.Manifest, -1, replaces)
	keys := base.Keys
	for i := range base.Manifest.Shards {
		for _, row := range base.Manifest.Shards[i].Rows {
			for _, key := range keys[:row.Samples] {
				of := fields(key)
				if len(of) == 0 {
					of = []Field{{}}
				}
				if err := b.add(Sample{Key: key, Fields: of}); err != nil {
					return nil, err
				}
			}
			keys = keys[row.Samples:]
			if err := b.endBlock(); err != nil {
				return nil, err
			}
		}
		if err := b.endShard(); err != nil {
			return nil, err
		}
	}
	return b.finish()
}

func newBuilder(ctx context.Context, store objstore.Store, o Options) *builder {
	if o.BlockSize == 0 {
		o.BlockSize = 1 << 20
	}
	if o.FrameSize == 0 {
		o.FrameSize = format.MaxFrame
	}
	if o.ShardSize == 0 {
		o.ShardSize = 256 << 20
	}
	if o.KeyHash == nil {
		o.KeyHash = samplekey.Hash
	}
	if o.Member == nil {
		o.Member = format.JoinName
	}
	return &builder{ctx: ctx, store: store, o: o, encoder: codec.NewEncoder(o.Level),
		totals:   map[string]*format.FieldTotal{},
		manifest: &metadata.Manifest{Totals: metadata.Totals{Generation: 1, Meta: format.Metadata{"tool": "testset"}}}}
}

type builder struct {
	ctx      context.Context
	store    objstore.Store
	o        Options
	encoder  *codec.Encoder
	manifest *metadata.Manifest
	totals   map[string]*format.FieldTotal
	keys     []samplekey.Entry
	all      []string // keys, of all shards

	shard   []byte
	decoded int
	index   *metadata.IndexBuilder
	hash    metadata.ShardHasher
	names   []string
	block   tarblock.Builder
	samples uint32
	blocks  uint64
}

func (b *builder) add(s Sample) error {
	if b.index == nil {
		b.index = &metadata.IndexBuilder{}
	}
	var sizes []format.FieldSize
	for _, f := range s.Fields {
		at := b.block.Member(b.o.Member(s.Key, f.Name), len(f.Data))
		copy(b.block.Buf[at:], f.Data)
		sizes = append(sizes, format.FieldSize{Name: f.Name, Size: int64(len(f.Data))})
		b.total(f)
	}
	if err := b.index.AddSample(s.Key, sizes, b.attributes(s.Key)); err != nil {
		return err
	}
	b.keys = append(b.keys, samplekey.Entry{Hash: b.o.KeyHash(s.Key), Number: uint64(len(b.keys))})
	b.names, b.all = append(b.names, s.Key), append(b.all, s.Key)
	b.samples++
	return nil
}

func (b *builder) attributes(key string) []format.AttrValue {
	var values []format.AttrValue
	var all []format.Attribute
	add := func(v format.AttrValue, ok bool) {
		all = append(all, v.Attribute)
		if ok {
			values = append(values, v)
		}
	}
	if b.o.Label != nil {
		add(format.AttrValue{Attribute: format.Attribute{Name: "label", Kind: format.AttrLabel}, Label: b.o.Label(key)},
			true)
	}
	if b.o.Length != nil {
		add(format.AttrValue{Attribute: format.Attribute{Name: "length", Kind: format.AttrInteger},
			Integer: b.o.Length(key)}, true)
	}
	if b.o.Integer != nil {
		n, ok := b.o.Integer(key)
		add(format.AttrValue{Attribute: format.Attribute{Name: "tokens", Kind: format.AttrInteger}, Integer: n}, ok)
	}
	slices.SortFunc(all, func(x, y format.Attribute) int { return strings.Compare(x.Name, y.Name) })
	b.manifest.Attributes = all
	return values
}

func (b *builder) total(f Field) {
	n := uint64(len(f.Data))
	t := b.totals[f.Name]
	if t == nil {
		t = &format.FieldTotal{Name: f.Name, Min: n}
		b.totals[f.Name] = t
	}
	t.Samples++
	t.Bytes += n
	t.Min, t.Max = min(t.Min, n), max(t.Max, n)
}

func (b *builder) endBlock() error {
	if b.samples == 0 {
		return nil
	}
	buf := b.block.Buf
	b.hash.Add(format.BlockHash(buf))
	for at := 0; at < len(buf); at += b.o.FrameSize {
		piece := buf[at:min(len(buf), at+b.o.FrameSize)]
		row := format.Row{Decoded: uint32(len(piece)), Samples: b.samples}
		b.samples = 0
		begin := len(b.shard)
		var cuts, payloads []int
		for i, c := range b.block.Cuts {
			if c >= at && b.block.Payloads[i] < at+len(piece) {
				cuts, payloads = append(cuts, c-at), append(payloads, b.block.Payloads[i]-at)
			}
		}
		switch {
		case b.o.Plain:
			b.shard = append(b.shard, piece...)
		case b.o.Raw:
			b.shard, row.Codec = codec.AppendRawFrame(b.shard, piece, cuts, payloads), format.CodecRaw
		default:
			var err error
			if b.shard, row.Codec, err = b.encoder.AppendFrame(b.shard, piece, cuts, payloads); err != nil {
				return err
			}
		}
		row.Stored = uint32(len(b.shard) - begin)
		row.CRC = codec.Checksum(b.shard[begin:])
		b.index.AddRow(row)
	}
	b.decoded += len(buf)
	b.blocks++
	b.block.Reset()
	return nil
}

func (b *builder) endShard() error {
	if err := b.endBlock(); err != nil {
		return err
	}
	if b.index == nil {
		return nil
	}
	info := metadata.ShardInfo{Samples: uint64(len(b.names)), Blocks: b.blocks, Hash: b.hash.Sum(),
		FirstKey: slices.Min(b.names), LastKey: slices.Max(b.names)}
	ix := b.index.Finish(format.Metadata{"content": info.Hash.String()})
	info.Rows = uint64(len(ix.Rows))
	b.shard = append(b.shard, metadata.EndOfArchive(b.o.Plain)...)
	tail, err := metadata.AppendTail(nil, ix, b.o.Plain)
	if err != nil {
		return err
	}
	info.Tail, info.Index.Hash = uint64(len(tail)), metadata.HashIndex(tail)
	stem := fmt.Sprintf("train-%06d", len(b.manifest.Shards))
	info.Name = stem + format.TarSuffix
	if !b.o.Plain {
		info.Name = stem + format.ZstdSuffix
		b.shard = append(b.shard, tail...)
	}
	info.Size = uint64(len(b.shard))
	if err := b.put(info.Name, b.shard); err != nil {
		return err
	}
	if b.o.Plain {
		if err := b.put(stem+format.SidecarSuffix, tail); err != nil {
			return err
		}
	}
	b.manifest.Shards = append(b.manifest.Shards, metadata.ShardEntry{ShardInfo: info, Rows: ix.Rows})
	b.shard = nil // the store may keep it
	b.decoded, b.index, b.hash, b.names, b.blocks = 0, nil, metadata.ShardHasher{}, nil, 0
	return nil
}

func (b *builder) put(name string, data []byte) error {
	_, err := objstore.Put(b.ctx, b.store, name, data, objstore.Condition{})
	return err
}

func (b *builder) finish() (*Set, error) {
	if err := b.endShard(); err != nil {
		return nil, err
	}
	m := b.manifest
	for _, t := range b.totals {
		m.Fields = append(m.Fields, *t)
	}
	slices.SortFunc(m.Fields, func(x, y format.FieldTotal) int { return bytes.Compare([]byte(x.Name), []byte(y.Name)) })
	if !b.o.NoKeys {
		table, err := keysTable(b.keys)
		if err != nil {
			return nil, err
		}
		m.Keys = format.BlockHash(table)
		if err := b.put(m.KeysName(), table); err != nil {
			return nil, err
		}
	}
	if b.o.Edit != nil {
		b.o.Edit(m)
	}
	set, err := Publish(b.ctx, b.store, m)
	if err == nil {
		set.Keys = b.all
	}
	return set, err
}

func keysTable(entries []samplekey.Entry) ([]byte, error) {
	slices.SortFunc(entries, samplekey.Entry.Compare)
	var out bytes.Buffer
	err := samplekey.WriteTable(&out, uint64(len(entries)), func(yield func(samplekey.Entry, error) bool) {
		for i := 0; i < len(entries) && yield(entries[i], nil); i++ {
		}
	})
	return out.Bytes(), err
}

// Publish writes a manifest's tables and manifest.json.
func Publish(ctx context.Context, store objstore.Store, m *metadata.Manifest) (*Set, error) {
	raw, name, _, err := metadata.EncodeTables(m)
	if err != nil {
		return nil, err
	}
	set := &Set{Manifest: m, Tables: names.Tables(name)}
	if _, err := objstore.Put(ctx, store, set.Tables, raw, objstore.Condition{}); err != nil {
		return nil, err
	}
	t, err := metadata.OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
	if err != nil {
		return nil, err
	}
	set.Summary = t.Summary(set.Tables)
	_, err = objstore.Put(ctx, store, format.ManifestName, set.Summary.Encode(), objstore.Condition{})
	return set, err
}
