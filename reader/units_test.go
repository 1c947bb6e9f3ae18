package reader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/mem"
	"github.com/shardtool/shardtool/reader/internal/testset"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/units"
)

// npyOf is an .npy file with one dimension.
func npyOf(descr string, values int, data []byte) []byte {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, values)
	dict += strings.Repeat(" ", 63-(10+len(dict))%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), byte(len(dict)>>8))
	return append(append(out, dict...), data...)
}

// token is the value of a token, so that every token of a data set is told from any other.
func token(sample, at int) uint32 { return uint32(sample*1000 + at) }

// documents are samples with tokens: ids of u4, labels of u2 that count down, and lengths as a key.
func documents(n int) (samples []testset.Sample, lengths map[string]int) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths = map[string]int{}
	for i := range n {
		length := 1 + int(r.ExpFloat64()*40)
		var ids, labels []byte
		for k := range length {
			ids = binary.LittleEndian.AppendUint32(ids, token(i, k))
			labels = binary.LittleEndian.AppendUint16(labels, uint16(length-k))
		}
		key := fmt.Sprintf("d%04d", i)
		lengths[key] = length
		samples = append(samples, testset.Sample{Key: key, Fields: []testset.Field{
			{Name: "ids.npy", Data: npyOf("<u4", length, ids)}, {Name: "labels.npy", Data: npyOf("<u2", length, labels)},
		}})
	}
	return samples, lengths
}

func newDocuments(t *testing.T, n int) (*streamed, map[string]int) {
	t.Helper()
	samples, lengths := documents(n)
	return newStreamed(t, mem.New(), samples, testset.Options{
		BlockSize: 6000, ShardSize: 60_000, Integer: func(key string) (int64, bool) { return int64(lengths[key]), true },
	}), lengths
}

func packedOptions(size uint32) StreamOptions {
	return StreamOptions{Order: Order{Shuffle: true, Lanes: 4, Delay: 3, GlobalBatch: 6, Epochs: 1, Units: units.Params{Kind: units.Pack, Size: size, Long: units.LongSplit, Window: 32, By: "tokens"}}}
}

// A packed stream delivers what the plain reference lays out, on any number of ranks, with room for
// all blocks and with too little.
func TestSequencesAgainstReference(t *testing.T) {
	watch(t)
	set, lengths := newDocuments(t, 900)
	for _, world := range []int{1, 3} {
		for _, memory := range []int64{0, 1 << 20} {
			seen := map[uint32]int{}
			for rank := range world {
				o := packedOptions(64)
				o.World, o.Rank, o.Memory, o.Workers = world, rank, memory, 1
				s := set.stream(t, o)
				q, err := NewSequences(64, []SequenceField{{"ids.npy", 7}, {"labels.npy", -100}})
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
func checkRows(t *testing.T, q *Sequences, b *Batch, lengths map[string]int, seen map[uint32]int) {
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
			if want := []int32{int32(token(number, place)), int32(whole - place), int32(k), doc}; !slices.Equal(got, want) {
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

// A skipped block leaves its sequences shorter, by its samples alone. No other sequence changes,
// and one that loses all its samples is a row of padding.
func TestSequencesWithHoles(t *testing.T) {
	watch(t)
	samples, lengths := documents(300)
	store := mem.New()
	whole := newStreamed(t, store, samples, testset.Options{
		BlockSize: 6000, ShardSize: 60_000, Integer: func(key string) (int64, bool) { return int64(lengths[key]), true },
	})
	bad := blocksOf(t, whole.Dataset)[2]
	broken := whole.flipped(t, store.Clone(), bad)
	o := packedOptions(64)
	o.OnCorrupt, o.MaxSkipped = CorruptSkips, 1000
	q, err := NewSequences(64, []SequenceField{{"ids.npy", 7}, {"labels.npy", -100}})
	if err != nil {
		t.Fatal(err)
	}
	want, got := whole.stream(t, o), broken.stream(t, o)
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
			if n := a.Samples[i].Number; n < bad.first || n >= bad.first+bad.count {
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

// unitsOf are the samples and offsets of a batch, unit by unit.
func unitsOf(b *Batch) (out []string) {
	for i := range b.Samples {
		cut := b.Cut(i)
		if int(cut.Unit) == len(out) {
			out = append(out, "")
		}
		out[cut.Unit] += fmt.Sprintf(" %d+%d", b.Samples[i].Number, cut.Offset)
	}
	return out
}

// Chains of starts at any unit, with other ranks and batches, deliver the units of one process. A
// kept plan changes nothing, and a damaged one neither.
func TestUnitsElastic(t *testing.T) {
	watch(t)
	set, _ := newDocuments(t, 400)
	r := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []units.Kind{units.Pack, units.Bucket} {
		whole := packedOptions(100)
		whole.Units.Kind, whole.GlobalBatch, whole.Epochs = kind, 1, 2
		var want []string
		for b, err := range set.stream(t, whole).Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, unitsOf(b)...)
		}
		for range 6 {
			o := whole
			o.Plans = t.TempDir()
			o.GlobalBatch = 4 // one for each lane, so that batches have the order of positions but for turns
			var got []string
			for o.Checkpoint == nil || o.Checkpoint.Epoch < 2 {
				o.World, o.GlobalBatch = 1+r.IntN(3), 1+r.IntN(9)
				got = append(got, unitChain(t, set, &o, 1+r.IntN(6))...)
				for _, name := range globbed(t, o.Plans) {
					if r.IntN(3) == 0 {
						if err := os.WriteFile(name, []byte("damaged"), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			slices.Sort(got)
			sorted := slices.Clone(want)
			slices.Sort(sorted)
			if !slices.Equal(got, sorted) {
				t.Fatalf("%s: a chain delivers %d units, other than the %d of one process", kind, len(got), len(want))
			}
		}
	}
}

func globbed(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.bin"))
	if err != nil || len(names) == 0 {
		t.Fatal("nothing is kept", err)
	}
	return names
}

// unitChain reads some steps of all ranks, and moves the checkpoint.
func unitChain(t *testing.T, set *streamed, o *StreamOptions, steps int) (units []string) {
	t.Helper()
	streams := make([]*Stream, o.World)
	for rank := range streams {
		p := *o
		p.Rank, p.Workers = rank, 1
		streams[rank] = set.stream(t, p)
		defer streams[rank].Close()
	}
	for range steps {
		for _, s := range streams {
			b, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			units = append(units, unitsOf(b)...)
			cp, err := b.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			o.Checkpoint = throughText(t, cp)
		}
	}
	return units
}

// What is wrong with lengths is found before anything is delivered, and named.
func TestUnitsRefused(t *testing.T) {
	watch(t)
	samples, lengths := documents(60)
	build := func(value func(key string) (int64, bool)) *streamed {
		return newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 6000, ShardSize: 30_000, Integer: value})
	}
	wrong := func(key string, n int64, ok bool) func(string) (int64, bool) {
		return func(k string) (int64, bool) {
			if k == key {
				return n, ok
			}
			return int64(lengths[k]), true
		}
	}
	for name, c := range map[string]struct {
		value func(string) (int64, bool)
		err   string
	}{
		"missing":  {wrong("d0041", 0, false), `sample "d0041": reader: sample 41 has no value of attribute "tokens"`},
		"zero":     {wrong("d0007", 0, true), `sample "d0007": reader: sample 7 has "tokens" of 0: lengths are 1 to 2147483647`},
		"negative": {wrong("d0007", -5, true), `reader: sample 7 has "tokens" of -5`},
		"large":    {wrong("d0007", 1<<31, true), `reader: sample 7 has "tokens" of 2147483648`},
		"none":     {nil, `has no integer attribute "tokens" for the lengths of samples, it has none`},
	} {
		if _, err := build(c.value).Stream(t.Context(), packedOptions(64)); err == nil || !strings.Contains(err.Error(), c.err) || name != "none" && !strings.Contains(err.Error(), "shard ") {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
	long := packedOptions(16)
	long.Units.Long = ""
	if _, err := build(wrong("", 0, true)).Stream(t.Context(), long); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "are longer than the length of 16") {
		t.Errorf("long samples: %v", err)
	}
	at := 30
	for lengths[samples[at].Key] < 2 {
		at++
	}
	key := samples[at].Key
	for _, n := range []int64{-1, 1} { // a field shorter or longer than its attribute
		set := build(wrong(key, int64(lengths[key])+n, true))
		q, err := NewSequences(64, []SequenceField{{"ids.npy", 0}})
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		for b, err := range set.stream(t, packedOptions(64)).Batches(t.Context()) {
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
		"no array":   {[]byte("text"), 0, "it is no .npy file"},
		"cut short":  {npyOf("<i4", 2, make([]byte, 8))[:40], 0, "cut short in its header"},
		"data":       {npyOf("<i4", 2, make([]byte, 7)), 0, "7 bytes of data, its header says 8"},
		"longer":     {npyOf("<i4", 3, make([]byte, 12)), 0, "3 values, but the index says that the sample has 2"},
		"shape":      {[]byte(strings.Replace(string(npyOf("<i4", 2, make([]byte, 8))), "(2,)", "(2,1)", 1)), 0, "an array of shape [2 1]"},
		"big-endian": {npyOf(">i4", 2, make([]byte, 8)), 0, `an array of type ">i4"`},
		"text":       {npyOf("<U4", 2, make([]byte, 32)), 0, `an array of type "<U4"`},
		"pad":        {npyOf("|u1", 2, make([]byte, 2)), 300, "values of u1 cannot be padded with 300"},
		"wide":       {npyOf("<u8", 2, make([]byte, 16)), -100, "values of u8 cannot be padded with -100"},
	} {
		col := tokenColumn{pad: c.pad}
		s := Sample{}
		s.Fields = append(s.Fields, fieldOf("f", c.file))
		if err := col.take(&s, "f", &cut); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
	col := tokenColumn{}
	for i, descr := range []string{"<i4", "<i4", "<i8"} {
		s := Sample{}
		size, _ := strconv.Atoi(descr[2:])
		s.Fields = append(s.Fields, fieldOf("f", npyOf(descr, 2, make([]byte, 2*size))))
		if err := col.take(&s, "f", &cut); (err == nil) != (i < 2) {
			t.Errorf("type %s: %v", descr, err)
		}
	}
	if err := col.take(&Sample{}, "f", &cut); err == nil {
		t.Error("a sample without the field was accepted")
	}
	if _, err := NewSequences(5, nil); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}

func fieldOf(name string, data []byte) format.FieldView {
	return format.FieldView{Name: []byte(name), Data: data}
}
