package writer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/testdata"
	"github.com/shardtool/shardtool/writer"
)

// item is a sample of a synth source: one field from a payload, and one given in memory where
// inline is set.
type item struct {
	key    string
	size   int64
	seed   uint64
	inline string
	// next fails in Source.Next, open before the first byte, read after half of them.
	next, open, read error
}

// synth is a Source that makes its samples up.
type synth struct {
	items []item
	tag   string // part of the fingerprint, and of the payloads
	attrs bool
	at    int
	// end is the number of the item after the part that Split has limited the source to; nil for the
	// whole.
	end *int
	// begin is called when the payload of sample i is about to be read.
	begin func(ctx context.Context, i int) error
	bytes atomic.Int64 // of payloads read
	reads atomic.Int64 // payloads read
}

// makeItems draws n items with sizes up to most.
func makeItems(n int, most int64, seed uint64) []item {
	rng := rand.New(rand.NewPCG(seed, 1))
	items := make([]item, n)
	for i := range items {
		items[i] = item{key: fmt.Sprintf("dir%d/%06d", i%7, i), size: rng.Int64N(most), seed: rng.Uint64()}
		if i%5 == 0 {
			items[i].inline = strconv.Itoa(i)
		}
	}
	return items
}

func (s *synth) Next(ctx context.Context) (writer.Sample, error) {
	if s.at == len(s.items) || (s.end != nil && s.at == *s.end) {
		return writer.Sample{}, io.EOF
	}
	i := s.at
	s.at++
	it := &s.items[i]
	if it.next != nil {
		return writer.Sample{}, &writer.SampleError{Origin: "origin of " + it.key, Key: it.key, Err: it.next}
	}
	out := writer.Sample{Key: it.key, Origin: "origin of " + it.key}
	out.Fields = append(out.Fields, writer.Field{Name: "bin", Size: it.size, Payload: &payload{s, i}})
	if it.inline != "" {
		out.Fields = append(out.Fields, writer.Field{Name: "Atxt", Data: []byte(it.inline)}) // before bin when sorted
	}
	if s.attrs {
		out.Attrs = []format.AttrValue{
			{Attribute: format.Attribute{Name: "label", Kind: format.AttrLabel}, Label: "class" + strconv.Itoa(i%3)},
			{Attribute: format.Attribute{Name: "number", Kind: format.AttrInteger}, Integer: int64(i)},
		}
	}
	return out, ctx.Err()
}

func (s *synth) Cursor() string { return strconv.Itoa(s.at) }

func (s *synth) Seek(_ context.Context, cursor string) error {
	n, err := strconv.Atoi(cursor)
	if err != nil || n < 0 || n > len(s.items) {
		return fmt.Errorf("cursor %q", cursor)
	}
	s.at = n
	return nil
}

// Split is writer.Splitter's.
func (s *synth) Split(part, parts int) error {
	end := len(s.items) * (part + 1) / parts
	s.at, s.end = len(s.items)*part/parts, &end
	return nil
}

func (s *synth) Fingerprint() string   { return fmt.Sprint("synth:", s.tag, ":", len(s.items)) }
func (s *synth) Meta() format.Metadata { return format.Metadata{"classes": `["a"]`} }
func (s *synth) Total() (int64, int64) { return int64(len(s.items)), 0 }
func (s *synth) Close() error          { return nil }
func (s *synth) want(i int) []byte     { return content(s.items[i].seed, s.items[i].size, s.tag) }
func (s *synth) payloadBytes() (n int64) {
	for i := range s.items {
		n += s.items[i].size
	}
	return n
}

// content is a payload: prose or noise, by its seed.
func content(seed uint64, size int64, tag string) []byte {
	b := make([]byte, size)
	if seed%3 != 0 {
		from := int(seed>>8) % (len(testdata.Prose) / 2)
		for at := 0; at < len(b); {
			at += copy(b[at:], testdata.Prose[from:])
			from = 0
		}
	} else {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], seed)
		c := rand.NewChaCha8(key)
		_, _ = c.Read(b)
	}
	copy(b, tag)
	return b
}

type payload struct {
	s *synth
	i int
}

var errRead = errors.New("cannot be read")

func (p *payload) ReadInto(ctx context.Context, b []byte) error {
	it := &p.s.items[p.i]
	if int64(len(b)) != it.size {
		return fmt.Errorf("asked for %d bytes of %d", len(b), it.size)
	}
	if p.s.begin != nil {
		if err := p.s.begin(ctx, p.i); err != nil {
			return err
		}
	}
	if it.open != nil {
		return it.open
	}
	want := p.s.want(p.i)
	if it.read != nil {
		copy(b, want[:len(want)/2])
		return it.read
	}
	copy(b, want)
	p.s.bytes.Add(it.size)
	p.s.reads.Add(1)
	return nil
}

func (p *payload) Open(ctx context.Context) (io.ReadCloser, error) {
	it := &p.s.items[p.i]
	if p.s.begin != nil {
		if err := p.s.begin(ctx, p.i); err != nil {
			return nil, err
		}
	}
	if it.open != nil {
		return nil, it.open
	}
	p.s.bytes.Add(it.size)
	p.s.reads.Add(1)
	want := p.s.want(p.i)
	if it.read != nil {
		return io.NopCloser(io.MultiReader(bytes.NewReader(want[:len(want)/2]), &failing{it.read})), nil
	}
	return io.NopCloser(bytes.NewReader(want)), nil
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }
