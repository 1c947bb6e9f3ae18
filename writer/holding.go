package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// holding finds the generations that still hold the bytes of purged samples.
type holding struct {
	store   objstore.Store
	current string // tables
	// purged are the contents of the shards that were purged, by the identity that they were packed
	// with. A shard with such an identity and another content holds purged samples.
	purged map[format.Hash]map[format.Hash]bool
	// by tables, or the manifest of a part
	all   map[string]*format.Manifest
	holds []string
}

// generations finds the generations that hold the bytes, and deletes them if the options say so.
func (p *purge) generations(ctx context.Context, store objstore.Store) error {
	if p.opt.Generations && !p.opt.DryRun {
		if exclude := objstore.TraitsOf(store).Exclude; exclude != nil {
			release, err := exclude(ctx, "purge of generations")
			if err != nil {
				return fmt.Errorf("writer: the purge is published, and no generation was deleted, because a pack or a commit runs in the same place: purge again when it has ended: %w", err)
			}
			defer release()
		}
	}
	sum, tag, err := loadSummary(ctx, store)
	if err != nil {
		return fmt.Errorf("writer: %v: %w", store, err)
	}
	h := &holding{store: store, current: sum.Tables, purged: map[format.Hash]map[format.Hash]bool{}, all: map[string]*format.Manifest{}}
	if err := h.find(ctx); err != nil {
		return fmt.Errorf("writer: %v: %w", store, err)
	}
	p.report.Holding = append(p.report.Holding, h.holds...)
	if !p.opt.Generations {
		return nil
	}
	if p.report.Deleted, err = h.delete(ctx, tag, p.opt.DryRun); err != nil {
		return fmt.Errorf("writer: %v: %w", store, err)
	}
	if !p.opt.DryRun {
		p.report.Holding = []string{}
	}
	return nil
}

// find reads the tables of all generations and parts in the store.
func (h *holding) find(ctx context.Context) error {
	m, err := loadManifest(ctx, h.store, h.current)
	if err != nil {
		return err
	}
	h.all[h.current] = m
	for i := range m.Shards {
		s := &m.Shards[i]
		if s.Purged == (format.Hash{}) {
			continue
		}
		if h.purged[s.Hash] == nil {
			h.purged[s.Hash] = map[format.Hash]bool{}
		}
		h.purged[s.Hash][s.Purged] = true
	}
	if len(h.purged) == 0 {
		return nil
	}
	for info, err := range h.store.List(ctx, "") {
		if err != nil {
			return err
		}
		if name := info.Name; name != h.current && (format.IsTablesName(name) || partObjects.MatchString(name)) {
			m, err := loadManifest(ctx, h.store, name)
			if notOurs(err) {
				continue
			}
			if err != nil {
				return err
			}
			h.all[name] = m
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.all)) {
		if name != h.current && slices.ContainsFunc(h.all[name].Shards, h.holder) {
			h.holds = append(h.holds, name)
		}
	}
	return nil
}

// holder reports whether a shard holds bytes of purged samples.
func (h *holding) holder(s format.ShardEntry) bool {
	contents := h.purged[s.Hash]
	return contents != nil && !contents[s.Content()]
}

// delete deletes the generations that hold the bytes, and what no other generation names of their
// objects. Tables are deleted first: without them a generation cannot be opened, and so is never
// found incomplete.
func (h *holding) delete(ctx context.Context, tag objstore.Info, dry bool) (deleted []string, err error) {
	deleted = slices.Clone(h.holds)
	kept, more := map[string]bool{}, map[string]bool{}
	for name, m := range h.all {
		to := kept
		if slices.Contains(h.holds, name) {
			to = more
		}
		for _, o := range objectsOf(m) {
			to[o] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if kept[name] || !likeOurs(name) {
			continue
		}
		info, err := h.store.Stat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		ours := false
		if err == nil {
			ours, err = written(ctx, h.store, info)
		}
		if err != nil {
			return nil, err
		}
		if ours {
			deleted = append(deleted, name)
		}
	}
	if dry || len(deleted) == 0 {
		return append([]string{}, deleted...), nil
	}
	for _, name := range deleted {
		if err := unchanged(ctx, h.store, tag); err != nil {
			return nil, err
		}
		if err := h.store.Delete(ctx, name); err != nil {
			return nil, err
		}
	}
	return deleted, nil
}

// objectsOf are the objects that a generation names.
func objectsOf(m *format.Manifest) []string {
	names := besides(m)
	for i := range m.Shards {
		names = append(names, m.Shards[i].Name)
		if m.Shards[i].Plain() {
			names = append(names, m.Shards[i].IndexObject())
		}
	}
	return names
}
