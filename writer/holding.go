package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/names"
	"github.com/shardtool/shardtool/format/sections"
	"github.com/shardtool/shardtool/objstore"
)

// holding finds the generations that still hold the bytes of purged samples.
type holding struct {
	store   objstore.Store
	current string // tables
	// purged are the contents of the shards that were purged, by the identity that they were packed
	// with. A shard with such an identity and another content holds purged samples.
	purged map[format.Hash]map[format.Hash]bool
	all    map[string]*sections.Manifest // generations, and parts of them
	holds  []string                      // of all, those that hold the bytes
	// orphans are objects that no generation names since an interrupted purge deleted its tables.
	orphans []string
	locked  bool // no pack runs
	unread  bool // there are damaged tables, which may name any object
}

// generations finds the generations that hold the bytes, and deletes them if the options say so.
func (p *purge) generations(ctx context.Context, store objstore.Store) error {
	locked := false
	if p.opt.Generations && !p.opt.DryRun {
		if exclude := objstore.TraitsOf(store).Exclude; exclude != nil {
			release, err := exclude(ctx, "purge of generations")
			if err != nil {
				return fmt.Errorf("writer: the purge is published, and no generation was deleted, because a pack or a commit runs in the same place: purge again when it has ended: %w", err)
			}
			defer release()
			locked = true
		}
	}
	sum, tag, err := loadSummary(ctx, store)
	if err != nil {
		return fmt.Errorf("writer: %v: %w", store, err)
	}
	h := &holding{store: store, current: sum.Tables, purged: map[format.Hash]map[format.Hash]bool{}, all: map[string]*sections.Manifest{}, locked: locked}
	if err := h.find(ctx); err != nil {
		return fmt.Errorf("writer: %v: %w", store, overtaken(ctx, store, tag, err))
	}
	p.report.Holding = append(append(p.report.Holding, h.holds...), h.orphans...)
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
	all, err := listPresent(ctx, h.store, "")
	if err != nil {
		return err
	}
	for name := range all {
		if name == h.current || !names.IsTables(name) && !partObjects.MatchString(name) {
			continue
		}
		m, err := loadManifest(ctx, h.store, name)
		switch {
		case errors.Is(err, format.ErrVersion): // what it names is not known
			return err
		case notOurs(err):
			h.unread = true
		case err != nil:
			return err
		default:
			h.all[name] = m
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.all)) {
		if name != h.current && slices.ContainsFunc(h.all[name].Shards, h.holder) {
			h.holds = append(h.holds, name)
		}
	}
	return h.findOrphans(ctx, all)
}

// findOrphans finds shards that hold the bytes, and keys tables, among the objects that no
// generation names. What a running pack may have put is none of them.
func (h *holding) findOrphans(ctx context.Context, all present) error {
	named := map[string]bool{}
	for _, m := range h.all {
		for _, o := range objectsOf(m) {
			named[o] = true
		}
	}
	s := &survey{current: h.all[h.current].Generation}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case named[name] || !likeOurs(name) || s.packOf(name) != "":
			continue
		case names.IsKeys(name): // a pack puts it last: a resumed one puts it again
			if !h.unread && (h.locked || time.Since(all[name].ModTime) > DefaultGrace) {
				h.orphans = append(h.orphans, name)
			}
			continue
		}
		if _, err := sections.ShardFormat(name); err != nil {
			continue
		}
		index := (&sections.ShardInfo{Name: name}).IndexObject()
		ix, _, err := loadIndex(ctx, h.store, index)
		if notOurs(err) {
			continue
		}
		if err != nil {
			return err
		}
		if h.holdsBytes(ix.Meta) {
			if h.orphans = append(h.orphans, name); index != name {
				h.orphans = append(h.orphans, index)
			}
		}
	}
	return nil
}

// holdsBytes is holder for a shard that no generation names, by the notes in its index.
func (h *holding) holdsBytes(meta format.Metadata) bool {
	content, err := format.ParseHash(meta["content"])
	if err != nil {
		return false
	}
	packed := content
	if text, ok := meta["packed"]; ok {
		if packed, err = format.ParseHash(text); err != nil {
			return false
		}
	}
	return h.purged[packed] != nil && !h.purged[packed][content]
}

// holder reports whether a shard holds bytes of purged samples.
func (h *holding) holder(s sections.ShardEntry) bool {
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
	for _, name := range h.orphans {
		more[name] = true
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
func objectsOf(m *sections.Manifest) []string {
	names := besides(m)
	for i := range m.Shards {
		names = append(names, m.Shards[i].Name)
		if m.Shards[i].Plain() {
			names = append(names, m.Shards[i].IndexObject())
		}
	}
	return names
}
