package tokens_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file makes a .npy file by hand: the header as NumPy's documentation of version 1.0 has it.
func file(descr, shape string, content []byte) []byte {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	for (10+len(head)+1)%64 != 0 {
		head += " "
	}
	out := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head)+1))
	return append(append(out, head+"\n"...), content...)
}

// ids16 are ids as uint16, little-endian.
func ids16(ids ...int64) (out []byte) {
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint16(out, uint16(id))
	}
	return out
}

func ids64(ids ...int64) (out []byte) {
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint64(out, uint64(id))
	}
	return out
}

// upTo counts from first on.
func upTo(first, n int) (ids []int64) {
	for i := range n {
		ids = append(ids, int64(first+i))
	}
	return ids
}

func put(t testing.TB, st objstore.Store, name string, content []byte) source.Input {
	t.Helper()
	if _, err := objstore.Put(t.Context(), st, name, content, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	return source.Input{Store: st, Name: name}
}

func one(t testing.TB, name string, content []byte) []source.Input {
	return []source.Input{put(t, mem.New(), name, content)}
}

func arrays(t testing.TB, in []source.Input, opt tokens.Options) *tokens.Arrays {
	t.Helper()
	src, err := tokens.NewArrays(t.Context(), in, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// got is a sample that was read.
type got struct {
	key   string
	ids   []int64
	descr string
	shape string
	real  int64 // of the attribute, -1 without
	at    pieces
	raw   map[string]string
}

// pieces is documents.json, as a training loop reads it.
type pieces struct {
	Document              []string
	Offset, Start, Length []int64
}

// read reads a sample's payloads, both ways.
func read(t testing.TB, s writer.Sample) (g got, err error) {
	t.Helper()
	g = got{key: s.Key, real: -1, raw: map[string]string{}}
	for _, f := range s.Fields {
		data := f.Data
		if f.Payload != nil {
			data = make([]byte, f.Size)
			if err := f.Payload.ReadInto(t.Context(), data); err != nil {
				return g, err
			}
			r, err := f.Payload.Open(t.Context())
			if err != nil {
				return g, err
			}
			streamed, err := io.ReadAll(r)
			if err != nil || string(streamed) != string(data) {
				t.Errorf("%s: a stream of %d bytes, %d were read at once (%v)", s.Key, len(streamed), len(data), err)
			}
			r.Close()
		}
		g.raw[f.Name] = string(data)
		if f.Name == tokens.MapField {
			if err := json.Unmarshal(data, &g.at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		g.descr, g.shape, g.ids = parse(t, data)
	}
	for _, a := range s.Attrs {
		if a.Name == tokens.RealTokens && a.Kind == format.AttrInteger {
			g.real = a.Integer
		}
	}
	return g, nil
}

// parse reads a .npy file that the package wrote, strictly.
func parse(t testing.TB, data []byte) (descr, shape string, ids []int64) {
	t.Helper()
	n := 10 + int(binary.LittleEndian.Uint16(data[8:]))
	head := string(data[10:n])
	var rest string
	if _, err := fmt.Sscanf(head, "{'descr': '%3s', 'fortran_order': False, 'shape': %s", &descr, &rest); err != nil || n%64 != 0 {
		t.Fatalf("%q: %v", head, err)
	}
	begin, end := slices.Index([]byte(head), '('), slices.Index([]byte(head), ')')
	shape = head[begin : end+1]
	size := int(descr[2] - '0')
	ids = make([]int64, 0, (len(data)-n)/size)
	for at := n; at < len(data); at += size {
		v := int64(0)
		for i := size - 1; i >= 0; i-- {
			v = v<<8 | int64(data[at+i])
		}
		if shift := 64 - 8*size; descr[1] == 'i' {
			v = v << shift >> shift
		}
		ids = append(ids, v)
	}
	return descr, shape, ids
}

// all reads a source to its end.
func all(t testing.TB, src writer.Source) (out []got, skipped []*writer.SampleError, err error) {
	t.Helper()
	for {
		s, err := src.Next(t.Context())
		var se *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			return out, skipped, nil
		case errors.As(err, &se):
			skipped = append(skipped, se)
			continue
		case err != nil:
			return out, skipped, err
		}
		g, err := read(t, s)
		if err != nil {
			skipped = append(skipped, &writer.SampleError{Origin: s.Origin, Key: s.Key, Err: err})
			continue
		}
		out = append(out, g)
	}
}

// whole is all for a source without errors.
func whole(t testing.TB, src writer.Source) []got {
	t.Helper()
	out, skipped, err := all(t, src)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	return out
}

// joined are the ids of all samples.
func joined(samples []got) (ids []int64) {
	for _, s := range samples {
		ids = append(ids, s.ids...)
	}
	return ids
}

func same(a, b got) bool {
	return a.key == b.key && slices.Equal(a.ids, b.ids) && a.shape == b.shape && a.real == b.real && fmt.Sprint(a.raw) == fmt.Sprint(b.raw)
}

func pack(t testing.TB, src writer.Source, opt writer.Options) *readback.Set {
	t.Helper()
	st := mem.New()
	if _, err := writer.Pack(t.Context(), st, src, opt); err != nil {
		t.Fatal(err)
	}
	set, err := readback.Load(context.Background(), st)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
