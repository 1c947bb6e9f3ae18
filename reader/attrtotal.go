package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/sections"
)

// ErrNoAttribute: the data set has no integer attribute of this name.
var ErrNoAttribute = errors.New("no such integer attribute")

// AttrTotal returns the total of an integer attribute: its sum, least and greatest value, and how
// many samples have which power of two. An attribute that the data set does not have, or one of
// another kind, is an error that wraps format.ErrMismatch.
//
// The tables have the totals. Where an older program wrote them without, AttrTotal reads the
// indexes of all shards, a few at a time.
func (d *Dataset) AttrTotal(ctx context.Context, name string) (*sections.AttrTotal, error) {
	var integers []string
	for _, a := range d.Attributes() {
		if a.Name == name && a.Kind != format.AttrInteger {
			return nil, fmt.Errorf("reader: %w: %q is a %v", ErrNoAttribute, name, a.Kind)
		}
		if a.Kind == format.AttrInteger {
			integers = append(integers, a.Name)
		}
	}
	if !slices.Contains(integers, name) {
		return nil, fmt.Errorf("reader: %w: %q, there are %q", ErrNoAttribute, name, integers)
	}
	totals, err := d.attrTotals(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	return &totals[0], nil
}

// AttrTotals returns the totals of all integer attributes, as AttrTotal does, in ascending order of
// names.
func (d *Dataset) AttrTotals(ctx context.Context) ([]sections.AttrTotal, error) {
	var names []string
	for _, a := range d.Attributes() {
		if a.Kind == format.AttrInteger {
			names = append(names, a.Name)
		}
	}
	return d.attrTotals(ctx, names)
}

// attrTotals returns the totals of integer attributes, in the order of the names.
func (d *Dataset) attrTotals(ctx context.Context, names []string) ([]sections.AttrTotal, error) {
	totals := make([]sections.AttrTotal, len(names))
	var missing []*sections.AttrTotal
	for i, name := range names {
		if known := slices.IndexFunc(d.tables.AttrTotals, func(t sections.AttrTotal) bool { return t.Name == name }); known >= 0 {
			totals[i] = d.tables.AttrTotals[known]
			continue
		}
		totals[i].Name = name
		missing = append(missing, &totals[i])
	}
	if missing == nil {
		return totals, nil
	}
	return totals, d.addIndexes(ctx, missing)
}

// addIndexes adds the values in the indexes of all shards.
func (d *Dataset) addIndexes(ctx context.Context, totals []*sections.AttrTotal) error {
	const atOnce = 4 // an index holds the keys of its shard, too
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for shard := range d.NumShards() {
		g.Go(func() error {
			ix, err := d.Index(ctx, shard)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, t := range totals {
				for c := range ix.Attrs {
					if ix.Attrs[c].Name == t.Name && ix.Attrs[c].Kind == format.AttrInteger {
						t.AddAll(&ix.Attrs[c])
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}
