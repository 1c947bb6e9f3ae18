package curate

import (
	"cmp"
	"context"
	"errors"

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader"
)

// Carry makes the view that old has in use anew for d, another generation: it has the samples of d
// with the same keys, and their weights or classes. Of the Spec, AllowMissing, Draws, Memory and
// Temp are used; without Draws, the view's stay. Keys that d does not have are an error that wraps
// ErrMissing, unless they are allowed. Samples that only d has are not chosen.
func Carry(ctx context.Context, old, d *reader.Dataset, s Spec) (*viewfile.View, *Report, error) {
	was := old.Selection().View()
	if was == nil {
		return nil, nil, errors.New("there is no view to carry over")
	}
	s = Spec{AllowMissing: s.AllowMissing, Draws: s.Draws, Memory: cmp.Or(s.Memory, 96<<20), Temp: s.Temp}
	if was.Subset() && s.Draws > 0 {
		return nil, nil, specf("draws go with weights, and the view has none")
	}
	m := &maker{d: d, spec: &s, report: &Report{}}
	v := &viewfile.View{Digest: d.Digest(), Samples: d.NumSamples()}
	if was.Subset() {
		v.Chosen = make([]byte, (v.Samples+7)/8)
	} else {
		v.Weights, v.Draws, v.Classes = make([]uint32, v.Samples), cmp.Or(s.Draws, was.Draws), was.Classes
	}
	j := m.joiner("the view")
	defer j.close()
	chosen := func(f func(key string, weight uint32) error) error {
		return eachChosen(ctx, old, f)
	}
	j.each = func(_ context.Context, f func(key []byte) error) error {
		return chosen(func(key string, _ uint32) error { return f([]byte(key)) })
	}
	if err := chosen(func(key string, weight uint32) error {
		return j.Add(recordOf([]byte(key), uint64(weight)))
	}); err != nil {
		return nil, m.report, err
	}
	j.found = func(number uint64, r record) error {
		m.report.Chosen++
		if v.Subset() {
			v.Chosen[number/8] |= 1 << (number % 8)
		} else {
			v.Weights[number] = uint32(r.Value)
		}
		return nil
	}
	if err := j.join(ctx); err != nil {
		return nil, m.report, err
	}
	m.report.Samples = cmp.Or(v.Draws, m.report.Chosen)
	if m.report.Chosen == 0 {
		return nil, m.report, specf("%w: no key of the view is in %v", ErrEmpty, d.Store())
	}
	return v, m.report, m.fits(ctx, v)
}

// eachChosen calls f with the key and the weight of every sample of the view of d; the weight in a
// subset is 1.
func eachChosen(ctx context.Context, d *reader.Dataset, f func(key string, weight uint32) error) error {
	v := d.Selection().View()
	for i := range d.NumShards() {
		first, err := d.FirstSample(ctx, i)
		if err != nil {
			return err
		}
		info, err := d.Shard(ctx, i)
		if err != nil {
			return err
		}
		var keys *metadata.KeyColumn // read only where a sample of the shard is chosen
		for k := range info.Samples {
			number, weight := first+k, uint32(0)
			if v.Subset() {
				weight = uint32(v.Chosen[number/8] >> (number % 8) & 1)
			} else {
				weight = v.Weights[number]
			}
			if weight == 0 {
				continue
			}
			if keys == nil {
				ix, err := d.Index(ctx, i)
				if err != nil {
					return err
				}
				keys = &ix.Keys
			}
			key := keys.At(int(k))
			if key == "" { // it was removed since
				continue
			}
			if err := f(key, weight); err != nil {
				return err
			}
		}
	}
	return nil
}
