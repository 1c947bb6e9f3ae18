package metadata

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// testSample is a sample as a writer gets it; Fields ascend by name.
type testSample struct {
	Key    string
	Fields []testField
	Attrs  []format.AttrValue
}

type testField struct {
	Name string
	Data []byte
}

// one is a sample of fields given as name, content, name, content.
func one(key string, fields ...string) testSample {
	s := testSample{Key: key}
	for i := 0; i < len(fields); i += 2 {
		s.Fields = append(s.Fields, testField{fields[i], []byte(fields[i+1])})
	}
	return s
}

func (s testSample) with(attrs ...format.AttrValue) testSample {
	s.Attrs = attrs
	return s
}

func label(name, v string) format.AttrValue {
	return format.AttrValue{Attribute: format.Attribute{Name: name, Kind: format.AttrLabel}, Label: v}
}

func integer(name string, v int64) format.AttrValue {
	return format.AttrValue{Attribute: format.Attribute{Name: name, Kind: format.AttrInteger}, Integer: v}
}

func number(name string, v float64) format.AttrValue {
	return format.AttrValue{Attribute: format.Attribute{Name: name, Kind: format.AttrNumber}, Number: v}
}

type packOptions struct {
	Block int // decoded bytes that close a block; 0: 1 MiB
	Frame int // decoded bytes of a frame; 0: MaxFrame
	Level codec.Level
	Plain bool
	Meta  format.Metadata
}

// testShard is a packed shard. Data is blocks and end-of-archive; Tail follows it, or is the
// sidecar.
type testShard struct {
	Data, Tail []byte
	Index      *ShardIndex
	Hash       format.Hash
	Plain      bool
}

func (s *testShard) object() []byte { return append(bytes.Clone(s.Data), s.Tail...) }

// pack does what a writer does, without files.
func pack(t testing.TB, samples []testSample, o packOptions) *testShard {
	t.Helper()
	e := codec.NewEncoder(o.Level)
	defer e.Close()
	return packWith(t, e, samples, o)
}

func packWith(t testing.TB, e *codec.Encoder, samples []testSample, o packOptions) *testShard {
	t.Helper()
	if o.Block == 0 {
		o.Block = 1 << 20
	}
	if o.Frame == 0 {
		o.Frame = format.MaxFrame
	}
	var (
		out    = &testShard{Plain: o.Plain}
		ib     IndexBuilder
		block  tarblock.Builder
		hasher ShardHasher
		inside uint32
	)
	flush := func() {
		hasher.Add(format.BlockHash(block.Buf))
		for at := 0; at < len(block.Buf); at += o.Frame {
			row := appendFrameOf(t, e, out, &block, at, min(at+o.Frame, len(block.Buf)))
			if at == 0 {
				row.Samples = inside
			}
			ib.AddRow(row)
		}
		inside = 0
		block.Reset()
	}
	for _, s := range samples {
		var sizes []format.FieldSize
		for _, f := range s.Fields {
			at := block.Member(format.JoinName(s.Key, f.Name), len(f.Data))
			copy(block.Buf[at:], f.Data)
			sizes = append(sizes, format.FieldSize{Name: f.Name, Size: int64(len(f.Data))})
		}
		if err := ib.AddSample(s.Key, sizes, s.Attrs); err != nil {
			t.Fatal(err)
		}
		if inside++; len(block.Buf) >= o.Block {
			flush()
		}
	}
	if inside > 0 {
		flush()
	}
	out.Hash = hasher.Sum()
	meta := format.Metadata{"content": out.Hash.String()}
	for k, v := range o.Meta {
		meta[k] = v
	}
	out.Data = append(out.Data, EndOfArchive(o.Plain)...)
	out.Index = ib.Finish(meta)
	var err error
	if out.Tail, err = AppendTail(nil, out.Index, o.Plain); err != nil {
		t.Fatal(err)
	}
	return out
}

// appendFrameOf stores one frame of a block.
func appendFrameOf(t testing.TB, e *codec.Encoder, out *testShard, b *tarblock.Builder, from, to int) format.Row {
	row := format.Row{Decoded: uint32(to - from)}
	start := len(out.Data)
	if out.Plain {
		out.Data = append(out.Data, b.Buf[from:to]...)
	} else {
		var cuts, payloads []int
		for i, c := range b.Cuts {
			if c >= from && c < to {
				cuts, payloads = append(cuts, c-from), append(payloads, b.Payloads[i]-from)
			}
		}
		var err error
		if out.Data, row.Codec, err = e.AppendFrame(out.Data, b.Buf[from:to], cuts, payloads); err != nil {
			t.Fatal(err)
		}
	}
	row.Stored, row.CRC = uint32(len(out.Data)-start), codec.Checksum(out.Data[start:])
	return row
}

// checkShard is a full check of a compressed shard: index, frames, end-of-archive, and every
// decoded byte that is no payload. It returns the content as read through the index.
func checkShard(obj []byte) ([]testSample, error) {
	t, need, err := ParseTail(obj, int64(len(obj)))
	if err != nil {
		return nil, err
	}
	if need != 0 {
		return nil, fmt.Errorf("the whole object is not enough: %d bytes wanted", need)
	}
	if t.Plain() {
		return nil, damage.Errorf("a sidecar where a shard should be")
	}
	return checkData(t, obj[:t.DataSize], obj)
}

// checkSidecar is checkShard for a plain shard.
func checkSidecar(tar, sidecar []byte) ([]testSample, error) {
	t, _, err := ParseTail(sidecar, int64(len(sidecar)))
	if err != nil {
		return nil, err
	}
	if !t.Plain() || t.DataSize != uint64(len(tar)) {
		return nil, damage.Errorf("sidecar of a tar of %d bytes, not %d", t.DataSize, len(tar))
	}
	return checkData(t, tar, sidecar)
}

var decoders = sync.Pool{New: func() any { return codec.NewDecoder(true) }}

func checkData(t *Tail, data, index []byte) ([]testSample, error) {
	off, n := t.Cold()
	ix, err := t.DecodeCold(index[off : off+n])
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(data[t.DataLen:], EndOfArchive(t.Plain())) {
		return nil, format.At(int64(t.DataLen), damage.Errorf("no end of archive"))
	}
	d := decoders.Get().(*codec.Decoder)
	defer decoders.Put(d)
	var (
		samples []testSample
		hasher  ShardHasher
		pos     uint64
		first   int
	)
	for row := 0; row < len(ix.Rows); {
		n := int(ix.Rows[row].Samples)
		c := NewBlockChecker(ix.Cursors([]int{first})[0], n)
		var block []byte
		for {
			r := ix.Rows[row]
			stored := data[pos : pos+uint64(r.Stored)]
			if err := codec.CheckFrame(stored, r); err != nil {
				return nil, format.At(int64(pos), err)
			}
			from := len(block)
			if block, err = d.Decode(block, stored, r); err != nil {
				return nil, format.At(int64(pos), err)
			}
			if err := c.Write(block[from:]); err != nil {
				return nil, err
			}
			pos += uint64(r.Stored)
			if row++; row == len(ix.Rows) || ix.Rows[row].Samples > 0 {
				break
			}
		}
		if err := c.End(); err != nil {
			return nil, err
		}
		hasher.Add(format.BlockHash(block))
		if ix.Layout != nil {
			if block, err = asTar(block, ix, first, n); err != nil {
				return nil, err
			}
		}
		got, err := walkBlock(block, false)
		if err != nil {
			return nil, err
		}
		if len(got) != n {
			return nil, damage.Errorf("%d samples in a block of %d", len(got), n)
		}
		samples = append(samples, got...)
		first += n
	}
	hasher.AddKeys(ix.Layout, ix.Keys.Ranges())
	if want := hasher.Sum(); t.Meta != nil && t.Meta["content"] != want.String() { // an index needs no metadata
		return nil, damage.Errorf("content %v, the index says %v", want, t.Meta["content"])
	}
	for i := range samples {
		for a := range ix.Attrs {
			if v, ok := ix.Attrs[a].At(i); ok {
				samples[i].Attrs = append(samples[i].Attrs, v)
			}
		}
	}
	return samples, nil
}

// walkBlock reads the samples of decoded bytes.
func walkBlock(decoded []byte, foreign bool) (out []testSample, err error) {
	it := tarblock.SampleIter{Walker: tarblock.Walker{Buf: decoded, Foreign: foreign}}
	for it.Next() {
		s := testSample{Key: string(it.Key)}
		for _, f := range it.Fields {
			s.Fields = append(s.Fields, testField{string(f.Name), bytes.Clone(f.Data)})
		}
		out = append(out, s)
	}
	return out, it.Err()
}

// same compares samples, taking absent and empty payloads as equal.
func same(t testing.TB, got, want []testSample) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d samples, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Key != w.Key || len(g.Fields) != len(w.Fields) || len(g.Attrs) != len(w.Attrs) {
			t.Fatalf("sample %d: %q with %d fields, %d attributes, want %q with %d, %d",
				i, g.Key, len(g.Fields), len(g.Attrs), w.Key, len(w.Fields), len(w.Attrs))
		}
		for j, f := range w.Fields {
			if g.Fields[j].Name != f.Name || !bytes.Equal(g.Fields[j].Data, f.Data) {
				t.Fatalf("sample %d %q: field %q of %d bytes, want %q of %d", i, w.Key, g.Fields[j].Name, len(g.Fields[j].Data), f.Name, len(f.Data))
			}
		}
		for j, a := range w.Attrs {
			if g.Attrs[j] != a {
				t.Fatalf("sample %d %q: attribute %+v, want %+v", i, w.Key, g.Attrs[j], a)
			}
		}
	}
}

// noise is n bytes that do not compress, words n bytes that do.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			p[i+j] = byte(v >> (8 * j))
		}
	}
	return p[:n]
}

func words(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	var p []byte
	for len(p) < n {
		p = append(p, hex.EncodeToString([]byte{byte(r.IntN(40)), byte(r.IntN(9))})...)
		p = append(p, ' ')
	}
	return p[:n]
}

// small is a shard of a few KB that has a bit of everything: shapes, attributes with absences, a
// long and a non-UTF-8 name, an empty payload, a block of two frames, compressed and raw ones.
func small() []testSample {
	return []testSample{
		one("a/0001", "json", `{"n":1}`, "txt", "first").with(integer("age", -3), label("class", "cat"), number("weight", 0.5)),
		one("a/0002", "json", `{"n":2}`, "txt", "").with(label("class", "dog")),
		one("a/0003", "", "no dot").with(integer("age", 1<<40), number("weight", -1)),
		one("caf\xe9/\xff\xfe", "bin", string(noise(1, 700))),
		one("long/"+string(bytes.Repeat([]byte("directory/"), 12))+"name with spaces\nand a line", "tar.gz", "x", "txt", "y").with(label("class", "cat")),
		one("z", "txt", string(words(1, 1500))),
	}
}

func smallShard(t testing.TB, plain bool) *testShard {
	return pack(t, small(), packOptions{Block: 3000, Frame: 2048, Plain: plain, Meta: format.Metadata{"tool": "test"}})
}
