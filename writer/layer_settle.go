package writer

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/objstore"
)

// A layer is written while samples are removed from its base and purged. What a run publishes holds
// no sample that was purged before: settle rewrites the shards that do, be they this run's, adopted
// ones, or those of parts. A run also holds the base's lock, so that a purge knows of it.

// hold implements cutter. What was removed from the base before the lock was taken is known after it.
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

// sameBase returns an error that wraps ErrLost unless the base still begins with the shards that the
// layer covers.
func (s *layerSource) sameBase(now *sections.Manifest) error {
	covered := int(s.base.Shards)
	if s.m != nil {
		covered = max(covered, len(s.m.Shards))
	}
	if len(now.Shards) < covered || sections.BaseOf(now, int(s.base.Shards), nil).Digest != s.base.Digest {
		return fmt.Errorf("%w: the base %v was packed again meanwhile, and this layer is not one of it: nothing was published", ErrLost, s.store)
	}
	return nil
}

// adopts notes which samples have nothing in a shard that an earlier run put, because they were
// removed then.
func (s *layerSource) adopts(_ context.Context, ix *sections.ShardIndex) error {
	first := s.at[s.shard]
	for _, n := range sections.Within(s.m.Removed, first, first+uint64(ix.Keys.Len())) {
		if cleared(ix, int(n-first), n) {
			s.purged = append(s.purged, n)
		}
	}
	return nil
}

// cleared reports whether a shard of a layer has nothing for a removed sample, whose number is n: it
// has the key that a purge gives it, and no value.
func cleared(ix *sections.ShardIndex, place int, n uint64) bool {
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

// settle implements cutter: the base may have got or lost samples since the run began.
func (s *layerSource) settle(ctx context.Context, m *sections.Manifest, puts *puts) error {
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
	m.Removed = union(union(m.Removed, m.Purged), sections.Within(now.Removed, 0, s.base.Samples))
	return nil
}

// clear rewrites the shards of this run that hold samples which were purged from the base.
func (s *layerSource) clear(ctx context.Context, m *sections.Manifest, purged []uint64, puts *puts) error {
	all := &rewriting{store: puts.store, puts: puts, purged: m.Purged, memory: 1 << 30, cursors: true}
	first := uint64(0)
	for i := range m.Shards {
		was := &m.Shards[i]
		t := shardTodo{number: i, first: first}
		first += was.Samples
		if i < s.first {
			continue
		}
		for _, n := range sections.Within(purged, t.first, first) {
			if !gone(m.Purged, n) {
				t.clear = append(t.clear, int(n-t.first))
			}
		}
		if len(t.clear) == 0 {
			continue
		}
		r := &rewrite{of: all, shardTodo: t, was: was}
		err := r.load(ctx)
		var e *sections.ShardEntry
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

// settled implements cutter.
func (s *layerSource) settled(ctx context.Context, store objstore.Store) error {
	for _, name := range s.replaced {
		if err := store.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// leftovers are the objects of runs of a layer that have not published.
type leftovers struct {
	objects []string // all of them
	holds   []string // of shards that hold purged samples, and of parts with such shards
	unknown []string // shards that may be of another data set's layer, or of no layer
}

// leftoversOf finds the objects of runs of a layer that have not published. purged are the samples
// to look for. m is the current generation of the layer, nil where there is none.
func (b *layerBase) leftoversOf(ctx context.Context, store objstore.Store, m *sections.Manifest, purged []uint64) (*leftovers, error) {
	all, err := listPresent(ctx, store, "")
	if err != nil {
		return nil, err
	}
	l, s := &leftovers{}, &survey{}
	if m != nil {
		s.current = m.Generation
	}
	holds := map[string]bool{} // shards
	for _, name := range all.names() {
		if !likeOurs(name) && !partShards.MatchString(name) || m != nil && s.packOf(name) == "" {
			continue
		}
		l.objects = append(l.objects, name)
		if _, err := sections.ShardFormat(name); err != nil {
			continue
		}
		info := sections.ShardInfo{Name: name}
		ix, _, err := loadIndex(ctx, store, info.IndexObject())
		if err != nil && !notOurs(err) {
			return nil, err
		}
		var found []uint64
		ok := err == nil
		if ok {
			found, ok, err = b.holds(ctx, ix, purged)
			if err != nil {
				return nil, err
			}
		}
		switch {
		case !ok:
			l.unknown = append(l.unknown, name)
		case len(found) > 0:
			holds[name] = true
			l.holds = append(l.holds, objectsOfShard(&info)...)
		}
	}
	for _, name := range l.objects {
		if !partObjects.MatchString(name) && !names.IsTables(name) {
			continue
		}
		of, err := loadManifest(ctx, store, name)
		if err != nil && !notOurs(err) {
			return nil, err
		}
		for i := 0; err == nil && i < len(of.Shards); i++ {
			if holds[of.Shards[i].Name] { // its ranges of keys, and a commit would miss the shard
				l.holds = append(l.holds, name)
				break
			}
		}
	}
	return l, nil
}

// holds returns the purged samples that a shard of a layer holds. ok is false where it is no shard
// of a layer of this base.
func (b *layerBase) holds(ctx context.Context, ix *sections.ShardIndex, purged []uint64) (found []uint64, ok bool, err error) {
	shard, ok := shardOfCursor(ix.Meta)
	if !ok || shard >= len(b.m.Shards) {
		return nil, false, nil
	}
	of, err := b.index(ctx, shard)
	if err != nil {
		return nil, false, err
	}
	first := b.at[shard]
	if ix.Keys.Len() != of.Keys.Len() || sameSamples(of, ix, first, b.m.Removed) != nil {
		return nil, false, nil
	}
	for _, n := range sections.Within(purged, first, first+uint64(ix.Keys.Len())) {
		if !cleared(ix, int(n-first), n) {
			found = append(found, n)
		}
	}
	return found, true, nil
}

// shardOfCursor returns the number of the base's shard for which a shard of a layer was written. See
// layerSource.Cursor.
func shardOfCursor(meta format.Metadata) (int, bool) {
	number, ok := strings.CutPrefix(meta["cursor_start"], "shard ")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0 && strings.HasPrefix(meta["source"], "layer:")
}

// owns returns ErrNotLayer as not unless an object, a shard or its sidecar, is of a layer of this
// base: by its notes where own is set, and else by its samples, as for a shard that was purged, which
// has no notes.
func (b *layerBase) owns(ctx context.Context, store objstore.Store, name string, own bool) (not, err error) {
	if !strings.HasSuffix(name, format.SidecarSuffix) {
		name = (&sections.ShardInfo{Name: name}).IndexObject()
	}
	ix, _, err := loadIndex(ctx, store, name)
	if err != nil {
		return nil, err
	}
	shard, noted := shardOfCursor(ix.Meta)
	if noted && own {
		return nil, nil
	}
	for i := range b.m.Shards {
		if b.m.Shards[i].Samples != uint64(ix.Keys.Len()) || noted && i != shard || !noted && ix.Meta["purged"] == "" {
			continue
		}
		of, err := b.index(ctx, i)
		if err != nil {
			return nil, err
		}
		if sameSamples(of, ix, b.at[i], b.m.Removed) == nil {
			return nil, nil
		}
	}
	return ErrNotLayer, nil
}
