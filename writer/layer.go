package writer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
)

// Errors of layers that a caller branches on.
var (
	// ErrUnknownKey: a row has a key that no sample of the base has.
	ErrUnknownKey = hint.New("unknown key", hint.Hint{Option: "key", Does: "names the column with the keys of samples"},
		hint.Set("unknown", "skip", "leaves such rows out"))
	// ErrMissingRow: a sample of the base has no row.
	ErrMissingRow = hint.New("samples without a row", hint.Set("missing", "allow", ""))
	// ErrNotLayer: there is a data set that is no layer of the base.
	ErrNotLayer = errors.New("not a layer of this data set")

	errNoBase = fmt.Errorf("no data set: %w", fs.ErrNotExist)
)

// LayerOptions are the options of AddLayer.
type LayerOptions struct {
	// Pack are the options of the shards. Sizes are ignored, because shards and blocks end where the
	// base's do. LayoutAuto and LayoutOfSource stack each shard whose samples all have arrays of one
	// type and shape. Faults.Skip is refused: a sample has a row or none.
	Pack Options
	// ByPlace takes row i for sample i; keys are not compared. InOrder takes the rows of a data set
	// with the same samples, such as the base itself or another layer, by their numbers. Otherwise
	// rows come in any order and find their samples by key.
	ByPlace, InOrder bool
	// Replaces are names of fields and attributes of the base, or of other layers, in whose place the
	// layer's are delivered.
	Replaces []string
	// AllowMissing accepts samples without a row: they have nothing.
	AllowMissing bool
	// SkipUnknown leaves out rows whose key no sample has, and counts them. Skipped, when not nil, is
	// called for each.
	SkipUnknown bool
	Skipped     func(*SampleError)
	// LargeBlocks accepts fields that make the mean block decode to more than 16 MiB.
	LargeBlocks bool
	// Before, when not nil, is the current generation of the layer as a source: samples without a row
	// keep what they have in it. The mode must be ModeOverwrite, and rows have keys.
	Before Source
	// Earlier, when not nil, is the generation before that one. With Pack.Resume an equal run that has
	// published is found by it.
	Earlier Source
}

// LayerResult describes the generation of a layer that AddLayer published.
type LayerResult struct {
	Result
	// Covered are rows of samples that the layer had before, with ModeAppend; Removed are rows of
	// samples that were removed from the base; Unknown are rows whose key no sample has; Left are
	// rows that the source left out. None of them is in the layer.
	Covered, Removed, Unknown, Left int64
	// Missing are samples without a row.
	Missing uint64
}

// AddLayer writes a layer: a data set that adds the fields of a source to the samples of another
// one, its base (SPEC 12). Nothing of the base is written. The bytes depend on the base, the source
// and the options, never on the number of workers.
//
// Rows that find their samples by key are sorted in temporary files as large as the rows, within
// Pack.Memory. Modes and Pack.Resume are as for [Pack]. ModeAppend makes the shards that the base
// has got since the current generation, and leaves out rows of samples covered. Samples that are
// removed from the base meanwhile are removed from the layer; if the base is packed again
// meanwhile, the error wraps ErrLost and nothing is published. AddLayer does not close the source.
func AddLayer(ctx context.Context, store, base objstore.Store, src Source, opt LayerOptions) (*LayerResult, error) {
	s, err := newLayerSource(ctx, store, base, &opt)
	if err != nil {
		return nil, fmt.Errorf("layer %v: %w", store, err)
	}
	s.takes(src)
	defer func() { _ = s.Close() }() // temporary files
	release, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	w, err := prepare(ctx, store, *s.pack, s, 0, 0)
	if err != nil {
		return nil, err
	}
	defer w.release()
	if s.pack.Resume && (w.finished() || opt.Earlier != nil && w.finishedFrom(s.sum(src, opt.Earlier))) {
		res, err := w.published(ctx)
		if err == nil {
			s.report.Result = *res
		}
		return s.report, err
	}
	if err := s.load(ctx); err != nil {
		return nil, fmt.Errorf("layer %v: %w", store, err)
	}
	w.start(ctx)
	defer func() { _ = w.Abort() }()
	if err := w.writeAll(ctx, s); err != nil {
		return nil, err
	}
	res, err := w.Close(ctx)
	if err != nil {
		return nil, err
	}
	s.report.Result = *res
	follows(ctx, store, base, s, s.pack.Log.Warn)
	return s.report, nil
}

// CheckLayerTarget is [CheckTarget] for AddLayer: it also refuses a base that can have no such
// layer, and a store that has something other than a layer.
func CheckLayerTarget(ctx context.Context, store, base objstore.Store, opt LayerOptions) error {
	if _, err := newLayerSource(ctx, store, base, &opt); err != nil {
		return fmt.Errorf("layer %v: %w", store, err)
	}
	return CheckTarget(ctx, store, opt.Pack)
}

// newLayerSource reads base and layer, and checks the options. The source lacks its rows.
func newLayerSource(ctx context.Context, store, base objstore.Store, opt *LayerOptions) (*layerSource, error) {
	pack, err := opt.Pack.filled()
	if err != nil {
		return nil, err
	}
	switch {
	case pack.Faults.Skip:
		return nil, errors.New("samples of a layer cannot be skipped: leave their rows out, and allow samples without one")
	case opt.ByPlace && opt.InOrder, opt.Before != nil && (opt.ByPlace || opt.InOrder || pack.Mode != ModeOverwrite):
		return nil, errors.New("rows in order, and rows that update a layer by key, exclude each other")
	}
	if pack.Layout == LayoutOfSource {
		pack.Layout = LayoutAuto
	}
	pack.KeepDuplicates = true // the base decides on keys
	s := &layerSource{layerBase: &layerBase{store: base}, opt: opt, pack: &pack, report: &LayerResult{}}
	if s.m, err = openBase(ctx, base); err != nil {
		return nil, err
	}
	if s.m.Base != nil {
		return nil, fmt.Errorf("%w: %v is a layer itself: add to the data set that it belongs to", format.ErrMismatch,
			base)
	}
	s.layerBase = layerBaseOf(base, s.m)
	if number := s.at[len(s.m.Shards)]; number > math.MaxInt64/1024 || uint64(len(s.m.Shards)) > math.MaxUint32 {
		return nil, fmt.Errorf("%w: a base of %d samples in %d shards", format.ErrTooLarge, number, len(s.m.Shards))
	}
	s.base = &metadata.Base{Replaces: slices.Compact(slices.Sorted(slices.Values(opt.Replaces)))}
	if err := s.follow(ctx, store, &s.base.Replaces); err != nil {
		return nil, err
	}
	s.covers(len(s.m.Shards))
	return s, nil
}

// covers makes the layer one of the first shards of the base, up to the shard last.
func (s *layerSource) covers(last int) {
	s.shard, s.last = s.first, last
	s.base = metadata.BaseOf(s.m, last, s.base.Replaces)
}

// takes sets the source of the rows.
func (s *layerSource) takes(src Source) {
	s.from.Source, s.from.meta, s.from.sum = src, src.Meta(), s.sum(src, s.opt.Before)
}

// sum is the fingerprint of a run that takes these rows and keeps the earlier ones.
func (s *layerSource) sum(src, before Source) string {
	h, kept := sha256.New(), ""
	if before != nil {
		kept = before.Fingerprint()
	}
	fmt.Fprintf(h, "%s %d %t %t %q %q %q\n", format.DigestString(s.base.Digest), s.first, s.opt.ByPlace, s.opt.InOrder,
		s.base.Replaces, src.Fingerprint(), kept)
	return "layer:" + hex.EncodeToString(h.Sum(nil))
}

// follow reads the generation of the layer that this run follows, if any.
func (s *layerSource) follow(ctx context.Context, store objstore.Store, replaces *[]string) error {
	var prior current
	sum, err := prior.read(ctx, store)
	if err == nil && sum == nil && s.pack.Mode == ModeAppend {
		err = fmt.Errorf("there is no layer to append to: %w", errNoBase)
	}
	if err != nil || sum == nil {
		return err
	}
	b := prior.manifest.Base
	if b == nil {
		return fmt.Errorf("%w: %v is a data set of its own: choose another place", ErrNotLayer, store)
	}
	if s.opt.Before != nil && len(*replaces) == 0 {
		*replaces = b.Replaces
	}
	if s.pack.Mode != ModeAppend {
		return nil
	}
	if s.pack.Resume && int(b.Shards) == len(s.m.Shards) { // an equal run may have published
		if m := prior.manifest; m.Meta["mode"] == ModeAppend.String() && m.Parent != "" {
			before, err := loadManifest(ctx, store, m.Parent)
			if err != nil {
				return err
			}
			if before.Base != nil {
				b = before.Base
			}
		}
	}
	if err := madeFor(s.m, b); err != nil {
		return err
	}
	if s.first = int(b.Shards); s.first == len(s.m.Shards) {
		return fmt.Errorf("%w: the layer covers all %d shards of the base", ErrEmpty, s.first)
	}
	if len(*replaces) > 0 && !slices.Equal(*replaces, b.Replaces) {
		return fmt.Errorf("%w: the layer replaces %q, and cannot replace %q in the shards appended: overwrite it",
			format.ErrMismatch, b.Replaces, *replaces)
	}
	*replaces = b.Replaces
	return nil
}

// load reads the rows, unless they come in order.
func (s *layerSource) load(ctx context.Context) error {
	s.got.first = s.at[s.shard]
	s.got.have, s.got.rows = make([]uint64, (s.at[s.last]-s.got.first)/64+1), make([]shardRows, len(s.m.Shards))
	if s.opt.ByPlace || s.opt.InOrder {
		s.reader = &intake{src: s.from.Source, sparse: s.opt.InOrder && s.opt.AllowMissing, bare: s.part,
			workers: s.pack.Workers, stacks: &s.got.stacks}
		return nil
	}
	if err := s.collect(ctx); err != nil {
		return err
	}
	return s.missing(ctx)
}

// FollowBase brings the removed samples of a layer up to its base: it publishes a generation of the
// layer with those that are removed now, unless it has them. Samples that the layer has nothing
// for, because they were removed when it was written or purged since, stay removed from it. Where
// store has no layer of base, the error wraps ErrNotLayer, or fs.ErrNotExist if there is nothing.
func FollowBase(ctx context.Context, store, base objstore.Store) (*Result, error) {
	for n := 1; ; n++ {
		of, err := openBase(ctx, base)
		if err != nil {
			return nil, err
		}
		if _, _, err := loadSummary(ctx, store); errors.Is(err, fs.ErrNotExist) {
			if err := unpublished(ctx, store); err != nil {
				return nil, fmt.Errorf("layer %v: %w", store, err)
			}
		}
		tables := ""
		res, err := change(ctx, store, "", "remove", func(m *metadata.Manifest) error {
			if err := fitsBase(m, of); err != nil {
				return err
			}
			tables = m.Parent
			m.Removed = union(metadata.Within(of.Removed, 0, m.Base.Samples), m.Purged)
			return nil
		})
		if err == nil || n == attempts || !again(ctx, store, tables, err) {
			return res, err
		}
	}
}
