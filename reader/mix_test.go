package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// source is a data set as a source of mixes.
type source struct {
	*streamed
	name  string
	table order.Table
}

func newSource(t testing.TB, name string, store objstore.Store, n int) source {
	t.Helper()
	samples := mixed(n)
	for i := range samples {
		samples[i].Key = name + "/" + samples[i].Key
	}
	s := source{streamed: newStreamed(t, store, samples, testset.Options{BlockSize: 4000, ShardSize: 40_000, Integer: lengthOf}), name: name}
	var err error
	if s.table, err = s.OrderTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// mixOf is a mix of sources, which are in ascending order of names, with these weights from 0 on.
func mixOf(seed uint64, sources []source, weights ...uint64) mix.Mix {
	m := mix.Mix{Seed: seed, Shuffle: true, Tail: order.TailWrap, Epoch: 500, Segments: []mix.Segment{{Weights: weights}}}
	for _, s := range sources {
		m.Sources = append(m.Sources, mix.Source{
			Name: s.name, Digest: format.DigestString(s.Digest()), Units: s.NumSamples(),
			Lanes: 4, RunBlocks: 1, Delay: 3, Head: 2, Affinity: order.AffinityEpoch,
		})
	}
	return m
}

// joined is what a stream over the mix needs: the data sets by number of the source, and their
// tables.
func joined(t testing.TB, m mix.Mix, sources []source) (Mix, []order.Table) {
	t.Helper()
	p, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	out, tables := Mix{Plan: p}, make([]order.Table, len(m.Sources))
	for i := range m.Sources {
		k := slices.IndexFunc(sources, func(s source) bool { return s.name == m.Sources[i].Name })
		if k < 0 {
			out.Sets = append(out.Sets, nil)
			continue
		}
		out.Sets, tables[i] = append(out.Sets, sources[k].Dataset), sources[k].table
	}
	return out, tables
}

// Mix is a mix as package mix has it, with its data sets by number of the source; nil for one that
// was removed.
type Mix struct {
	Plan     *mix.Plan
	Sets     []*Dataset
	Position uint64
	Steps    mix.Steps
	LeftOut  []mix.Range
}

// Continue sets the place of a checkpoint.
func (m *Mix) Continue(c *mix.Checkpoint) {
	m.Position, m.Steps, m.LeftOut = c.Position, c.Steps, c.LeftOut
}

// OpenMix opens a stream over a mix whose orders no rule chose.
func OpenMix(ctx context.Context, m Mix, o StreamOptions) (*Stream, error) {
	var r resolving
	x := m.Plan.Mix()
	for i, d := range m.Sets {
		if d == nil {
			continue
		}
		table, err := d.OrderTable(ctx)
		if err != nil {
			return nil, &mix.SourceError{Source: x.Sources[i].Name, Err: err}
		}
		r.Sources, r.sets, r.data = append(r.Sources, SourceSpec{Name: x.Sources[i].Name}), append(r.sets, d), append(r.data, sourceData{table: table})
	}
	run, err := r.over(&mixEngine{plan: m.Plan, begin: m.Position, steps: m.Steps, leftOut: m.LeftOut}, &x)
	if err != nil {
		return nil, err
	}
	run.end = o.End()
	if err := run.useCosts(ctx, &Spec{Cost: o.Cost, CostGroup: o.CostGroup, MicroBatches: o.MicroBatches}, Planning{}); err != nil {
		return nil, err
	}
	return run.Stream(ctx, o)
}

func openMix(t testing.TB, m Mix, o StreamOptions) *Stream {
	t.Helper()
	s, err := OpenMix(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// mixText is a checkpoint as the next process reads it.
func mixText(t testing.TB, c Checkpoint, err error) *mix.Checkpoint {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return throughText(t, c).Mix
}

// checkMixed compares a rank's batch with references of the plan, byte by byte.
func checkMixed(t testing.TB, b *Batch, refs []order.Ref, m mix.Mix, sources []source) {
	t.Helper()
	if len(b.Samples) != len(refs) {
		t.Fatalf("%d samples, want %d", len(b.Samples), len(refs))
	}
	for i, r := range refs {
		s, of := &b.Samples[i], &m.Sources[r.Source]
		if s.Number != r.Number || s.Source() != of.Name || s.SourceNumber() != int(r.Source) || s.Epoch != r.Epoch || s.Padding != r.Padding {
			t.Fatalf("entry %d is sample %d of %s in epoch %d, want %+v", i, s.Number, s.Source(), s.Epoch, r)
		}
		if want := order.SampleSeed(mix.Key(m.Seed, of.Name), uint64(r.Epoch), r.Number, 0); s.Seed() != want {
			t.Fatalf("entry %d has seed %x, want %x", i, s.Seed(), want)
		}
		k := slices.IndexFunc(sources, func(s source) bool { return s.name == of.Name })
		if err := equal(s, int(r.Number), sources[k].samples[r.Number]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMixElastic: chains of starts with other ranks, batch sizes, weights, sources and costs,
// killed at any moment. The ranks' batches are those of the plan read by one rank, and over a chain
// each source gives each of its samples once in each epoch.
func TestMixElastic(t *testing.T) {
	watch(t)
	all := []source{
		newSource(t, "a", mem.New(), 90), newSource(t, "b", inDir(t), 150),
		newSource(t, "c", &far{Store: mem.New(), requests: 3, delay: 50 * time.Microsecond}, 60), newSource(t, "d", mem.New(), 40),
	}
	random := rand.New(rand.NewPCG(21, 22))
	chains := 10
	if testing.Short() {
		chains = 3
	}
	for range chains {
		given := map[string]map[uint32]map[uint64]int{}
		var cp *mix.Checkpoint
		seed := random.Uint64()
		for range 7 {
			var in []source
			var weights []uint64
			for _, s := range all {
				if random.IntN(4) > 0 || s.name == "b" {
					in, weights = append(in, s), append(weights, 1+random.Uint64N(9))
				}
			}
			m := mixOf(seed, in, weights...)
			if cp != nil {
				var err error
				if m, err = cp.Change(m); err != nil {
					t.Fatal(err)
				}
			}
			x, tables := joined(t, m, in)
			if cp != nil {
				x.Continue(cp)
			}
			cp = mixRun(t, x, tables, in, given, random)
		}
		checkGiven(t, all, given)
	}
}

// mixRun reads some batches on some ranks, and returns the checkpoint that the next start gets.
func mixRun(t *testing.T, x Mix, tables []order.Table, in []source, given map[string]map[uint32]map[uint64]int, random *rand.Rand) (cp *mix.Checkpoint) {
	t.Helper()
	m := x.Plan.Mix()
	orders, err := m.Orders(tables)
	if err != nil {
		t.Fatal(err)
	}
	want, err := x.Plan.Seek(x.Position, orders)
	if err != nil {
		t.Fatal(err)
	}
	split := order.Split{GlobalBatch: 5 + random.IntN(90), World: 1 + random.IntN(5)}
	streams, cost := make([]*Stream, split.World), []string{"", "tokens/3"}[random.IntN(2)]
	micro := 0
	if cost != "" {
		micro = random.IntN(1 + min(split.GlobalBatch/split.World, 4))
	}
	for r := range streams {
		streams[r] = openMix(t, x, StreamOptions{GlobalBatch: split.GlobalBatch, Rank: r, World: split.World, Cost: cost, MicroBatches: micro, Tuning: Tuning{Memory: []int64{0, 1 << 20}[random.IntN(2)]}})
	}
	at, err := streams[0].Checkpoint()
	cp = mixText(t, at, err)
	for range random.IntN(6) {
		refs, _, err := want.NextBatch(nil, order.Split{GlobalBatch: split.GlobalBatch, World: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refs {
			note(given, m.Sources[r.Source].Name, r)
		}
		came := 0
		for _, s := range streams {
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			own := make([]order.Ref, len(b.Samples))
			for i := range own {
				own[i] = refs[b.Entry(i)]
			}
			checkMixed(t, b, own, m, in)
			came += len(own)
			at, err := b.Checkpoint()
			cp = mixText(t, at, err)
		}
		if came != len(refs) {
			t.Fatalf("%d samples of a batch of %d came", came, len(refs))
		}
	}
	for _, s := range streams {
		if random.IntN(3) == 0 {
			if _, err := s.Next(t.Context()); err != nil { // it got further than the others, without saving that
				t.Fatal(err)
			}
		}
		s.Close()
	}
	return cp
}

func note(given map[string]map[uint32]map[uint64]int, name string, r order.Ref) {
	if given[name] == nil {
		given[name] = map[uint32]map[uint64]int{}
	}
	if given[name][r.Epoch] == nil {
		given[name][r.Epoch] = map[uint64]int{}
	}
	given[name][r.Epoch][r.Number]++
}

// checkGiven checks that nothing came twice, and that nothing is missing from epochs that ended.
func checkGiven(t *testing.T, all []source, given map[string]map[uint32]map[uint64]int) {
	t.Helper()
	for _, s := range all {
		for epoch, numbers := range given[s.name] {
			for n, times := range numbers {
				if times > 1 {
					t.Fatalf("sample %d of %s came %d times in epoch %d", n, s.name, times, epoch)
				}
			}
			if _, later := given[s.name][epoch+1]; later && len(numbers) < len(s.samples) {
				t.Fatalf("epoch %d of %s has %d of %d samples", epoch, s.name, len(numbers), len(s.samples))
			}
		}
	}
}

// TestMixStats: samples and bytes by source, and Map sees where a sample is from.
func TestMixStats(t *testing.T) {
	in := []source{newSource(t, "a", mem.New(), 60), newSource(t, "b", mem.New(), 60)}
	x, _ := joined(t, mixOf(1, in, 3, 1), in)
	o := StreamOptions{GlobalBatch: 40, Epochs: 1}
	o.Map = func(_ context.Context, s *Sample) error {
		data := fmt.Appendf(nil, "%s/%d/%x", s.Source(), s.Epoch, s.Seed())
		s.Fields = append(slices.Clone(s.Fields), format.FieldView{Name: []byte("where"), Data: data})
		return nil
	}
	s := openMix(t, x, o)
	want := map[string]*stats.Source{"a": {Name: "a"}, "b": {Name: "b"}}
	n := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Position != uint64(n*40) || b.Epoch != 0 {
			t.Errorf("batch %d is at %d of epoch %d", n, b.Position, b.Epoch)
		}
		n++
		for i := range b.Samples {
			smp := &b.Samples[i]
			of := want[smp.Source()]
			of.Samples++
			last := len(smp.Fields) - 1
			for _, f := range smp.Fields[:last] {
				of.Bytes += uint64(len(f.Data))
			}
			if where := fmt.Sprintf("%s/%d/%x", smp.Source(), smp.Epoch, smp.Seed()); string(smp.Fields[last].Data) != where {
				t.Fatalf("Map was told %s, the batch %s", smp.Fields[last].Data, where)
			}
		}
	}
	if got := s.Stats().Sources; len(got) != 2 || got[0] != *want["a"] || got[1] != *want["b"] || got[0].Samples < 2*got[1].Samples {
		t.Errorf("%+v, want %+v and %+v", got, want["a"], want["b"])
	}
}

// one is a data set of samples with one field.
func one(t testing.TB, name, field string, store objstore.Store, n int) source {
	t.Helper()
	var samples []testset.Sample
	for i := range n {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%s%04d", name, i), Fields: []testset.Field{{Name: field, Data: []byte(strings.Repeat(name, 500))}}})
	}
	s := source{streamed: newStreamed(t, store, samples, testset.Options{BlockSize: 4000, ShardSize: 8000}), name: name}
	var err error
	if s.table, err = s.OrderTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMixFields: sources have the same fields, but for those that may be missing.
func TestMixFields(t *testing.T) {
	in := []source{one(t, "a", "jpg", mem.New(), 20), one(t, "b", "png", mem.New(), 20)}
	x, _ := joined(t, mixOf(1, in, 1, 1), in)
	for _, e := range []struct {
		expect []string
		want   string
	}{
		{nil, `source "a": missing fields: it has no field "png", which source "b" has: where samples may lack it, expect "png?"`},
		{[]string{"jpg"}, `source "b": missing fields`},
		{[]string{"jpg?"}, `no field "png"`},
		{[]string{"jpg?", "png?"}, ""},
		{[]string{"jpg?", "png?", "txt"}, `source "a"`},
	} {
		s, err := OpenMix(t.Context(), x, StreamOptions{Expect: e.expect})
		if e.want == "" {
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			continue
		}
		if !errors.Is(err, ErrFields) || !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%q: %v, want %s", e.expect, err, e.want)
		}
	}
	for _, expect := range [][]string{{"txt?", "jpg"}, {"jp"}, {"txt"}} {
		if _, err := in[0].Stream(t.Context(), StreamOptions{Expect: expect}); !errors.Is(err, ErrFields) {
			t.Errorf("%q: %v", expect, err)
		}
	}
	if s, err := in[0].Stream(t.Context(), StreamOptions{Expect: []string{"jpg?", "jpg"}}); err != nil {
		t.Error(err)
	} else {
		s.Close()
	}
}

// takenBy opens a stream of n sources that lie in folders, reads some batches, and returns what it
// has taken, in the end no more than so many goroutines.
func takenBy(t *testing.T, n, most int) (goroutines, descriptors int) {
	t.Helper()
	var in []source
	var weights []uint64
	for i := range n {
		in, weights = append(in, one(t, fmt.Sprintf("s%02d", i), "x", inDir(t), 50)), append(weights, 1)
	}
	before, files := runtime.NumGoroutine(), openFiles(t)
	x, _ := joined(t, mixOf(1, in, weights...), in)
	s := openMix(t, x, StreamOptions{GlobalBatch: 128, Tuning: Tuning{Memory: 16 << 20}})
	for range 8 {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return usage(t, before+most).goroutines - before, openFiles(t) - files
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not list a process's descriptors")
	}
	return len(files)
}

// TestMixResources: 64 sources take no more goroutines than one, nearly, and few descriptors.
func TestMixResources(t *testing.T) {
	watch(t)
	g1, _ := takenBy(t, 1, math.MaxInt32)
	g64, d64 := takenBy(t, 64, 3*g1/2)
	t.Logf("goroutines: %d and %d; descriptors of 64 sources: %d", g1, g64, d64)
	if 2*g64 > 3*g1 {
		t.Errorf("64 sources take %d goroutines, one takes %d", g64, g1)
	}
	if d64 > 256*3/2 { // one may keep 256 shards open
		t.Errorf("64 sources take %d descriptors", d64)
	}
}

// TestMixEnds: sources with max_epochs end the stream, and steps are left out exactly.
func TestMixEnds(t *testing.T) {
	watch(t)
	in := []source{one(t, "a", "x", mem.New(), 30), one(t, "b", "x", mem.New(), 20)}
	m := mixOf(1, in, 1, 1)
	m.Tail = order.TailShort
	m.Sources[0].MaxEpochs, m.Sources[1].MaxEpochs = 2, 1
	x, tables := joined(t, m, in)
	orders, err := m.Orders(tables)
	if err != nil {
		t.Fatal(err)
	}
	x.LeftOut = []mix.Range{{From: 14, To: 28}}
	want, err := x.Plan.Seek(0, orders)
	if err != nil {
		t.Fatal(err)
	}
	if err := want.LeaveOut(x.LeftOut); err != nil {
		t.Fatal(err)
	}
	s := openMix(t, x, StreamOptions{GlobalBatch: 7})
	n := 0
	for b, err := range s.Batches(t.Context()) {
		refs, at, planErr := want.NextBatch(nil, order.Split{GlobalBatch: 7, World: 1})
		if err != nil || planErr != nil || b.Position != at.Position {
			t.Fatal(err, planErr)
		}
		checkMixed(t, b, refs, m, in)
		n += len(b.Samples)
	}
	if _, _, err := want.NextBatch(nil, order.Split{GlobalBatch: 7, World: 1}); !errors.Is(err, io.EOF) || n != 80-14 {
		t.Errorf("%d samples, then %v", n, err)
	}
}

// TestMixMemory: the default memory evicts nothing, each block is read once an epoch, and a small
// budget is kept.
func TestMixMemory(t *testing.T) {
	watch(t)
	var in []source
	for _, name := range []string{"a", "b", "c", "d"} {
		in = append(in, one(t, name, "x", mem.New(), 3000))
	}
	m := mixOf(1, in, 1, 1, 1, 1)
	m.Epoch = 4 * 3000
	for i := range m.Sources {
		m.Sources[i].Lanes, m.Sources[i].Delay = 12, 16
	}
	x, _ := joined(t, m, in)
	for _, memory := range []int64{0, 1 << 20} {
		s := openMix(t, x, StreamOptions{GlobalBatch: 64, Epochs: 2, Tuning: Tuning{Memory: memory, Workers: 1}})
		for _, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		stats, blocks := s.Stats(), 2*4*in[0].Info().Blocks
		t.Logf("budget %d: %+v of %d blocks", s.Info().Memory, stats, blocks)
		switch {
		case memory == 0 && (stats.Evicted > 0 || stats.Blocks > blocks+2*4*12):
			t.Errorf("%d blocks were read, %d evicted, of %d", stats.Blocks, stats.Evicted, blocks)
		case memory > 0 && stats.Held > memory:
			t.Errorf("%d bytes were held with a budget of %d", stats.Held, memory)
		}
	}
}
