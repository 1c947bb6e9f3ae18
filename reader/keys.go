package reader

import (
	"context"
	"iter"
	"slices"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Keys reads the keys of samples, given their numbers in storage order, which may be in any order
// and repeat. From each shard it reads the blocks that hold the samples, or the index if that has
// fewer bytes. Requests run concurrently. If no sample has a number, the error wraps
// fs.ErrNotExist. A sample that was removed has an empty key.
func (d *Dataset) Keys(ctx context.Context, numbers []uint64) ([]string, error) {
	sorted := slices.Sorted(slices.Values(numbers))
	sorted = slices.Compact(sorted)
	k := keyLookup{d: d, numbers: sorted, keys: make([]string, len(sorted)), requests: d.source.Requests()}
	if t := objstore.TraitsOf(d.Store()); t.Reserve != nil { // for a moment, and each answer is short
		defer t.Reserve(t.MostRequests - t.Requests)()
		k.requests = t.MostRequests
	}
	if err := k.plan(ctx); err != nil {
		return nil, err
	}
	for f, err := range d.run(ctx, pipelineOptions{requests: k.requests}, k.jobs()) {
		if err == nil {
			err = k.take(f)
		}
		if err != nil {
			return nil, err
		}
	}
	keys := make([]string, len(numbers))
	for i, n := range numbers {
		at, _ := slices.BinarySearch(sorted, n)
		keys[i] = k.keys[at]
	}
	return keys, nil
}

// keyLookup is one call of Keys.
type keyLookup struct {
	d        *Dataset
	numbers  []uint64 // ascending
	keys     []string // of numbers
	shards   []keyShard
	requests int // in flight
}

// keyShard is the numbers of one shard: those with the places from ≤ i < to.
type keyShard struct {
	shard    int
	from, to int
	blocks   []fetch.Job // to be read; none where the index was
}

// plan finds the shards of the numbers and what to read of each, and reads the indexes.
func (k *keyLookup) plan(ctx context.Context) error {
	for i := 0; i < len(k.numbers); {
		shard, end, err := k.d.catalog.ShardOf(ctx, k.numbers[i])
		if err != nil {
			return err
		}
		n, _ := slices.BinarySearch(k.numbers[i:], end)
		k.shards = append(k.shards, keyShard{shard: shard, from: i, to: i + n})
		i += n
	}
	return parallel(ctx, len(k.shards), max(k.requests, k.d.opts.Workers),
		func(ctx context.Context, i int) error { return k.read(ctx, &k.shards[i]) })
}

// indexCost is how many bytes of blocks cost as much as a byte of an index. An index decodes to the
// keys and sizes of all samples of the shard.
const indexCost = 2

// read chooses between the blocks and the index of a shard, and reads the index if that is less.
func (k *keyLookup) read(ctx context.Context, s *keyShard) error {
	at, err := k.d.catalog.Shard(ctx, s.shard)
	if err != nil {
		return err
	}
	if at.Numbered != nil {
		for i := s.from; i < s.to; i++ {
			if !at.Gone(k.numbers[i]) {
				k.keys[i] = at.NumberedKey(k.numbers[i])
			}
		}
		return nil
	}
	var stored uint64
	large := false
	for i := s.from; i < s.to; {
		j, _, err := k.d.catalog.Locate(ctx, k.numbers[i])
		if err != nil {
			return err
		}
		j.Whole = true
		p := j.Plan()
		stored += uint64(p.Stored)
		large = large || j.To-j.From > 1 && int64(p.Size) > k.d.opts.Memory/4
		s.blocks = append(s.blocks, j)
		for end := j.First + uint64(at.SamplesOf(j.From)); i < s.to && k.numbers[i] < end; i++ {
		}
	}
	if !large && stored <= indexCost*at.Tail {
		return nil
	}
	s.blocks = nil
	ix, err := k.d.catalog.Index(ctx, s.shard)
	if err != nil {
		return err
	}
	for i := s.from; i < s.to; i++ {
		if !at.Gone(k.numbers[i]) {
			k.keys[i] = ix.Keys.At(int(k.numbers[i] - at.First))
		}
	}
	return nil
}

// jobs yields the blocks to read.
func (k *keyLookup) jobs() iter.Seq2[fetch.Job, error] {
	return func(yield func(fetch.Job, error) bool) {
		for i := range k.shards {
			for _, j := range k.shards[i].blocks {
				if !yield(j, nil) {
					return
				}
			}
		}
	}
}

// take takes the keys out of a block.
func (k *keyLookup) take(f *fetch.Result) error {
	from, _ := slices.BinarySearch(k.numbers, f.First)
	var w sampleWalk
	w.begin(f)
	for i := from; i < len(k.numbers) && k.numbers[i] < f.First+uint64(f.Samples); {
		if f.Shard.Gone(k.numbers[i]) { // the walk leaves it out
			i++
			continue
		}
		if !w.next() {
			return w.err
		}
		if w.sample.Number == k.numbers[i] {
			k.keys[i] = string(w.sample.Key)
			i++
		}
	}
	return nil
}
