package mixfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/internal/views"
	"github.com/shardtool/shardtool/reader"
)

// DefaultCount is the attribute that counts tokens, where nothing names another.
const DefaultCount = "tokens"

// atOnce is how many data sets are asked for their tables at a time.
const atOnce = 16

// Describe reads what Mix needs of the sources' data sets, which are in the order of the file. It
// reads tables alone; only sums of an attribute that an older program packed are added up from the
// indexes of shards. The error is that of the first source that has one.
func (f *File) Describe(ctx context.Context, sets []*reader.Dataset) ([]Data, error) {
	data, failed := make([]Data, len(sets)), make([]error, len(sets))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, ds := range sets {
		g.Go(func() error {
			data[i].Digest, data[i].Tables, data[i].View = format.DigestString(ds.Digest()), ds.Info().Tables, ds.Selection().ID()
			data[i].Table, failed[i] = ds.OrderTable(ctx)
			if failed[i] == nil && f.counts(i) {
				data[i].Tokens, failed[i] = Tokens(ctx, ds, f.Count)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		if err != nil {
			return nil, f.of(i, err)
		}
	}
	return data, nil
}

// counts reports whether a share of source i counts an attribute.
func (f *File) counts(i int) bool {
	share := f.Sources[i].Share
	return f.Count != "" && (f.Temperature != nil || share != nil && share.Sign() > 0 ||
		slices.ContainsFunc(f.Segments, func(g Segment) bool { return g.Shares[i].Sign() > 0 }))
}

// Tokens returns the sum of an integer attribute over the samples of an epoch of a data set, or of the
// view in use: by default that of DefaultCount. Of a view with weights it is the mean over epochs. Every
// sample must have the attribute, and no value may be negative; otherwise the error is a *CountError.
// Purged samples whose value was cleared count as the mean of the others.
func Tokens(ctx context.Context, ds *reader.Dataset, attribute string) (uint64, error) {
	attribute = cmp.Or(attribute, DefaultCount)
	totals, err := ds.AttrTotals(ctx, attribute)
	if errors.Is(err, reader.ErrNoAttribute) {
		return 0, &CountError{attribute, err}
	}
	if err != nil {
		return 0, err
	}
	of := ds.Selection()
	t := attrSum{samples: of.Distinct(), with: totals[0].Samples, weight: totals[0].Samples, negative: totals[0].Negative, sum: totals[0].Sum()}
	if of.View() != nil {
		if t, err = sumOf(ctx, ds, attribute); err != nil {
			return 0, err
		}
	}
	switch {
	case t.with == 0 || t.samples-t.with > uint64(len(ds.Info().Purged)):
		return 0, &CountError{attribute, fmt.Errorf("%d of %d samples have no attribute %q", t.samples-t.with, t.samples, attribute)}
	case t.negative > 0:
		return 0, &CountError{attribute, fmt.Errorf("the attribute %q is below 0 in %d samples", attribute, t.negative)}
	}
	sum := new(big.Int).Mul(t.sum, new(big.Int).SetUint64(of.Len()))
	if sum.Div(sum, new(big.Int).SetUint64(t.weight)); !sum.IsUint64() {
		return 0, &CountError{attribute, fmt.Errorf("the attribute %q adds up to %v, which is 2^64 or more", attribute, sum)}
	}
	return sum.Uint64(), nil
}

// attrSum is the sum of an attribute over samples, each as often as its weight says.
type attrSum struct {
	samples, with, negative uint64 // samples, those with the attribute, and those with a value below 0
	weight                  uint64 // of those with the attribute
	sum                     *big.Int
}

// sumOf adds up the attribute of the samples of a view, from the indexes of shards.
func sumOf(ctx context.Context, ds *reader.Dataset, attribute string) (attrSum, error) {
	all := attrSum{sum: new(big.Int)}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for shard := range ds.NumShards() {
		g.Go(func() error {
			first, err := ds.FirstSample(ctx, shard)
			if err != nil {
				return err
			}
			info, err := ds.Shard(ctx, shard)
			if err != nil {
				return err
			}
			columns, err := ds.Columns(ctx, shard, []string{attribute})
			if err != nil {
				return err
			}
			t := sumOfShard(ds.Selection(), first, info.Samples, &columns[0])
			mu.Lock()
			defer mu.Unlock()
			all.samples, all.with, all.negative, all.weight = all.samples+t.samples, all.with+t.with, all.negative+t.negative, all.weight+t.weight
			all.sum.Add(all.sum, t.sum)
			return nil
		})
	}
	err := g.Wait()
	return all, err
}

func sumOfShard(of *views.Selection, first, samples uint64, c *sections.AttrColumn) (t attrSum) {
	var high, low uint64 // of the sum
	for i := range samples {
		if !of.Has(first + i) {
			continue
		}
		t.samples++
		if c.Name == "" { // no sample of the shard has it
			continue
		}
		v, has := c.At(int(i))
		if !has {
			continue
		}
		if t.with++; v.Integer < 0 {
			t.negative++
			continue
		}
		weight := uint64(1)
		if !of.View().Subset() {
			weight = uint64(of.View().Weights[first+i])
		}
		t.weight += weight
		hi, lo := bits.Mul64(uint64(v.Integer), weight)
		var carry uint64
		low, carry = bits.Add64(low, lo, 0)
		high += hi + carry
	}
	t.sum = new(big.Int).SetUint64(high)
	t.sum.Lsh(t.sum, 64)
	t.sum.Add(t.sum, new(big.Int).SetUint64(low))
	return t
}

// CountError is the error of a data set whose samples cannot be counted by an attribute.
type CountError struct {
	Attribute string
	Err       error
}

// Error names the attribute, the reason, and what to do.
func (e *CountError) Error() string {
	return fmt.Sprintf("count: %s: %v: pack the data set again with the lengths of its samples as the attribute %q, or count samples", e.Attribute, e.Err, e.Attribute)
}

// Unwrap returns Err.
func (e *CountError) Unwrap() error { return e.Err }

// BySource returns values in the order of the file by the number of the source in m, and those of
// sources that m does not have: of weight 0, and not in the checkpoint that m continues.
func BySource[T any](f *File, m *mix.Mix, values []T) (of, others []T) {
	of = make([]T, len(m.Sources))
	for i, s := range f.Sources {
		at := slices.IndexFunc(m.Sources, func(x mix.Source) bool { return x.Name == s.Name })
		if at < 0 {
			others = append(others, values[i])
			continue
		}
		of[at] = values[i]
	}
	return of, others
}
