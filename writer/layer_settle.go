package writer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// A layer is written while samples are removed from its base and purged. What a run publishes holds
// no sample that was purged before: settle rewrites the shards that do, be they this run's, adopted
// ones, or shards of parts. A run also holds the base's lock, so that a purge knows of it.

// hold locks the base, see hold, and reads it again: what was removed from it before the lock was
// taken is known after it.
func (s *layerSource) hold(ctx context.Context) (release func(), err error) {
	if release, err = hold(ctx, s.store, "layer of "+s.pack.Name, s.pack.Log); err != nil {
		return nil, err
	}
	if err := s.refresh(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// refresh reads the base again: samples may have been removed, and shards rewritten.
func (s *layerSource) refresh(ctx context.Context) error {
	now, err := openBase(ctx, s.store)
	if err == nil {
		err = s.sameBase(now)
	}
	if err != nil {
		return err
	}
	b, m := *s.layerBase, *now // other parts have the base as it was
	m.Shards = m.Shards[:len(s.m.Shards)]
	b.m, s.layerBase = &m, &b
	return nil
}

// sameBase returns an error that wraps ErrLost unless the base still begins with the shards that
// the layer covers.
func (s *layerSource) sameBase(now *metadata.Manifest) error {
	covered := int(s.base.Shards)
	if s.m != nil {
		covered = max(covered, len(s.m.Shards))
	}
	if len(now.Shards) < covered || metadata.BaseOf(now, int(s.base.Shards), nil).Digest != s.base.Digest {
		return fmt.Errorf("%w: the base %v was packed again meanwhile, and this layer is not one of it: nothing was published", ErrLost, s.store)
	}
	return nil
}

// adopts notes which samples have nothing in a shard that an earlier run put, because they were
// removed then.
func (s *layerSource) adopts(_ context.Context, ix *metadata.ShardIndex) error {
	first := s.at[s.shard]
	for _, n := range metadata.Within(s.m.Removed, first, first+uint64(ix.Keys.Len())) {
		if cleared(ix, int(n-first), n) {
			s.purged = append(s.purged, n)
		}
	}
	return nil
}

// cleared reports whether a shard of a layer has nothing for a removed sample, whose number is n:
// it has the key that a purge gives it, and no value.
func cleared(ix *metadata.ShardIndex, place int, n uint64) bool {
	rest, ok := strings.CutPrefix(ix.Keys.At(place), fmt.Sprint(purgedKey, n))
	if !ok || rest != "" && rest[0] != '-' {
		return false
	}
	if ix.Layout != nil || ix.Meta["purged"] != "" {
		return true
	}
	shape := ix.Shape(place)
	return len(shape) == 1 && ix.Fields[shape[0]] == ""
}

// settle completes the manifest before it is published: the base may have got or lost samples since
// the run began.
func (s *layerSource) settle(ctx context.Context, m *metadata.Manifest, puts *puts) error {
	now, err := openBase(ctx, s.store)
	if err == nil {
		err = s.sameBase(now)
	}
	if err != nil {
		return err
	}
	m.Base = s.base
	m.Purged = union(m.Purged, s.purged)
	if err := s.clear(ctx, m, now.Purged, puts); err != nil {
		return err
	}
	m.Purged = union(m.Purged, s.purged)
	m.Removed = union(union(m.Removed, m.Purged), metadata.Within(now.Removed, 0, s.base.Samples))
	return nil
}

// clear rewrites the shards of this run that hold samples which were purged from the base.
func (s *layerSource) clear(ctx context.Context, m *metadata.Manifest, purged []uint64, puts *puts) error {
	all := &rewriting{store: puts.store, puts: puts, purged: m.Purged, memory: 1 << 30, cursors: true}
	first := uint64(0)
	for i := range m.Shards {
		was := &m.Shards[i]
		t := shardTodo{number: i, first: first}
		first += was.Samples
		if i < s.first {
			continue
		}
		for _, n := range metadata.Within(purged, t.first, first) {
			if !gone(m.Purged, n) {
				t.clear = append(t.clear, int(n-t.first))
			}
		}
		if len(t.clear) == 0 {
			continue
		}
		r := &rewrite{of: all, shardTodo: t, was: was}
		err := r.load(ctx)
		var e *metadata.ShardEntry
		if err == nil {
			e, err = r.write(ctx)
		}
		if err != nil {
			return format.InShard(was.Name, fmt.Errorf("taking out samples that were purged from the base: %w", err))
		}
		for _, place := range t.clear {
			s.purged = append(s.purged, t.first+uint64(place))
		}
		s.purged = union(s.purged, nil)
		s.replaced = append(s.replaced, objectsOfShard(&was.ShardInfo)...)
		m.Shards[i] = *e
	}
	return nil
}

// settled deletes what settle replaced once the manifest is published.
func (s *layerSource) settled(ctx context.Context, store objstore.Store) error {
	refused, err := deleteAll(ctx, store, s.replaced, nil)
	return cmp.Or(err, notDeleted(refused))
}

// leftovers are shards of a layer that its current generation does not name: of earlier
// generations, and of runs that have not published.
type leftovers struct {
	holds   []string // objects that hold purged samples: tables and manifests of parts, then shards
	unknown []string // shards that may be of another data set's layer, or of no layer
}

// leftoversOf finds the shards in the store of a layer that its current generation m, nil where
// there is none, does not name, and that hold one of the purged samples.
func (b *layerBase) leftoversOf(ctx context.Context, store objstore.Store, m *metadata.Manifest,
	purged []uint64) (*leftovers, error) {
	all, err := listPresent(ctx, store, "")
	if err != nil {
		return nil, err
	}
	l, keep, holds := &leftovers{}, map[string]bool{}, map[string]bool{}
	if m != nil {
		keepAll(keep, m)
	}
	var shards []string
	for _, name := range all.names() {
		if _, err := metadata.ShardFormat(name); err != nil || keep[name] || !names.LikeOurs(name) {
			continue
		}
		info := metadata.ShardInfo{Name: name}
		found, ok, err := b.holds(ctx, store, info.IndexObject(), purged)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			l.unknown = append(l.unknown, name)
		case found:
			holds[name] = true
			shards = append(shards, objectsOfShard(&info)...)
		}
	}
	for _, name := range all.names() { // what names such a shard has its first and last key
		if len(holds) == 0 || !names.Parts.MatchString(name) && !names.IsTables(name) {
			continue
		}
		of, err := loadManifest(ctx, store, name)
		if err != nil && !notOurs(err) {
			return nil, err
		}
		if err == nil && slices.ContainsFunc(of.Shards, func(s metadata.ShardEntry) bool { return holds[s.Name] }) {
			l.holds = append(l.holds, name)
		}
	}
	l.holds = append(l.holds, shards...)
	return l, nil
}

// holds reports whether a shard of a layer, with that index, holds one of the purged samples. ok is
// false where it is no shard of a layer of this base.
func (b *layerBase) holds(ctx context.Context, store objstore.Store, index string,
	purged []uint64) (found, ok bool, err error) {
	ix, shard, err := b.match(ctx, store, index)
	if shard < 0 || err != nil {
		return false, false, err
	}
	first := b.at[shard]
	for _, n := range metadata.Within(purged, first, first+uint64(ix.Keys.Len())) {
		found = found || !cleared(ix, int(n-first), n)
	}
	return found, true, nil
}

// match returns the index of a shard and the number of the base's shard for which it was written,
// by its notes and samples, or by its samples where it was purged and has no notes. The number is
// negative where there is none.
func (b *layerBase) match(ctx context.Context, store objstore.Store, index string) (*metadata.ShardIndex, int, error) {
	ix, _, err := loadIndex(ctx, store, index)
	if notOurs(err) {
		return nil, -1, nil
	}
	if err != nil {
		return nil, -1, err
	}
	shard, noted := shardOfCursor(ix.Meta)
	for i := range b.m.Shards {
		if b.m.Shards[i].Samples != uint64(ix.Keys.Len()) || noted && i != shard || !noted && ix.Meta["purged"] == "" {
			continue
		}
		of, err := b.index(ctx, i)
		if err != nil {
			return nil, -1, err
		}
		if sameSamples(of, ix, b.at[i], b.m.Removed) == nil {
			return ix, i, nil
		}
	}
	return ix, -1, nil
}

// shardOfCursor returns the number of the base's shard for which a shard of a layer was written.
// See layerSource.Cursor.
func shardOfCursor(meta format.Metadata) (int, bool) {
	number, ok := strings.CutPrefix(meta["cursor_start"], "shard ")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0 && strings.HasPrefix(meta["source"], "layer:")
}

// owns returns ErrNotLayer as not unless an object, a shard or its sidecar, is of a layer of this
// base: by its notes alone where own is set.
func (b *layerBase) owns(ctx context.Context, store objstore.Store, name string, own bool) (not, err error) {
	if !strings.HasSuffix(name, format.SidecarSuffix) {
		name = (&metadata.ShardInfo{Name: name}).IndexObject()
	}
	ix, shard, err := b.match(ctx, store, name)
	if err != nil {
		return nil, err
	}
	if ix != nil && own {
		if _, noted := shardOfCursor(ix.Meta); noted {
			return nil, nil
		}
	}
	if shard < 0 {
		not = ErrNotLayer
	}
	return not, nil
}
