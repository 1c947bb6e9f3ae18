package mixfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order/mix"
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
				if ds.Selection().ID() != "" {
					failed[i] = fmt.Errorf("%s of a view are not counted: give the whole data set, or shares of samples", f.Count)
					return nil
				}
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

// Tokens returns the sum of an integer attribute over all samples of a data set: by default that of
// DefaultCount. Every sample must have the attribute, and no value may be negative; otherwise the
// error is a *CountError. Purged samples whose value was cleared count as the mean of the others.
func Tokens(ctx context.Context, ds *reader.Dataset, attribute string) (uint64, error) {
	attribute = cmp.Or(attribute, DefaultCount)
	totals, err := ds.AttrTotals(ctx, attribute)
	switch {
	case errors.Is(err, reader.ErrNoAttribute):
		return 0, &CountError{attribute, err}
	case err != nil:
		return 0, err
	}
	t := &totals[0]
	switch {
	case t.Samples == 0 || ds.NumSamples()-t.Samples > uint64(len(ds.Info().Purged)):
		return 0, &CountError{attribute, fmt.Errorf("%d of %d samples have no attribute %q", ds.NumSamples()-t.Samples, ds.NumSamples(), attribute)}
	case t.Negative > 0:
		return 0, &CountError{attribute, fmt.Errorf("the attribute %q is below 0 in %d samples", attribute, t.Negative)}
	case !t.Sum().IsUint64():
		return 0, &CountError{attribute, fmt.Errorf("the attribute %q adds up to %v, which is 2^64 or more", attribute, t.Sum())}
	}
	if t.Samples == ds.NumSamples() {
		return t.Sum().Uint64(), nil
	}
	hi, lo := bits.Mul64(t.Sum().Uint64(), ds.NumSamples())
	if hi >= t.Samples {
		return math.MaxUint64, nil
	}
	sum, _ := bits.Div64(hi, lo, t.Samples)
	return sum, nil
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
