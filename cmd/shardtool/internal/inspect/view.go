package inspect

import (
	"context"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader"
)

// Part describes the part of a data set that a view has. A sample that a view with weights draws
// more than once counts once.
type Part struct {
	Samples, Shards, Blocks uint64 // samples, and the shards and blocks that have some
	Stored, Decoded         uint64 // bytes of these blocks
	Totals                  []metadata.AttrTotal
	ByShard                 []uint64 // samples of each shard
}

// View describes the view in use. It reads the indexes of all shards.
func View(ctx context.Context, d *reader.Dataset) (*Part, error) {
	p := &Part{}
	var names []string
	for _, a := range d.Info().Attributes {
		if a.Kind == format.AttrInteger {
			names, p.Totals = append(names, a.Name), append(p.Totals, metadata.AttrTotal{Name: a.Name})
		}
	}
	for i := range d.NumShards() {
		first, err := d.FirstSample(ctx, i)
		if err != nil {
			return nil, err
		}
		rows, err := d.Rows(ctx, i)
		if err != nil {
			return nil, err
		}
		columns, err := d.Columns(ctx, i, names)
		if err != nil {
			return nil, err
		}
		p.ByShard = append(p.ByShard, p.add(d, first, rows, columns))
	}
	return p, nil
}

// add adds a shard, and returns how many samples the view has of it.
func (p *Part) add(d *reader.Dataset, first uint64, rows []format.Row, columns []metadata.AttrColumn) (samples uint64) {
	at, has := 0, false // the sample of the shard, and whether the view has some of the block
	for _, r := range rows {
		if r.Samples > 0 { // others continue the block before
			has = false
		}
		for end := at + int(r.Samples); at < end; at++ {
			if !d.Selection().Has(first + uint64(at)) {
				continue
			}
			if !has {
				has, p.Blocks = true, p.Blocks+1
			}
			samples++
			for c := range columns {
				if columns[c].Name != "" {
					if v, there := columns[c].At(at); there {
						p.Totals[c].Add(v.Integer)
					}
				}
			}
		}
		if has {
			p.Stored, p.Decoded = p.Stored+uint64(r.Stored), p.Decoded+uint64(r.Decoded)
		}
	}
	if p.Samples += samples; samples > 0 {
		p.Shards++
	}
	return samples
}
