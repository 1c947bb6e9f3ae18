package reader

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// TestReadOnce: a data set that is small for the shuffle memory is a uniform permutation, and every
// rank of it reads each block once for all epochs, with the default memory.
func TestReadOnce(t *testing.T) {
	store := &far{Store: mem.New(), requests: 8}
	set := newStreamed(t, store, mixed(3000), testset.Options{BlockSize: 8 << 10, ShardSize: 200 << 10})
	blocks := uint64(set.Info().Blocks)
	for _, c := range []struct{ rank, world, batch int }{{0, 1, 64}, {0, 1, 2999}, {3, 8, 256}, {5, 8, 8}} {
		store.reads.Store(0)
		f := set.follow(t, StreamOptions{Shuffle: true, Seed: 5, GlobalBatch: c.batch, Rank: c.rank, World: c.world, Epochs: 4, Tuning: Tuning{Depth: 2}})
		if p := f.Info().Plans[0]; !p.Whole() || p.Params().Lanes != 1 || f.Info().Memory > 100<<20 {
			t.Fatalf("%+v: %+v, %d bytes", c, p.Params(), f.Info().Memory)
		}
		f.rest(t)
		if s := f.Stats(); s.Blocks > blocks || s.Blocks < blocks*9/10 || s.Evicted > 0 || store.reads.Load() > int64(blocks)+3*int64(set.NumShards()) {
			t.Errorf("%+v: %d reads of %d blocks in four epochs, the data set has %d; %d evicted", c, store.reads.Load(), s.Blocks, blocks, s.Evicted)
		}
	}
	// With less memory than the data has, blocks are read again; the order is the same.
	f := set.follow(t, StreamOptions{Shuffle: true, Seed: 5, GlobalBatch: 64, Epochs: 2, Tuning: Tuning{Memory: 1 << 20}})
	f.rest(t)
	if s := f.Stats(); s.Blocks <= blocks || s.Evicted == 0 {
		t.Errorf("%d blocks read, %d evicted", s.Blocks, s.Evicted)
	}
}

// TestMixReadOnce: so does every source of a mix.
func TestMixReadOnce(t *testing.T) {
	a, b := newSource(t, "a", inDir(t), 500), newSource(t, "b", inDir(t), 200)
	m := mixOf(3, []source{a, b}, 1, 1)
	for i := range m.Sources {
		p, err := order.Choose([]source{a, b}[i].table, order.Choice{Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		s := &m.Sources[i]
		s.Lanes, s.RunBlocks, s.Delay, s.Head = p.Lanes, p.RunBlocks, p.Delay, p.Head
	}
	of, _ := joined(t, m, []source{a, b})
	s := openMix(t, of, StreamOptions{GlobalBatch: 50, Epochs: 4, Tuning: Tuning{Depth: 2}})
	samples := 0
	for batch, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		samples += len(batch.Samples)
	}
	if got, want := s.Stats().Blocks, uint64(a.Info().Blocks+b.Info().Blocks); samples != 2000 || got != want {
		t.Errorf("%d samples; %d blocks read, want %d", samples, got, want)
	}
}

// TestMixing: a stream over a mix tells which source is mixed least, and one over small data that
// nothing has to be done.
func TestMixing(t *testing.T) {
	a, b := newSource(t, "a", inDir(t), 2000), newSource(t, "b", inDir(t), 2000)
	m := mixOf(3, []source{a, b}, 1, 1)
	m.Sources[0].Delay, m.Sources[0].Lanes = 500, 1
	m.Sources[1].Delay, m.Sources[1].Lanes, m.Sources[1].Head = 1, 1, 1
	of, _ := joined(t, m, []source{a, b})
	mixed := openMix(t, of, StreamOptions{GlobalBatch: 100, Epochs: 4})
	v, err := mixed.run.Load().Mixing(t.Context(), mixed.split)
	if err != nil || v.Source != "b" || !v.Little() || v.Memory < 1<<20 {
		t.Errorf("a mix: %+v, %v", v, err)
	}
	mixed = a.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 100})
	if v, err = mixed.run.Load().Mixing(t.Context(), mixed.split); err != nil || v.VIF != 1 {
		t.Errorf("small data: %+v, %v", v, err)
	}
}

// TestSmallSamples bounds what is held of samples that are small: about their keys and fields, and
// not the headers around them, which are nearly all bytes of their blocks. With memory for these
// bytes alone every block is read once. So too where samples differ from the mean of the data set,
// so that a piece needs more than the tables let expect.
func TestSmallSamples(t *testing.T) {
	const n = 10_000
	random := rand.New(rand.NewPCG(1, 2))
	for name, fields := range map[string]func(i int) (sizes []int){
		"rows of 10 bytes": func(int) []int { return []int{10} },
		"uneven": func(i int) []int { // the first ones have few headers, and a part of these many bytes
			if i < n/2 {
				return []int{random.IntN(100) + i%1000/900*400}
			}
			return []int{5, 5, 5}
		},
	} {
		for _, o := range []testset.Options{{BlockSize: 256 << 10}, {BlockSize: 16 << 10}, {BlockSize: 64 << 10, Plain: true}} {
			var samples []testset.Sample
			held := int64(0)
			for i := range n {
				s := testset.Sample{Key: fmt.Sprintf("row/%06d", i)}
				for f, size := range fields(i) {
					data := make([]byte, size)
					for j := range data {
						data[j] = byte(random.Uint32())
					}
					s.Fields = append(s.Fields, testset.Field{Name: string(rune('a' + f)), Data: data})
					held += int64(size)
				}
				held += int64(len(s.Key))
				samples = append(samples, s)
			}
			d := newStreamed(t, inDir(t), samples, o)
			decoded, _ := d.sums()
			f := d.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 256, Epochs: 2, Tuning: Tuning{Memory: 16 << 20}})
			f.rest(t)
			s := f.Stats()
			t.Logf("%s, %+v: %.0f bytes decoded, %d of keys and fields, %d held", name, o, decoded, held, s.Held)
			most := 2 * held
			if name == "uneven" { // also what pieces took that were expected to need more
				most = 4 * held
			}
			if s.Held > most || s.Evicted > 0 || s.Blocks > d.Info().Blocks {
				t.Errorf("%s, %+v: %d bytes were held for %d of keys and fields, %d blocks evicted, %d of %d read",
					name, o, s.Held, held, s.Evicted, s.Blocks, d.Info().Blocks)
			}
			if m := d.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 256}).Info().Memory; m > 64<<20 && name != "uneven" {
				t.Errorf("%s, %+v: a stream takes %d bytes by default", name, o, m)
			}
		}
	}
}
