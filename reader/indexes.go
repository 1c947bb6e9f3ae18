package reader

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/sys/ahead"
)

// Index returns the whole index of shard i: keys, sizes, attributes. It is one read, of the end of
// a .tar.zst or of the sidecar of a .tar. The rows in it have been compared with the tables'. The
// key of a removed sample is empty; its sizes and attributes are there until it is purged. The
// attributes of layers are read out of theirs. Indexes are shared and kept, up to a limit: do not
// write to them.
func (d *Dataset) Index(ctx context.Context, i int) (*metadata.ShardIndex, error) {
	ix, err := d.catalog.Index(ctx, i)
	if err != nil {
		return nil, err
	}
	return d.withLayers(ctx, i, ix)
}

// Indexes yields the indexes of all shards in order, as Index returns them. Of a remote store it
// keeps several requests in flight. After an error it ends.
func (d *Dataset) Indexes(ctx context.Context) iter.Seq2[*metadata.ShardIndex, error] {
	type result struct {
		index *metadata.ShardIndex
		err   error
	}
	return func(yield func(*metadata.ShardIndex, error) bool) {
		numbers := func(yield func(int) bool) {
			for i := 0; i < d.NumShards() && yield(i); i++ {
			}
		}
		atOnce := min(d.source.Requests(), mostIndexes)
		for r := range ahead.Each(ctx, numbers, atOnce, func(ctx context.Context, i int) result {
			ix, err := d.Index(ctx, i)
			return result{ix, err}
		}) {
			if !yield(r.index, r.err) || r.err != nil {
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
		}
	}
}

// mostIndexes is how many indexes are read at once: each may have the keys of many samples.
const mostIndexes = 16

// owner returns the data set that has an attribute: d itself, or the layer whose values count. It
// is d where none has it.
func (d *Dataset) owner(attribute string) *part { return &d.all[d.attributes[attribute]] }

// attributed lists the layers that have attributes.
func (d *Dataset) attributed() (layers []*part) {
	for i := 1; i < len(d.all); i++ {
		if len(d.all[i].tables.Attributes) > 0 {
			layers = append(layers, &d.all[i])
		}
	}
	return layers
}

// withLayers adds the attributes of layers to the index of shard i. The result is a copy where
// there are any.
func (d *Dataset) withLayers(ctx context.Context, i int, ix *metadata.ShardIndex) (*metadata.ShardIndex, error) {
	layers := d.attributed()
	if len(layers) == 0 {
		return ix, nil
	}
	all := *ix
	all.Attrs = slices.DeleteFunc(slices.Clone(ix.Attrs),
		func(c metadata.AttrColumn) bool { return d.attributes[c.Name] > 0 })
	for _, p := range layers {
		if uint64(i) >= p.tables.Shards {
			continue
		}
		of, err := p.Dataset.Index(ctx, i)
		if err != nil {
			return nil, p.failed(err)
		}
		for _, c := range of.Attrs {
			if d.owner(c.Name) != p {
				continue
			}
			if c, err = p.column(ctx, i, c); err != nil {
				return nil, err
			}
			all.Attrs = append(all.Attrs, c)
		}
	}
	slices.SortFunc(all.Attrs, func(x, y metadata.AttrColumn) int { return cmp.Compare(x.Name, y.Name) })
	all.Attributes = nil
	for i := range all.Attrs {
		all.Attributes = append(all.Attributes, all.Attrs[i].Attribute)
	}
	return &all, nil
}

// column takes the values of samples out of a column of a layer of which it has nothing.
func (p *part) column(ctx context.Context, shard int, c metadata.AttrColumn) (metadata.AttrColumn, error) {
	if p.pick == nil || len(p.pick.None) == 0 || c.Name == "" {
		return c, nil
	}
	first, err := p.FirstSample(ctx, shard)
	if err != nil {
		return c, p.failed(err)
	}
	var none []int
	for _, n := range metadata.Within(p.pick.None, first, first+uint64(c.Len())) {
		none = append(none, int(n-first))
	}
	return c.Without(none), nil
}

// Columns reads attributes of all samples of shard i out of its index: a column for each of names,
// with the zero AttrColumn for an attribute that the shard does not have. It decodes nothing else,
// and keeps nothing. The attributes of layers are read out of theirs.
func (d *Dataset) Columns(ctx context.Context, i int, names []string) ([]metadata.AttrColumn, error) {
	out := make([]metadata.AttrColumn, len(names))
	for k := range d.all {
		p := &d.all[k]
		var own []string
		for _, name := range names {
			if d.attributes[name] == k {
				own = append(own, name)
			}
		}
		if len(own) == 0 || uint64(i) >= p.tables.Shards {
			continue
		}
		columns, err := p.catalog.Columns(ctx, i, own)
		if err != nil {
			return nil, p.failed(err)
		}
		for j, name := range names {
			if d.attributes[name] != k {
				continue
			}
			if out[j], err = p.column(ctx, i, columns[0]); err != nil {
				return nil, err
			}
			columns = columns[1:]
		}
	}
	return out, nil
}

// eachColumns calls f for each shard, of several at once, with what Columns returns of it and with
// the numbers of its samples: from first to before end.
func (d *Dataset) eachColumns(ctx context.Context, names []string, atOnce int,
	f func(first, end uint64, columns []metadata.AttrColumn) error) error {
	return parallel(ctx, d.NumShards(), atOnce, func(ctx context.Context, i int) error {
		_, at, part, err := d.catalog.Find(ctx, i)
		if err != nil {
			return err
		}
		columns, err := d.Columns(ctx, i, names)
		if err != nil {
			return err
		}
		return f(part.FirstSample[at], part.FirstSample[at+1], columns)
	})
}

// HasAttribute returns the attribute with that name, and whether samples may have it.
func (d *Dataset) HasAttribute(name string) (format.Attribute, bool) {
	i := slices.IndexFunc(d.allAttributes, func(a format.Attribute) bool { return a.Name == name })
	if i < 0 {
		return format.Attribute{}, false
	}
	return d.allAttributes[i], true
}

// integers lists the integer attributes.
func (d *Dataset) integers() (names []string) {
	for _, a := range d.allAttributes {
		if a.Kind == format.AttrInteger {
			names = append(names, a.Name)
		}
	}
	return names
}
