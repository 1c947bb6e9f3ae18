package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

// LayerInfo describes a layer and how it fits its base. Bytes is the length of all shards.
type LayerInfo struct {
	Name  string `json:"name,omitempty"` // in `layers/` of its base
	Layer string `json:"layer"`          // its address
	// Fits reports that the layer can be read with the base, and Error why not.
	Fits  bool   `json:"fits"`
	Error string `json:"error,omitempty"`

	Unpublished bool `json:"unpublished,omitempty"` // only objects of a run that has not ended
	// Behind are samples removed in the base and not in the layer, or the reverse. The layer could
	// have the latter back.
	Behind int `json:"behind"`
	// Samples of the base that the layer covers, of how many; those to which it adds nothing.
	Covered uint64 `json:"covered"`
	Samples uint64 `json:"samples"`
	Nothing uint64 `json:"nothing"`

	Bytes      uint64              `json:"bytes"`
	Generation uint64              `json:"generation"`
	Tables     string              `json:"tables"`
	Fields     []format.FieldTotal `json:"fields"`
	Attributes []string            `json:"attributes"`
	Replaces   []string            `json:"replaces"`
	// Clashes are names that the base has too. The layer does not replace them: reading both is an
	// error.
	Clashes []string `json:"clashes"`
}

// Layers returns the names of the layers in the folder of a data set, ascending, also of those that
// no run has published yet. In a store that cannot list, the error wraps [objstore.ErrNoList].
func Layers(ctx context.Context, base objstore.Store) ([]string, error) {
	folders, err := layerFolders(ctx, base)
	found := []string{}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if name := strings.TrimPrefix(folder, names.LayerFolder); names.IsLabel(name) {
			found = append(found, name)
		}
	}
	return found, err
}

// layerFolders returns the folders below layers/ with objects of a Writer.
func layerFolders(ctx context.Context, base objstore.Store) (map[string]bool, error) {
	found := map[string]bool{}
	for info, err := range base.List(ctx, names.LayerFolder) {
		if err != nil {
			return nil, err
		}
		if folder, name := path.Split(info.Name); folder != names.LayerFolder &&
			(name == format.ManifestName || names.LikeOurs(name)) {
			found[strings.TrimSuffix(folder, "/")] = true
		}
	}
	return found, nil
}

// unpublished returns an error that wraps ErrNotLayer where the store has objects of runs that have
// not published, and nothing that is published.
func unpublished(ctx context.Context, store objstore.Store) error {
	all, err := listPresent(ctx, store, "")
	if err != nil {
		return err
	}
	n := 0
	for name := range all {
		if names.LikeOurs(name) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &unpublishedError{n}
}

// unpublishedError is a layer of which there are only objects of runs that have not published.
type unpublishedError struct{ objects int }

func (e *unpublishedError) Error() string {
	return fmt.Sprintf("it is not published: the run that makes it was killed or has not ended, and has put %d objects",
		e.objects)
}

func (e *unpublishedError) Unwrap() error { return ErrNotLayer }

// InspectLayer describes a layer of a data set. What is wrong with the layer is in the result; the
// error concerns the base, or a store that cannot be read.
func InspectLayer(ctx context.Context, store, base objstore.Store) (*LayerInfo, error) {
	l := &LayerInfo{Layer: store.String(), Fields: []format.FieldTotal{}, Attributes: []string{}, Replaces: []string{},
		Clashes: []string{}}
	of, err := openBase(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", base, err)
	}
	l.Samples = metadata.SumSamples(of.Shards)
	var now current
	sum, err := now.read(ctx, store)
	if err == nil && sum == nil {
		err = cmp.Or(unpublished(ctx, store), fmt.Errorf("there is no layer: %w", fs.ErrNotExist))
	}
	if err != nil {
		var not *unpublishedError
		l.Unpublished = errors.As(err, &not)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		l.Error = err.Error()
		return l, nil
	}
	m := now.manifest
	l.Generation, l.Tables, l.Bytes = m.Generation, now.tables, sum.Bytes
	for _, a := range m.Attributes {
		l.Attributes = append(l.Attributes, a.Name)
	}
	for _, f := range m.Fields {
		if f.Name == "" {
			l.Nothing = f.Samples
		} else {
			l.Fields = append(l.Fields, f)
		}
	}
	if m.Base == nil {
		l.Error = "it is a data set of its own, and no layer"
		return l, nil
	}
	l.Covered, l.Replaces = m.Base.Samples, append(l.Replaces, m.Base.Replaces...)
	if err := fitsBase(m, of); err != nil {
		l.Error = err.Error()
		return l, nil
	}
	l.Fits = true
	for _, f := range of.Fields {
		if slices.ContainsFunc(l.Fields,
			func(own format.FieldTotal) bool { return own.Name == f.Name }) && !slices.Contains(l.Replaces, f.Name) {
			l.Clashes = append(l.Clashes, f.Name)
		}
	}
	for _, a := range of.Attributes {
		if slices.Contains(l.Attributes, a.Name) && !slices.Contains(l.Replaces, a.Name) {
			l.Clashes = append(l.Clashes, a.Name)
		}
	}
	want := union(metadata.Within(of.Removed, 0, m.Base.Samples), m.Purged)
	all := union(want, m.Removed)
	l.Behind = 2*len(all) - len(want) - len(m.Removed)
	return l, nil
}

// fitsBase returns an error that wraps ErrNotLayer unless a manifest is of a layer of a data set.
func fitsBase(m, of *metadata.Manifest) error {
	switch b := m.Base; {
	case b == nil:
		return fmt.Errorf("%w: it is a data set of its own", ErrNotLayer)
	case int(b.Shards) != len(m.Shards) || b.Samples != metadata.SumSamples(m.Shards):
		return fmt.Errorf("%w: it has %d shards, and says %d", format.ErrCorrupt, len(m.Shards), b.Shards)
	default:
		return madeFor(of, b)
	}
}

// madeFor returns an error that wraps ErrNotLayer unless a data set begins with the shards that a
// layer was made for.
func madeFor(of *metadata.Manifest, b *metadata.Base) error {
	if int(b.Shards) > len(of.Shards) || metadata.BaseOf(of, int(b.Shards), nil).Digest != b.Digest {
		return fmt.Errorf("%w: it was made for a data set with the digest %s: make it again, over this one",
			ErrNotLayer, format.DigestString(b.Digest))
	}
	return nil
}

// RemoveLayer deletes a layer of a data set: its manifest first, then all objects that a Writer
// put. Called again after an interruption it deletes the rest; it also deletes what runs have put
// that have not published. own reports that the layer is in the folder of its base, and so belongs
// to it even if the base was packed again since. What is no layer, or a layer of another data set,
// is left alone; the error then wraps ErrNotLayer, or fs.ErrNotExist where there is nothing.
func RemoveLayer(ctx context.Context, store, base objstore.Store, own bool) (*PruneResult, error) {
	var now current
	sum, err := now.read(ctx, store)
	if err == nil {
		err = removable(ctx, store, base, now.manifest, own)
	}
	if err == nil && sum != nil {
		err = store.Delete(ctx, format.ManifestName)
	}
	var res *PruneResult
	if err == nil {
		res, err = Prune(ctx, store, PruneOptions{Keep: 1, Grace: -1})
	}
	if err == nil && sum == nil && len(res.Objects) == 0 {
		err = fmt.Errorf("there is no such layer: `shardtool layer ls` lists layers%w", plain.Silent(fs.ErrNotExist))
	}
	if err != nil {
		return nil, fmt.Errorf("layer %v: %w", store, err)
	}
	return res, nil
}

// removable returns an error that wraps ErrNotLayer unless a store has a layer of a data set, or
// what is left of one, and nothing else that a Writer put. m is what is published there, or nil.
func removable(ctx context.Context, store, base objstore.Store, m *metadata.Manifest, own bool) error {
	of, err := openBase(ctx, base)
	if err != nil {
		return fmt.Errorf("%v: %w", base, err)
	}
	fits := func(m *metadata.Manifest) error {
		switch {
		case m.Base == nil:
			return fmt.Errorf("%w: it is a data set of its own", ErrNotLayer)
		case own:
			return nil
		}
		return madeFor(of, m.Base)
	}
	if m != nil {
		return fits(m)
	}
	all, err := listPresent(ctx, store, "")
	if err != nil {
		return err
	}
	b := layerBaseOf(base, of)
	for _, name := range all.names() {
		if !names.LikeOurs(name) || names.IsView(name) {
			continue
		}
		wrote, err := written(ctx, store, all[name])
		if err != nil {
			return err
		}
		if !wrote { // it stays in any case
			continue
		}
		var is error
		switch {
		case names.IsTables(name) || names.Parts.MatchString(name):
			m, err := loadManifest(ctx, store, name)
			if err != nil {
				return err
			}
			is = fits(m)
		case names.IsKeys(name), names.IsSkipped(name):
			is = ErrNotLayer
		default:
			if is, err = b.owns(ctx, store, name, own); err != nil {
				return err
			}
		}
		if is != nil {
			return fmt.Errorf("%w: nothing is published there, and %s is of no layer of %v: nothing was deleted; `shardtool prune` deletes what a pack left",
				ErrNotLayer, name, base)
		}
	}
	return nil
}

// CheckLayer compares the indexes of a layer with its base's: blocks, and the keys of all
// samples that neither lists as removed. The error wraps format.ErrMismatch and names the first
// sample that differs, or ErrNotLayer. It reads no block.
func CheckLayer(ctx context.Context, store, base objstore.Store) error {
	of, err := openBase(ctx, base)
	if err != nil {
		return fmt.Errorf("%v: %w", base, err)
	}
	m, err := openBase(ctx, store)
	if err == nil {
		err = fitsBase(m, of)
	}
	if err != nil {
		return fmt.Errorf("layer %v: %w", store, err)
	}
	a, b := &layerBase{store: base, m: of}, &layerBase{store: store, m: m}
	removed, first := union(of.Removed, m.Removed), uint64(0)
	for i := range m.Shards {
		x, err := a.index(ctx, i)
		if err != nil {
			return err
		}
		y, err := b.index(ctx, i)
		if err != nil {
			return err
		}
		if err := sameSamples(x, y, first, removed); err != nil {
			return fmt.Errorf("layer %v: %w", store, format.InShard(m.Shards[i].Name, err))
		}
		first += m.Shards[i].Samples
	}
	return nil
}

// sameSamples compares the blocks and keys of two shards whose first sample has the number first.
func sameSamples(base, layer *metadata.ShardIndex, first uint64, removed []uint64) error {
	blocks := func(ix *metadata.ShardIndex) (counts []uint32) {
		for _, r := range ix.Rows {
			if r.Samples > 0 {
				counts = append(counts, r.Samples)
			}
		}
		return counts
	}
	if !slices.Equal(blocks(base), blocks(layer)) {
		return fmt.Errorf("%w: its blocks do not have the samples of the base's: make the layer again",
			format.ErrMismatch)
	}
	for i, key := range layer.Keys.All() {
		if n := first + uint64(i); key != base.Keys.At(i) && !gone(removed, n) {
			return fmt.Errorf("%w: sample %d has the key %q, in the base %q: make the layer again", format.ErrMismatch,
				n, key, base.Keys.At(i))
		}
	}
	return nil
}
