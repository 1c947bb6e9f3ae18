package tokens_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// TestJoin is the example of the documentation.
func TestJoin(t *testing.T) {
	list := []document{{key: "a", ids: upTo(1, 5)}, {key: "none"}, {key: "b", ids: upTo(11, 2)}}
	src := newDocuments(list)
	j := join(t, src, tokens.JoinOptions{Length: 4, Separator: []int64{0}})
	got := whole(t, j)
	var text []string
	for _, g := range got {
		text = append(text, fmt.Sprint(g.key, g.ids, g.raw["documents.json"]))
	}
	want := []string{
		`a/000000000[1 2 3 4]{"document":["a"],"offset":[0],"start":[0],"length":[4]}`,
		`a/000000004[5 0 0 11]{"document":["a","none","b"],"offset":[4,0,0],"start":[0,2,3],"length":[2,1,1]}`,
		`b/000000001[12 0]{"document":["b"],"offset":[1],"start":[0],"length":[2]}`,
	}
	if !slices.Equal(text, want) {
		t.Errorf("%q", text)
	}
	if got[0].descr != "<i4" {
		t.Error(got[0].descr)
	}
	if err := j.Close(); err != nil || !src.closed {
		t.Error("the source is open")
	}
}

// check holds samples against documents: all tokens are there in order, and the map leads back.
func check(t *testing.T, samples []got, list []document, opt tokens.JoinOptions) (ids []int64) {
	t.Helper()
	byKey := map[string][]int64{}
	for _, d := range list {
		byKey[d.key] = append(append([]int64{}, d.ids...), opt.Separator...)
	}
	seen := map[string]int64{}
	for i, s := range samples {
		n := int64(len(s.ids))
		if n != opt.Length && (i < len(samples)-1 || opt.Remainder == tokens.Pad || n == 0) {
			t.Fatalf("sample %d of %d has %d tokens", i, len(samples), n)
		}
		at := int64(0)
		for k, key := range s.at.Document {
			offset, start, length := s.at.Offset[k], s.at.Start[k], s.at.Length[k]
			if start != at || length < 1 || offset != seen[key] {
				t.Fatalf("%s: piece %d of %q is from %d on at %d, %d long; %d and %d were before", s.key, k, key, offset, start, length, seen[key], at)
			}
			if !slices.Equal(s.ids[start:start+length], byKey[key][offset:offset+length]) {
				t.Fatalf("%s: piece %d of %q is another", s.key, k, key)
			}
			at, seen[key] = start+length, offset+length
		}
		if want := fmt.Sprintf("%s/%09d", s.at.Document[0], s.at.Offset[0]); s.key != want {
			t.Fatalf("the key is %q, want %q", s.key, want)
		}
		if at != n && (s.real != at || i < len(samples)-1) || at == n && s.real != -1 {
			t.Fatalf("%s: %d of %d tokens are of documents, the attribute says %d", s.key, at, n, s.real)
		}
		ids = append(ids, s.ids[:at]...)
	}
	return ids
}

// TestEveryToken: whatever the documents and lengths, the concatenated tokens of the samples are
// those of the documents with separators, documents.json locates them, and the same holds for
// parts.
func TestEveryToken(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 120 {
		longest := []int{0, 3, 40, 300}[round%4]
		list := randomDocuments(rng, rng.IntN(40), longest)
		opt := tokens.JoinOptions{Length: 1 + rng.Int64N(int64(1+rng.IntN(100))), Remainder: tokens.Remainder(round % 3), PadID: 9}
		for range round % 3 {
			opt.Separator = append(opt.Separator, rng.Int64N(50000))
		}
		if round%5 == 0 {
			opt.DType = tokens.Uint16
		}
		src := newDocuments(list)
		parts := 1 + rng.IntN(4)
		bad := 0
		for part := range parts {
			dropped := int64(0)
			opt.Dropped = func(n int64) { dropped = n }
			j := join(t, src, opt)
			tokens.Stream(j, rng.Int64N(400))
			if err := j.Split(part, parts); err != nil {
				t.Fatal(err)
			}
			samples, skipped, err := all(t, j)
			if err != nil {
				t.Fatal(err)
			}
			mine := list[src.begin:src.end]
			want := stream(mine, opt.Separator)
			if opt.Remainder == tokens.Drop {
				rest := int64(len(want)) % opt.Length
				if dropped != rest {
					t.Fatalf("%d tokens were dropped, want %d", dropped, rest)
				}
				want = want[:int64(len(want))-rest]
			}
			if got := check(t, samples, mine, opt); !slices.Equal(got, want) {
				t.Fatalf("round %d: %d tokens, want %d", round, len(got), len(want))
			}
			bad += len(skipped)
		}
		for _, d := range list {
			if d.bad != nil {
				bad--
			}
		}
		if bad != 0 {
			t.Fatalf("%d errors too many", bad)
		}
	}
}

// TestJoinSeek: every cursor is followed by the same samples as the first time, wherever the source
// was before.
func TestJoinSeek(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, length := range []int64{1, 7, 64, 5000} {
		list := randomDocuments(rng, 30, 90)
		opt := tokens.JoinOptions{Length: length, Separator: []int64{1, 2}, Remainder: tokens.Remainder(length % 3)}
		src := join(t, newDocuments(list), opt)
		var cursors []string
		var want []got
		var behind []int // samples
		for {
			cursors, behind = append(cursors, src.Cursor()), append(behind, len(want))
			s, err := src.Next(t.Context())
			var se *writer.SampleError
			if errors.As(err, &se) {
				continue // in the middle of a sample: the cursor is where that begins
			}
			if err != nil {
				break
			}
			g, err := read(t, s)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, g)
		}
		other := join(t, newDocuments(list), opt)
		tokens.Stream(other, 100)
		for i := range min(40, len(cursors)) {
			i = i * 997 % len(cursors)
			if err := other.Seek(t.Context(), cursors[i]); err != nil || other.Cursor() != cursors[i] {
				t.Fatal(err, other.Cursor(), cursors[i])
			}
			got, _, err := all(t, other)
			if err != nil || !slices.EqualFunc(got, want[behind[i]:], same) {
				t.Fatalf("length %d, from %s: %d samples, want %d (%v)", length, cursors[i], len(got), len(want)-behind[i], err)
			}
		}
		for _, bad := range []string{"", "3", "x:doc 1", "-1:doc 1", "100000:doc 1", "5:doc 30", "5:nowhere"} {
			if err := src.Seek(t.Context(), bad); err == nil {
				t.Errorf("%q is a cursor", bad)
			}
		}
	}
}

// stopAfter ends a source early, as a crash does.
type stopAfter struct {
	writer.Splitter
	left int
}

var errCut = errors.New("the power is gone")

func (s *stopAfter) Next(ctx context.Context) (writer.Sample, error) {
	if s.left--; s.left < 0 {
		time.Sleep(5 * time.Millisecond) // some shards are put meanwhile, or none
		return writer.Sample{}, errCut
	}
	return s.Splitter.Next(ctx)
}

// TestJoinResume interrupts packs after every few samples: a resumed pack equals an uninterrupted
// one, including skipped samples.
func TestJoinResume(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	list := randomDocuments(rng, 120, 90)
	opt := tokens.JoinOptions{Length: 48, Separator: []int64{1}}
	options := writer.Options{BlockSize: 4 << 10, ShardSize: 8 << 10, Workers: 2, Faults: writer.Faults{Skip: true}, Level: codec.LevelFastest}
	whole := mem.New()
	want, err := writer.Pack(t.Context(), whole, join(t, newDocuments(list), opt), options)
	if err != nil || want.Shards < 5 || want.Skipped < 3 {
		t.Fatalf("%+v %v", want, err)
	}
	for stop := 5; stop < int(want.Samples); stop += 9 {
		st := mem.New()
		torn := newDocuments(list)
		src := join(t, torn, opt)
		w := options
		n := 0
		w.Progress = func(p writer.Progress) { n = int(p.Shards) }
		if _, err := writer.Pack(t.Context(), st, &stopAfter{Splitter: src, left: stop}, w); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		w = options
		w.Resume = true
		res, err := writer.Pack(t.Context(), st, join(t, newDocuments(list), opt), w)
		if err != nil || res.Digest != want.Digest || res.Skipped != want.Skipped || res.Samples != want.Samples {
			t.Fatalf("stopped behind %d (%d shards): %+v, want %+v, %v", stop, n, res, want, err)
		}
		other := opt
		other.PadID++
		if _, err := writer.Pack(t.Context(), st, join(t, newDocuments(list), other), w); err == nil {
			t.Fatal("resumed with other options")
		}
	}
	set, err := readback.Load(t.Context(), whole)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for i := range set.Samples {
		_, _, some := parse(t, set.Samples[i].Field("tokens.npy"))
		ids = append(ids, some...)
	}
	if !slices.Equal(ids, stream(list, opt.Separator)) {
		t.Fatal("other tokens")
	}
}

// TestFields: which field has the tokens.
func TestFields(t *testing.T) {
	ids := file("<u2", "(2,)", ids16(1, 2))
	fields := func(names ...string) (out []writer.Field) {
		for _, n := range names {
			data := ids
			if strings.HasSuffix(n, "json") {
				data = []byte("[1,2]")
			}
			out = append(out, writer.Field{Name: n, Data: data})
		}
		return out
	}
	for _, c := range []struct {
		from   string
		fields []writer.Field
		want   string
	}{
		{"", fields("npy"), ""},
		{"", fields("txt", "input_ids.npy", "meta.json"), ""},
		{"", fields("txt", "ids.json"), ""},
		{"", fields("a.npy", "b.npy"), `choose the field of tokens: 2 could be the tokens, "a.npy", "b.npy"`},
		{"", fields("txt"), `no field is an array or a JSON list; there are: "txt"`},
		{"a", fields("a.npy", "b.npy"), ""},
		{"b", fields("a.npy", "b.json"), ""},
		{"a.npy", fields("b.npy", "a.npy"), ""},
		{"txt", fields("b.npy", "txt"), ""},
		{"c", fields("a.npy", "b.npy"), `there is no field "c" of tokens; there are: "a.npy", "b.npy"`},
	} {
		j := join(t, &fixed{fields: c.fields}, tokens.JoinOptions{Length: 5, From: c.from})
		got, skipped, err := all(t, j)
		if c.want == "" && (err != nil || len(got) != 1 || !slices.Equal(got[0].ids, []int64{1, 2})) {
			t.Errorf("%q of %v: %v %v %v", c.from, c.fields, got, skipped, err)
		}
		if c.want != "" && (len(skipped) != 1 || !strings.Contains(skipped[0].Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.from, skipped, c.want)
		}
	}
}

// TestJoinOptions: the error of an invalid option names it.
func TestJoinOptions(t *testing.T) {
	for _, c := range []struct {
		opt  tokens.JoinOptions
		want string
	}{
		{tokens.JoinOptions{}, "length: 0 tokens"},
		{tokens.JoinOptions{Length: 1 << 40}, "length: "},
		{tokens.JoinOptions{Length: 1, Separator: []int64{1 << 31}}, "separator: id 2147483648 does not fit into int32"},
		{tokens.JoinOptions{Length: 1, Separator: make([]int64, 2000)}, "separator: 2000 ids"},
		{tokens.JoinOptions{Length: 1, DType: tokens.Uint16, Remainder: tokens.Pad, PadID: -1}, "pad: id -1 does not fit into uint16"},
		{tokens.JoinOptions{Length: 1, DType: 99}, "none of this package's constants"},
		{tokens.JoinOptions{Length: 1, Remainder: 99}, "none of this package's constants"},
	} {
		if _, err := tokens.NewJoin(newDocuments(nil), c.opt); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opt, err, c.want)
		}
	}
	j := join(t, &fixed{}, tokens.JoinOptions{Length: 1})
	if err := j.Split(0, 2); err == nil || !strings.Contains(err.Error(), "cannot be divided") {
		t.Error(err)
	}
}

// TestPieces: keys of all kinds survive as JSON.
func TestPieces(t *testing.T) {
	for _, key := range []string{"a", "", `"\`, "\x00\x1f\n\t", "é😀\u2028", "a\xffb"} {
		text := tokens.AppendPieces(nil, []tokens.Piece{{Document: key, Offset: 1 << 40, Start: 0, Length: 3}, {Document: "b", Start: 3, Length: 1}})
		var p pieces
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if p.Document[0] != strings.ToValidUTF8(key, "\ufffd") || p.Offset[0] != 1<<40 || p.Length[1] != 1 || p.Start[1] != 3 {
			t.Errorf("%q: %+v", key, p)
		}
	}
}
