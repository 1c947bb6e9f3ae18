package reader_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// unitSet is a data set of documents; a token of document i has the value i·1000 and its place.
type unitSet struct {
	*reader.Dataset
	lengths []int
}

func newUnitSet(t *testing.T, seed uint64, n int) *unitSet {
	t.Helper()
	r := rand.New(rand.NewPCG(41, seed))
	set := &unitSet{}
	var samples []testset.Sample
	for i := range n {
		length := 1 + int(r.ExpFloat64()*30)
		set.lengths = append(set.lengths, length)
		var data []byte
		for k := range length {
			data = binary.LittleEndian.AppendUint32(data, uint32(i*1000+k))
		}
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("d%04d", i), Fields: []testset.Field{{Name: "ids", Data: data}}})
	}
	store := mem.New()
	integer := func(key string) (int64, bool) {
		var i int
		_, err := fmt.Sscanf(key, "d%d", &i)
		return int64(set.lengths[i]), err == nil
	}
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), testset.Options{BlockSize: 3000, ShardSize: 20_000, Integer: integer}); err != nil {
		t.Fatal(err)
	}
	var err error
	if set.Dataset, err = reader.Open(t.Context(), store, reader.Options{Workers: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// unitRun is a run that is stopped and continued: where it is, and how often it was given each
// token, by source, epoch, document and place.
type unitRun struct {
	sets map[string]*unitSet
	from *reader.Checkpoint
	seen map[string]map[uint64]map[uint32]int
}

// open is a rank's stream over the mix of a file, with changes where they differ from the
// checkpoint's.
func (u *unitRun) open(t *testing.T, text string, rank, world, batch int) *reader.Stream {
	t.Helper()
	var sets []*reader.Dataset
	for _, s := range parse(t, text).Sources {
		sets = append(sets, u.sets[s.Name].Dataset)
	}
	x, err := openSources(t, text, sets...)
	if err != nil {
		t.Fatal(err)
	}
	var asked reader.Spec
	asked.Units = units.Params{Kind: units.Pack, Size: 64, Long: units.LongSplit, Window: 16, By: "tokens"}
	asked.Order = order.Choice{Seed: 5, Shuffle: true, Tail: order.TailWrap, GlobalBatch: batch}
	run, err := x.Resolve(t.Context(), asked, u.from, reader.Change{Mix: true}, reader.Planning{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	o := reader.StreamOptions{}
	o.GlobalBatch, o.Rank, o.World = batch, rank, world
	s, err := run.Stream(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// count counts the tokens of a batch. The bytes must be those of the document.
func (u *unitRun) count(t *testing.T, b *reader.Batch) {
	t.Helper()
	for i := range b.Samples {
		s, cut := &b.Samples[i], b.Cut(i)
		if source, epoch := b.UnitSource(cut.Unit); source != s.SourceNumber() || epoch != uint64(s.Epoch) {
			t.Fatalf("unit %d is of source %d and epoch %d, its sample of %d and %d", cut.Unit, source, epoch, s.SourceNumber(), s.Epoch)
		}
		epochs := u.seen[s.Source()]
		if epochs == nil {
			epochs = map[uint64]map[uint32]int{}
			u.seen[s.Source()] = epochs
		}
		tokens := epochs[uint64(s.Epoch)]
		if tokens == nil {
			tokens = map[uint32]int{}
			epochs[uint64(s.Epoch)] = tokens
		}
		for k := cut.Offset; k < cut.Offset+cut.Length; k++ {
			value := binary.LittleEndian.Uint32(s.Fields[0].Data[4*k:])
			if value != uint32(s.Number)*1000+k {
				t.Fatalf("document %d of %s has %d at %d", s.Number, s.Source(), value, k)
			}
			tokens[value]++
		}
	}
}

// check reports tokens that came twice, and those that an epoch which ended did not have.
func (u *unitRun) check(t *testing.T) (tokens, epochs int) {
	t.Helper()
	for name, all := range u.seen {
		for epoch, seen := range all {
			for value, times := range seen {
				if tokens++; times != 1 {
					t.Fatalf("%s: token %d came %d times in epoch %d", name, value, times, epoch)
				}
			}
			if all[epoch+1] == nil {
				continue
			}
			epochs++
			want := 0
			for _, n := range u.sets[name].lengths {
				want += n
			}
			if len(seen) != want {
				t.Fatalf("%s: epoch %d had %d of %d tokens", name, epoch, len(seen), want)
			}
		}
	}
	return tokens, epochs
}

// TestUnitStreams: starts with any number of ranks and other weights, killed at any step, deliver
// every token of the sources once, with its bytes.
func TestUnitStreams(t *testing.T) {
	sets := map[string]*unitSet{"a": newUnitSet(t, 1, 120), "b": newUnitSet(t, 2, 70), "c": newUnitSet(t, 3, 40)}
	var tokens, epochs int
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(43, seed))
		u := &unitRun{sets: sets, seen: map[string]map[uint64]map[uint32]int{}}
		for range 5 {
			var text strings.Builder
			text.WriteString("sources:\n")
			for _, name := range []string{"a", "b", "c"} {
				if name == "a" || r.IntN(4) > 0 {
					fmt.Fprintf(&text, "  %s: {data: %[1]s, weight: %d}\n", name, 1+r.IntN(9))
				}
			}
			text.WriteString("epoch: 100\n")
			u.steps(t, r, text.String())
		}
		n, whole := u.check(t)
		tokens, epochs = tokens+n, epochs+whole
	}
	if tokens < 4_000*int(seeds) || epochs < 5*int(seeds)/2 {
		t.Errorf("only %d tokens and %d whole epochs", tokens, epochs)
	}
}

// steps reads some steps on some ranks, and is killed after a checkpoint.
func (u *unitRun) steps(t *testing.T, r *rand.Rand, text string) {
	t.Helper()
	world, batch := 1+r.IntN(4), 4+r.IntN(20)
	streams := make([]*reader.Stream, world)
	for rank := range streams {
		streams[rank] = u.open(t, text, rank, world, batch)
		defer streams[rank].Close()
	}
	steps := 1 + r.IntN(20)
	for step := range steps + 1 { // the last one is lost with the kill
		saves := r.IntN(world)
		var cp *reader.Checkpoint
		for rank, s := range streams {
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if step == steps {
				continue
			}
			u.count(t, b)
			if rank == saves {
				at, err := b.Checkpoint()
				if err != nil {
					t.Fatal(err)
				}
				saved, err := at.Append(nil)
				if err != nil {
					t.Fatal(err)
				}
				read, err := reader.DecodeCheckpoint(saved)
				if err != nil {
					t.Fatal(err)
				}
				cp = &read
			}
		}
		if cp != nil {
			u.from = cp
		}
	}
}

// TestUnitMix: weights, epoch and memory of a mix of units, and what does not fit.
func TestUnitMix(t *testing.T) {
	a, b := newUnitSet(t, 1, 300), newUnitSet(t, 2, 100)
	sets := []*reader.Dataset{a.Dataset, b.Dataset}
	size := uint32(64)
	mixOf := func(text string, c order.Choice) (mix.Mix, error) {
		x, err := openSources(t, text, sets...)
		if err != nil {
			t.Fatal(err)
		}
		asked := reader.Spec{Order: c, Units: units.Params{Kind: units.Pack, Size: size, Long: units.LongTruncate, By: "tokens"}}
		run, err := x.Resolve(t.Context(), asked, nil, reader.Change{}, reader.Planning{})
		if err != nil {
			return mix.Mix{}, err
		}
		t.Cleanup(func() { run.Close() })
		return run.Plan().(*mix.Plan).Mix(), nil
	}
	m, err := mixOf("sources: {a: {data: x}, b: {data: y}}", order.Choice{Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	first := []uint64{m.Sources[0].Units, m.Sources[1].Units}
	for i := range m.Sources {
		n, err := mix.LineOf(&m.Sources[i]).Len(0)
		if sum := mix.LineOf(&m.Sources[i]).Units().Summary(); err != nil || n != first[i] || n < sum.Tokens/64 || n > sum.Tokens/64*3/2 || sum.Truncated == 0 {
			t.Errorf("source %d has %d units of %d, %+v, %v", i, first[i], n, sum, err)
		}
	}
	if !slices.Equal(m.Segments[0].Weights, first) || m.Epoch != first[0]+first[1] {
		t.Errorf("weights %d and an epoch of %d for %d units", m.Segments[0].Weights, m.Epoch, first)
	}
	m, err = mixOf("sources: {a: {data: x, weight: 1}, b: {data: y, weight: 1}}\ncount: tokens", order.Choice{Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	mean := func(i int) float64 {
		return float64(mix.LineOf(&m.Sources[i]).Units().Summary().Tokens) / float64(m.Sources[i].Units)
	}
	if w := m.Segments[0].Weights; float64(w[0])*mean(0)/(float64(w[1])*mean(1)) < 0.999999 || float64(w[0])*mean(0)/(float64(w[1])*mean(1)) > 1.000001 {
		t.Errorf("weights %d for means of %.2f and %.2f tokens", w, mean(0), mean(1))
	}
	if _, err := mixOf("sources: {a: {data: x}, b: {data: y}}", order.Choice{Shuffle: true, Memory: 5000}); err == nil || !strings.Contains(err.Error(), "give at least") {
		t.Errorf("a memory that is too small: %v", err)
	}
	size = 0
	if _, err := mixOf("sources: {a: {data: x}, b: {data: y}}", order.Choice{}); err == nil || !strings.Contains(err.Error(), "sources.a") {
		t.Errorf("a length of 0: %v", err)
	}
}

// TestUnitCancel: planning at open ends with the context.
func TestUnitCancel(t *testing.T) {
	set := newUnitSet(t, 1, 300)
	ctx, cancel := context.WithCancelCause(t.Context())
	x, err := openSources(t, "sources: {a: {data: x}}", set.Dataset)
	if err != nil {
		t.Fatal(err)
	}
	cancel(io.ErrClosedPipe)
	asked := reader.Spec{Order: order.Choice{Shuffle: true}, Units: units.Params{Kind: units.Pack, Size: 64, Long: units.LongSplit, By: "tokens"}}
	if _, err := x.Resolve(ctx, asked, nil, reader.Change{}, reader.Planning{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after the context ended: %v", err)
	}
}

// TestUnitEmpty reads a mix of units with an empty source, which has no units.
func TestUnitEmpty(t *testing.T) {
	store := mem.New()
	if _, err := testset.Build(t.Context(), store, slices.Values([]testset.Sample(nil)), testset.Options{}); err != nil {
		t.Fatal(err)
	}
	empty, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	sets := []*reader.Dataset{newUnitSet(t, 1, 300).Dataset, empty}
	x, err := openSources(t, "sources: {a: {data: x, weight: 1}, b: {data: y, weight: 0}}", sets...)
	if err != nil {
		t.Fatal(err)
	}
	asked := reader.Spec{Order: order.Choice{Shuffle: true, GlobalBatch: 4}, Units: units.Params{Kind: units.Pack, Size: 64, Long: units.LongSplit, By: "tokens"}}
	run, err := x.Resolve(t.Context(), asked, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	s, err := run.Stream(t.Context(), reader.StreamOptions{Expect: []string{"ids?"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := s.Next(t.Context())
	if err != nil || b.Units != 4 {
		t.Fatal(b, err)
	}
	b.Release()
}
