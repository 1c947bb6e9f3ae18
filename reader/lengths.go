package reader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/kept"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// readLengths returns the value of an integer attribute of every sample, by number in storage
// order: what units are formed from. It reads the index of every shard, Options.Workers of them at
// a time. Every sample of the view in use must have a value, from 1 to units.MaxSize.
//
// An error names the shard, the block and the key of the first sample of a shard that has no such
// value. It wraps ErrOptions where the data set has no such attribute.
func (d *Dataset) readLengths(ctx context.Context, attribute string) ([]uint32, error) {
	if !slices.Contains(d.integers(), attribute) {
		have := "none"
		if names := d.integers(); names != nil {
			have = fmt.Sprintf("%q", names)
		}
		return nil, optionsError{fmt.Errorf("%v has no integer attribute %q for the lengths of samples, it has %s: pack it with the lengths as an attribute, %s=len(FIELD), or name another",
			d.Store(), attribute, have, attribute)}
	}
	out := make([]uint32, d.tables.Samples)
	const atOnce = 8 // an index is one request
	err := d.eachColumns(ctx, []string{attribute}, max(d.opts.Workers, atOnce),
		func(first, end uint64, columns []metadata.AttrColumn) error {
			return d.shardLengths(ctx, first, &columns[0], attribute, out[first:end])
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// shardLengths is readLengths of one shard. A sample without a value from 1 to units.MaxSize that
// was removed has 1: it is a hole, whatever its length. So has one outside the view in use.
func (d *Dataset) shardLengths(ctx context.Context, first uint64, c *metadata.AttrColumn, attribute string,
	out []uint32) (err error) {
	known := c.Name != "" && c.Kind == format.AttrInteger
	for i := range out {
		var v format.AttrValue
		has := false
		if known {
			v, has = c.At(i)
		}
		fits := has && v.Integer >= 1 && v.Integer <= units.MaxSize
		switch number := first + uint64(i); {
		case !fits && (d.Removed(number) || !d.selection.Has(number)):
			v.Integer = 1
		case !has:
			err = fmt.Errorf("sample %d has no value of attribute %q; remove such samples, or leave them out when packing", number, attribute)
		case !fits:
			err = fmt.Errorf("sample %d has %q of %d: lengths are 1 to %d; remove such samples, or leave them out when packing", number, attribute, v.Integer, units.MaxSize)
		}
		if err != nil {
			return d.placed(ctx, first+uint64(i), err)
		}
		out[i] = uint32(v.Integer)
	}
	return nil
}

// placed adds shard, block and key of a sample to an error.
func (d *Dataset) placed(ctx context.Context, number uint64, err error) error {
	at, failed := d.Locate(ctx, number)
	if failed != nil {
		return err
	}
	s, failed := d.catalog.Shard(ctx, at.Shard)
	if failed != nil {
		return err
	}
	place := format.Place{Shard: s.Name, Block: at.Block, Offset: -1}
	ix, failed := d.Index(ctx, at.Shard)
	first, failed2 := d.FirstSample(ctx, at.Shard)
	if failed == nil && failed2 == nil {
		place.Key = ix.Keys.At(int(number - first))
	}
	return place.Wrap(err)
}

// lengths returns what readLengths does, from a folder if the lengths are kept there.
func (d *Dataset) lengths(ctx context.Context, attribute string, p *Planning) ([]uint32, error) {
	from := kept.Keeper{Folder: kept.Folder(p.Folder), Log: p.Log}
	of := d.owner(attribute)
	names := []string{"shardtool lengths", format.DigestString(of.Digest()), of.catalog.Name, attribute}
	if id := d.selection.ID(); of.Dataset != d || id != "" { // which samples have none depends on all of them
		names = append(names, d.catalog.Name, id)
	}
	key := kept.KeyOf(names...)
	size := 4 * int64(d.tables.Samples)
	if text := from.Folder.Get("lengths", key, size); int64(len(text)) == size && size > 0 {
		out := make([]uint32, d.tables.Samples)
		for i := range out {
			out[i] = binary.LittleEndian.Uint32(text[4*i:])
		}
		return out, nil
	}
	out, err := d.readLengths(ctx, attribute)
	if err != nil || from.Folder == "" {
		return out, err
	}
	text := make([]byte, 0, size)
	for _, n := range out {
		text = binary.LittleEndian.AppendUint32(text, n)
	}
	from.Put("lengths", key, text)
	return out, nil
}

// unitOrder makes the units of an order, which end before an epoch unless that is 0. The caller
// must Close it.
func (d *Dataset) unitOrder(ctx context.Context, plan *order.Plan, unit units.Params, p Planning,
	until uint64) (*epochplan.Order, error) {
	lengths, err := d.lengths(ctx, unit.By, &p)
	if err != nil {
		return nil, err
	}
	u, err := epochplan.New(context.WithoutCancel(ctx), plan, lengths, unit, p.of("", until))
	if err != nil {
		return nil, d.lengthsError(ctx, err)
	}
	return u, nil
}

// lengthsError returns an ErrOptions with the place of the first sample that is too long.
func (d *Dataset) lengthsError(ctx context.Context, err error) error {
	var long *units.TooLongError
	if errors.As(err, &long) {
		err = d.placed(ctx, long.First, err)
	}
	return optionsError{err}
}
