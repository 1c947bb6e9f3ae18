package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// ErrNoAttribute is returned if the data set has no integer attribute of this name.
var ErrNoAttribute = errors.New("no such integer attribute")

// AttrTotals returns the totals of integer attributes, in the order of the names: their sums, least
// and greatest values, and how many samples have which power of two. Without names it returns those
// of all integer attributes, in ascending order of names. If a name is not the name of an integer
// attribute, the error wraps ErrNoAttribute.
//
// The tables have the totals. If an older program wrote tables without totals, AttrTotals reads the
// indexes of all shards, a few at a time.
func (d *Dataset) AttrTotals(ctx context.Context, names ...string) ([]metadata.AttrTotal, error) {
	integers := d.integers()
	for _, name := range names {
		if a, _ := d.HasAttribute(name); a.Name == name && a.Kind != format.AttrInteger {
			return nil, fmt.Errorf("%w: %q is a %v", ErrNoAttribute, name, a.Kind)
		}
		if !slices.Contains(integers, name) {
			return nil, fmt.Errorf("%w: %q, there are %q", ErrNoAttribute, name, integers)
		}
	}
	if names == nil {
		names = integers
	}
	totals := make([]metadata.AttrTotal, len(names))
	var missing []string
	var at []int // in totals
	for i, name := range names {
		of := d.owner(name).tables.AttrTotals
		if known := slices.IndexFunc(of, func(t metadata.AttrTotal) bool { return t.Name == name }); known >= 0 {
			totals[i] = of[known]
			continue
		}
		totals[i].Name = name
		missing, at = append(missing, name), append(at, i)
	}
	if missing == nil {
		return totals, nil
	}
	var mu sync.Mutex
	return totals, d.eachColumns(ctx, missing, atOnce, func(_, _ uint64, columns []metadata.AttrColumn) error {
		mu.Lock()
		defer mu.Unlock()
		for i, k := range at {
			if c := &columns[i]; c.Name != "" && c.Kind == format.AttrInteger {
				totals[k].AddAll(c)
			}
		}
		return nil
	})
}
