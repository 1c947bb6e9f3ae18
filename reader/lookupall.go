package reader

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// maxTableRead is the largest keys table that LookupAll reads from front to back, whatever the
// number of keys: reading 16 bytes a sample in order costs less than a place for each key.
const maxTableRead = 64 << 20

// LookupAll returns the numbers of the samples with each of the keys, ascending: none where no
// sample has the key, and more than one only where a data set keeps duplicates. Removed samples are
// among them; see Removed. It reads the keys table and the index of each shard that holds one of
// the samples, and no blocks. Without a keys table it reads the indexes of all shards whose range
// of keys has room for one of the keys.
func (d *Dataset) LookupAll(ctx context.Context, keys []string) ([][]uint64, error) {
	a := lookupAll{d: d, keys: keys, found: make([][]uint64, len(keys))}
	ctx, end := d.catalog.Scope(ctx)
	defer end()
	err := a.fromIndexes
	if d.tables.Keys != (format.Hash{}) {
		err = a.fromTable
	}
	if err := d.catalog.AfterClose(err(ctx)); err != nil {
		return nil, err
	}
	for i := range a.found {
		slices.Sort(a.found[i])
	}
	return a.found, nil
}

// lookupAll is one call of LookupAll.
type lookupAll struct {
	d    *Dataset
	keys []string

	mu    sync.Mutex
	found [][]uint64 // by key
}

// wanted is a key, by its place among the keys, or a sample that may have it.
type wanted struct {
	hash, number uint64
	key          int
}

// fromTable finds the keys through the keys table.
func (a *lookupAll) fromTable(ctx context.Context) error {
	all := make([]wanted, len(a.keys))
	for i, k := range a.keys {
		all[i] = wanted{hash: samplekey.Hash(k), key: i}
	}
	slices.SortFunc(all, func(x, y wanted) int { return cmp.Compare(x.hash, y.hash) })
	table := samplekey.Table{Entries: a.d.tables.Samples}
	search := a.search
	if table.Size() <= maxTableRead || int64(len(all)) > table.Groups()/4 {
		search = a.scan
	}
	candidates, err := search(ctx, all)
	if err != nil {
		return err
	}
	if err := a.confirm(ctx, candidates); err != nil {
		return err
	}
	return a.doubt(ctx)
}

// scan reads the whole keys table.
func (a *lookupAll) scan(ctx context.Context, all []wanted) (candidates []wanted, err error) {
	for entries, err := range a.d.KeyHashes(ctx) {
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			for len(all) > 0 && all[0].hash < e.Hash {
				all = all[1:]
			}
			for _, w := range all {
				if w.hash != e.Hash {
					break
				}
				candidates = append(candidates, wanted{number: e.Number, key: w.key})
			}
		}
		if len(all) == 0 {
			break
		}
	}
	return candidates, nil
}

// search reads the place of each key in the keys table.
func (a *lookupAll) search(ctx context.Context, all []wanted) (candidates []wanted, err error) {
	err = parallel(ctx, len(all), max(a.d.opts.Workers, a.d.source.Requests()), func(ctx context.Context, i int) error {
		entries, err := a.d.catalog.SearchTable(ctx, all[i].hash)
		if err != nil {
			return err
		}
		from, to := samplekey.Search(entries, all[i].hash)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range entries[from:to] {
			candidates = append(candidates, wanted{number: e.Number, key: all[i].key})
		}
		return nil
	})
	return candidates, err
}

// confirm compares the keys of samples that may have them: the keys table has hashes.
func (a *lookupAll) confirm(ctx context.Context, candidates []wanted) error {
	slices.SortFunc(candidates, func(x, y wanted) int { return cmp.Compare(x.number, y.number) })
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(a.d.opts.Workers, a.d.source.Requests()))
	for len(candidates) > 0 {
		j, _, err := a.d.catalog.Locate(ctx, candidates[0].number)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		s, n := j.Shard, 1
		for n < len(candidates) && candidates[n].number < s.First+s.Samples {
			n++
		}
		of := candidates[:n]
		candidates = candidates[n:]
		g.Go(func() error {
			keys, err := a.keysOf(ctx, s)
			for _, w := range of {
				if err == nil && keys.At(int(w.number-s.First)) == a.keys[w.key] {
					a.add(w.key, w.number)
				}
			}
			return err
		})
	}
	return g.Wait()
}

// keysOf reads the keys of a shard as they are stored, or computes them where they are numbered.
func (a *lookupAll) keysOf(ctx context.Context, s *fetch.Shard) (*metadata.KeyColumn, error) {
	if s.Numbered != nil {
		keys := metadata.NumberedKeys(s.Numbered)
		return &keys, nil
	}
	_, size := catalog.IndexObject(s.ShardInfo)
	ix, _, err := a.d.catalog.ReadIndex(ctx, s, size)
	if err != nil {
		return nil, err
	}
	return &ix.Keys, nil
}

func (a *lookupAll) add(key int, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found[key] = append(a.found[key], number)
}

// doubt looks for some of the keys that were not found once more, with the checks of Lookup: a
// damaged table must not pass for missing keys.
func (a *lookupAll) doubt(ctx context.Context) error {
	left := 16
	for i, key := range a.keys {
		if len(a.found[i]) > 0 || left == 0 {
			continue
		}
		left--
		if _, err := a.d.Lookup(ctx, key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fromIndexes finds the keys in the indexes of shards.
func (a *lookupAll) fromIndexes(ctx context.Context) error {
	places := make(map[string][]int, len(a.keys))
	for i, k := range a.keys {
		places[k] = append(places[k], i)
	}
	sorted := slices.Sorted(slices.Values(a.keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(a.d.opts.Workers, a.d.source.Requests()))
	for i := range a.d.NumShards() {
		s, err := a.d.catalog.Shard(ctx, i)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		if at, _ := slices.BinarySearch(sorted, s.FirstKey); s.Samples == 0 || at == len(sorted) ||
			sorted[at] > s.LastKey {
			continue
		}
		g.Go(func() error {
			if s.Numbered != nil {
				for key, places := range places {
					if n, ok := s.Numbered.Find(key); ok {
						for _, i := range places {
							a.add(i, s.First+n)
						}
					}
				}
				return nil
			}
			keys, err := a.keysOf(ctx, s)
			if err != nil {
				return err
			}
			for n, k := range keys.All() {
				for _, key := range places[k] {
					a.add(key, s.First+uint64(n))
				}
			}
			return nil
		})
	}
	return g.Wait()
}
