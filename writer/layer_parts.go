package writer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// LayerParts begins or continues to write a layer in parts, each of which is one shard of the base.
// Programs write them by PackPart, in any order, at the same time, from what of returns, and Commit
// with CommitOptions.Base publishes them. The number of the shard of part 0 is First of the report.
//
// The rows of a part are in the order of its samples: Sample.Row is the number of the row's sample
// in the base, from 1, and the keys are compared. A sample without a row, or whose row has no
// fields, has nothing. A run that was interrupted continues with its own parts, also where the base
// has got more shards since. For parts of other rows or options the error wraps ErrSource. rows
// themselves are not read.
func LayerParts(ctx context.Context, store, base objstore.Store, rows Splitter,
	opt LayerOptions) (report *PartsReport, of func(rows Splitter) Splitter, err error) {
	opt.ByPlace, opt.InOrder, opt.AllowMissing, opt.Pack.Resume = false, true, true, true
	s, err := newLayerSource(ctx, store, base, &opt)
	if err == nil {
		report, err = s.parts(ctx, store, rows)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("layer %v: %w", store, err)
	}
	return report, func(rows Splitter) Splitter {
		one := *s
		one.takes(rows)
		return &one
	}, nil
}

// parts decides how many parts there are, and finds those that are missing.
func (s *layerSource) parts(ctx context.Context, store objstore.Store, rows Splitter) (*PartsReport, error) {
	var prior current
	if _, err := prior.read(ctx, store); err != nil {
		return nil, err
	}
	all, err := listPresent(ctx, store, "part-"+shardPrefix(s.pack.Name, prior.next()))
	if err != nil {
		return nil, err
	}
	last := s.last
	for object := range all {
		if m := names.Parts.FindStringSubmatch(object); m != nil {
			if n, err := strconv.Atoi(m[3]); err == nil && n > 0 {
				last = min(last, s.first+n)
			}
		}
	}
	s.part = true
	s.covers(last)
	s.takes(rows)
	w, err := prepare(ctx, store, *s.pack, s, 0, last-s.first)
	if err != nil {
		return nil, err
	}
	defer w.release()
	r := &PartsReport{Name: s.pack.Name, Parts: last - s.first, Generation: w.generation, Published: w.finished()}
	var found *partSet
	if !r.Published {
		if found, err = findParts(ctx, store, r.Name, r.Parts); err != nil {
			return nil, err
		}
		missing := found.report.Missing
		if r = found.report; r.Published { // other parts, as many
			r.Published = false
			for part := range found.parts {
				missing = append(missing, part)
			}
		}
		r.Missing = missing
		if err := w.partsOf(found); err != nil {
			return nil, err
		}
	}
	r.First, r.At = s.first, s.at[s.first:last+1]
	return r, nil
}

// partsOf compares parts that are there with this run, and notes the types of their fields.
func (w *Writer) partsOf(found *partSet) error {
	found.report.Types = map[string]string{}
	for part, m := range found.parts {
		if m == nil {
			continue
		}
		if c := w.differs(m.Meta, w.mode()); c != nil {
			return w.otherPart(found.object(part), m.Meta, c)
		}
		types, err := typesOf(m.Meta, found.object(part))
		if err != nil {
			return err
		}
		maps.Copy(found.report.Types, types)
	}
	return nil
}

// Split implements Splitter: a part is a shard.
func (s *layerSource) Split(part, _ int) error {
	s.report, s.shard = &LayerResult{}, s.first+part
	s.last = s.shard + 1
	return s.load(context.Background())
}

// describe completes the manifest of a part.
func (s *layerSource) describe(m *metadata.Manifest) {
	m.Base = s.base
	begin := s.at[s.shard-1]
	for _, n := range s.purged {
		m.Purged = append(m.Purged, n-begin)
	}
	m.Removed = m.Purged
}

// settles returns what completes the manifest of a layer that was written in parts; nil if the
// parts are parts of a data set.
func (s *partSet) settles(base objstore.Store) (*layerSource, error) {
	of := s.parts[0].Base
	switch {
	case of == nil:
		return nil, nil
	case base == nil:
		return nil, fmt.Errorf("%w: these are parts of a layer, which the program that wrote them publishes", ErrSource)
	}
	l := &layerSource{layerBase: &layerBase{store: base, base: of}}
	shards, number := 0, uint64(0)
	if m := s.prior.manifest; m != nil && s.common["mode"] == ModeAppend.String() {
		shards, number = len(m.Shards), metadata.SumSamples(m.Shards)
		l.first = shards
	}
	for _, m := range s.parts {
		for _, n := range m.Purged {
			l.purged = append(l.purged, number+n)
		}
		shards, number = shards+len(m.Shards), number+metadata.SumSamples(m.Shards)
	}
	if shards != int(of.Shards) || number != of.Samples {
		return nil, fmt.Errorf("%w: the parts have %d samples in %d shards, and the data set %d in %d",
			format.ErrMismatch, number, shards, of.Samples, of.Shards)
	}
	return l, nil
}

// follows ends the publication of a layer: it deletes what settle replaced, and takes over what was
// removed from the base between the last look at it and the publication.
func follows(ctx context.Context, store, base objstore.Store, of *layerSource, warn func(string, ...any)) {
	if err := of.settled(ctx, store); err != nil && !errors.Is(err, context.Canceled) {
		warn("the layer is published; deleting its shards that have samples purged from the base meanwhile failed: purge the base again", "error", err)
	}
	if _, err := FollowBase(ctx, store, base); err != nil && !errors.Is(err, context.Canceled) {
		warn("the layer is published; taking over what was removed from its base meanwhile failed", "error", err)
	}
}
