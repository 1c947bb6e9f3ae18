package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"sync"

	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// DefaultCount is the attribute that counts tokens if none is given.
const DefaultCount = "tokens"

// Tokens returns the sum of an integer attribute over the samples of an epoch of the data set, or
// of the view in use; "" is DefaultCount. For a view with weights it is the mean over epochs. Every
// sample must have the attribute, and no value may be negative; otherwise the error is a
// *CountError. Purged samples whose value was cleared count as the mean of the others.
func (d *Dataset) Tokens(ctx context.Context, attribute string) (uint64, error) {
	attribute = cmp.Or(attribute, DefaultCount)
	totals, err := d.AttrTotals(ctx, attribute)
	if errors.Is(err, ErrNoAttribute) {
		return 0, &CountError{attribute, err}
	}
	if err != nil {
		return 0, err
	}
	of := d.selection
	t := attrSum{samples: of.Distinct(), with: totals[0].Samples, weight: totals[0].Samples,
		negative: totals[0].Negative, sum: totals[0].Sum()}
	if of.View() != nil {
		if t, err = d.sumOf(ctx, attribute); err != nil {
			return 0, err
		}
	}
	switch {
	case t.with == 0 || t.samples-t.with > uint64(len(d.tables.Purged)):
		return 0, &CountError{attribute, fmt.Errorf("%d of %d samples have no attribute %q", t.samples-t.with,
			t.samples, attribute)}
	case t.negative > 0:
		return 0, &CountError{attribute, fmt.Errorf("the attribute %q is below 0 in %d samples", attribute, t.negative)}
	}
	sum := new(big.Int).Mul(t.sum, new(big.Int).SetUint64(of.Len()))
	if sum.Div(sum, new(big.Int).SetUint64(t.weight)); !sum.IsUint64() {
		return 0, &CountError{attribute, fmt.Errorf("the attribute %q adds up to %v, which is 2^64 or more", attribute,
			sum)}
	}
	return sum.Uint64(), nil
}

// attrSum is the sum of an attribute over samples, each as often as its weight says.
type attrSum struct {
	samples, with, negative uint64 // samples, samples with the attribute, samples with a value below 0
	weight                  uint64 // of samples with the attribute
	sum                     *big.Int
}

// sumOf adds up the attribute of the samples of a view, from the indexes of shards.
func (d *Dataset) sumOf(ctx context.Context, attribute string) (attrSum, error) {
	all := attrSum{sum: new(big.Int)}
	var mu sync.Mutex
	err := d.eachColumns(ctx, []string{attribute}, atOnce,
		func(first, end uint64, columns []metadata.AttrColumn) error {
			t := sumOfShard(d.selection, first, end-first, &columns[0])
			mu.Lock()
			defer mu.Unlock()
			all.samples, all.with, all.negative, all.weight = all.samples+t.samples, all.with+t.with,
				all.negative+t.negative, all.weight+t.weight
			all.sum.Add(all.sum, t.sum)
			return nil
		})
	return all, err
}

func sumOfShard(of *viewstore.Selection, first, samples uint64, c *metadata.AttrColumn) (t attrSum) {
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
		weight := of.Weight(first + i)
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

// CountError reports a data set whose samples cannot be counted by an attribute.
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
