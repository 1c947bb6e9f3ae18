package sequences

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// build packs samples.
func build(t testing.TB, samples []testset.Sample, o testset.Options) (*reader.Dataset, *mem.Store) {
	t.Helper()
	store := mem.New()
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
		t.Fatal(err)
	}
	return open(t, store), store
}

func open(t testing.TB, store *mem.Store) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), store, reader.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// stream opens a stream that the test closes.
func stream(t testing.TB, d *reader.Dataset, o reader.StreamOptions) *reader.Stream {
	t.Helper()
	s, err := d.Stream(t.Context(), o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// small are options for many blocks, with the lengths of samples as an attribute.
func small(lengths func(key string) int) testset.Options {
	return testset.Options{BlockSize: 6000, ShardSize: 60_000, Integer: func(key string) (int64, bool) { return int64(lengths(key)), true }}
}

func of(lengths map[string]int) func(string) int {
	return func(key string) int { return lengths[key] }
}

func packedOptions(size uint32) reader.StreamOptions {
	return reader.StreamOptions{Shuffle: true, GlobalBatch: 6, Epochs: 1, Units: units.Params{Kind: units.Pack, Size: size, Long: units.LongSplit, Window: 32, By: "tokens"}, Order: reader.OrderOptions{Lanes: 4, Delay: 3}}
}

// A packed stream delivers what the plain reference lays out, on any number of ranks, with room for
// all blocks and with too little.
func TestSequencesAgainstReference(t *testing.T) {
	samples, lengths := testset.Documents(900)
	set, _ := build(t, samples, small(of(lengths)))
	for _, world := range []int{1, 3} {
		for _, memory := range []int64{0, 1 << 20} {
			seen := map[uint32]int{}
			for rank := range world {
				o := packedOptions(64)
				o.World, o.Rank, o.Tuning.Memory, o.Tuning.Workers = world, rank, memory, 1
				s := stream(t, set, o)
				q, err := New(64, []Field{{"ids.npy", 7}, {"labels.npy", -100}})
				if err != nil {
					t.Fatal(err)
				}
				for b, err := range s.Batches(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if err := q.Set(b); err != nil {
						t.Fatal(err)
					}
					checkRows(t, q, b, lengths, seen)
				}
			}
			total := 0
			for _, n := range lengths {
				total += n
			}
			if len(seen) != total {
				t.Errorf("%d ranks: %d tokens came, want %d", world, len(seen), total)
			}
			for tok, times := range seen {
				if times != 1 {
					t.Fatalf("token %d came %d times", tok, times)
				}
			}
		}
	}
}

// checkRows compares the arrays of a batch with its samples, value by value.
func checkRows(t *testing.T, q *Layout, b *reader.Batch, lengths map[string]int, seen map[uint32]int) {
	t.Helper()
	const length = 64
	le := binary.LittleEndian
	ids, labels := make([]byte, q.Size(0)), make([]byte, q.Size(1))
	positions, docs := make([]byte, 4*q.Rows()*length), make([]byte, 4*q.Rows()*length)
	q.Tokens(0, ids)
	q.Tokens(1, labels)
	q.Positions(positions)
	q.Documents(docs)
	if q.Rows() != b.Units || q.Descr(0) != "<u4" || q.Descr(1) != "<i4" {
		t.Fatalf("%d rows of %d units, %s, %s", q.Rows(), b.Units, q.Descr(0), q.Descr(1))
	}
	limits := []int32{0}
	at, row, doc, content := 0, 0, int32(0), 0
	pad := func(to int) {
		if at < to {
			limits = append(limits, int32(to))
		}
		for ; at < to; at++ {
			if got := []int32{int32(le.Uint32(ids[4*at:])), int32(le.Uint32(labels[4*at:])), int32(le.Uint32(positions[4*at:])), int32(le.Uint32(docs[4*at:]))}; !slices.Equal(got, []int32{7, -100, 0, -1}) {
				t.Fatalf("padding at %d is %v", at, got)
			}
		}
	}
	for i := range b.Samples {
		cut := b.Cut(i)
		for int(cut.Unit) != row {
			pad((row + 1) * length)
			row, doc = row+1, 0
		}
		number, whole := int(b.Samples[i].Number), lengths[string(b.Samples[i].Key)]
		for k := range int(cut.Length) {
			place := int(cut.Offset) + k
			got := []int32{int32(le.Uint32(ids[4*at:])), int32(le.Uint32(labels[4*at:])), int32(le.Uint32(positions[4*at:])), int32(le.Uint32(docs[4*at:]))}
			if want := []int32{int32(testset.Token(number, place)), int32(whole - place), int32(k), doc}; !slices.Equal(got, want) {
				t.Fatalf("row %d, token %d of sample %d: %v, want %v", row, place, number, got, want)
			}
			seen[le.Uint32(ids[4*at:])]++
			at++
		}
		content += int(cut.Length)
		limits = append(limits, int32(at))
		doc++
	}
	for ; row < b.Units; row++ {
		pad((row + 1) * length)
	}
	longest := int32(0)
	for i := range limits[1:] {
		longest = max(longest, limits[i+1]-limits[i])
	}
	if !slices.Equal(q.Boundaries(), limits) || q.Longest() != int(longest) || q.Fill() != float64(content)/float64(b.Units*length) {
		t.Fatalf("boundaries %v, longest %d, fill %v; want %v, %d", q.Boundaries(), q.Longest(), q.Fill(), limits, longest)
	}
}

// damaged returns a copy of the data set with one bit turned in a block of the first shard, and the
// numbers of the samples in the block, from ≤ n < to.
func damaged(t *testing.T, d *reader.Dataset, store *mem.Store, block int) (*reader.Dataset, [2]uint64) {
	t.Helper()
	rows, err := d.Rows(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	shard, err := d.Shard(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var first, offset uint64
	for _, r := range rows[:block] {
		first, offset = first+uint64(r.Samples), offset+uint64(r.Stored)
	}
	clone := store.Clone()
	data, _, err := objstore.ReadAll(t.Context(), clone, shard.Name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	data = slices.Clone(data)
	data[offset+uint64(rows[block].Stored)/2] ^= 4
	if _, err := objstore.Put(t.Context(), clone, shard.Name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	return open(t, clone), [2]uint64{first, first + uint64(rows[block].Samples)}
}

// A skipped block leaves its sequences shorter, by its samples alone. No other sequence changes,
// and one that loses all its samples is a row of padding.
func TestSequencesWithHoles(t *testing.T) {
	samples, lengths := testset.Documents(300)
	whole, store := build(t, samples, small(of(lengths)))
	broken, bad := damaged(t, whole, store, 2)
	o := packedOptions(64)
	o.Faults.SkipCorrupt, o.Faults.MaxSkipped = true, 1000
	q, err := New(64, []Field{{"ids.npy", 7}, {"labels.npy", -100}})
	if err != nil {
		t.Fatal(err)
	}
	want, got := stream(t, whole, o), stream(t, broken, o)
	holes := 0
	for {
		a, err := want.Next(t.Context())
		b, err2 := got.Next(t.Context())
		if errors.Is(err, io.EOF) && errors.Is(err2, io.EOF) {
			break
		}
		if err != nil || err2 != nil || a.Units != b.Units || a.Position != b.Position {
			t.Fatalf("%v, %v", err, err2)
		}
		var left []string
		for i := range a.Samples {
			if n := a.Samples[i].Number; n < bad[0] || n >= bad[1] {
				left = append(left, fmt.Sprint(n, a.Cut(i)))
			}
		}
		for i := range b.Samples {
			if len(left) == 0 || left[0] != fmt.Sprint(b.Samples[i].Number, b.Cut(i)) {
				t.Fatalf("batch at %d: item %d is %d, %+v", b.Position, i, b.Samples[i].Number, b.Cut(i))
			}
			left = left[1:]
		}
		if holes += b.Holes; len(left) > 0 || b.Holes != len(a.Samples)-len(b.Samples) {
			t.Fatalf("batch at %d: %d holes, %d and %d samples, %v are missing", b.Position, b.Holes, len(a.Samples), len(b.Samples), left)
		}
		if err := q.Set(b); err != nil {
			t.Fatal(err)
		}
		checkRows(t, q, b, lengths, map[uint32]int{})
	}
	if holes == 0 {
		t.Error("no holes")
	}
}

// A field with another number of values than its attribute states is found before anything of its
// batch is delivered.
func TestWrongLength(t *testing.T) {
	samples, lengths := testset.Documents(60)
	at := 30
	for lengths[samples[at].Key] < 2 {
		at++
	}
	key := samples[at].Key
	for _, n := range []int64{-1, 1} { // a field shorter or longer than its attribute
		set, _ := build(t, samples, small(func(k string) int {
			if k == key {
				return lengths[key] + int(n)
			}
			return lengths[k]
		}))
		q, err := New(64, []Field{{"ids.npy", 0}})
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		for b, err := range stream(t, set, packedOptions(64)).Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if failed = q.Set(b); failed != nil {
				break
			}
		}
		var of *FieldError
		want := fmt.Sprintf("%d values, but the index says that the sample has %d", lengths[key], int64(lengths[key])+n)
		if !errors.As(failed, &of) || of.Key != key || of.Number != uint64(at) || !strings.Contains(failed.Error(), want) {
			t.Errorf("a wrong length: %v, want %s", failed, want)
		}
	}
}

// Fields that cannot be rows of tokens.
func TestSequencesRefuse(t *testing.T) {
	cut := order.Cut{Length: 2, Whole: 2}
	for name, c := range map[string]struct {
		file []byte
		pad  int64
		err  string
	}{
		"no array":   {[]byte("text"), 0, "it is not an .npy file"},
		"cut short":  {testset.Npy("<i4", 2, make([]byte, 8))[:40], 0, "is truncated: it has 40"},
		"data":       {testset.Npy("<i4", 2, make([]byte, 7)), 0, "7 bytes of data, its header says 8"},
		"longer":     {testset.Npy("<i4", 3, make([]byte, 12)), 0, "3 values, but the index says that the sample has 2"},
		"shape":      {[]byte(strings.Replace(string(testset.Npy("<i4", 2, make([]byte, 8))), "(2,)", "(2,1)", 1)), 0, "an array of shape [2 1]"},
		"big-endian": {testset.Npy(">i4", 2, make([]byte, 8)), 0, `an array of type ">i4"`},
		"text":       {testset.Npy("<U4", 2, make([]byte, 32)), 0, `an array of type "<U4"`},
		"pad":        {testset.Npy("|u1", 2, make([]byte, 2)), 300, "values of u1 cannot be padded with 300"},
		"wide":       {testset.Npy("<u8", 2, make([]byte, 16)), -100, "values of u8 cannot be padded with -100"},
	} {
		col := tokenColumn{pad: c.pad}
		s := reader.Sample{}
		s.Fields = append(s.Fields, fieldOf("f", c.file))
		if err := col.take(&s, "f", &cut); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
	col := tokenColumn{}
	for i, descr := range []string{"<i4", "<i4", "<i8"} {
		s := reader.Sample{}
		size, _ := strconv.Atoi(descr[2:])
		s.Fields = append(s.Fields, fieldOf("f", testset.Npy(descr, 2, make([]byte, 2*size))))
		if err := col.take(&s, "f", &cut); (err == nil) != (i < 2) {
			t.Errorf("type %s: %v", descr, err)
		}
	}
	if err := col.take(&reader.Sample{}, "f", &cut); err == nil {
		t.Error("a sample without the field was accepted")
	}
	if _, err := New(5, nil); !errors.Is(err, reader.ErrOptions) {
		t.Error(err)
	}
}

func fieldOf(name string, data []byte) format.FieldView {
	return format.FieldView{Name: []byte(name), Data: data}
}
