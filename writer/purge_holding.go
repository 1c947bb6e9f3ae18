package writer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// holding finds the generations that still hold the bytes of purged samples.
type holding struct {
	store   objstore.Store
	current string // tables
	// purged are the contents of the shards that were purged, by the identity that they were packed
	// with. A shard with such an identity and another content holds purged samples.
	purged map[format.Hash]map[format.Hash]bool
	all    map[string]*metadata.Manifest // generations, and parts of them
	holds  []string                      // names in all that hold the bytes in a shard before its purge
	// byKey are names in all that hold samples with the keys of purged ones in other shards; searched
	// have other shards and no such sample.
	byKey, searched []string
	keys            map[string]bool  // of purged samples
	known           map[uint64]bool  // numbers of the samples with these keys
	unknown         int              // purged samples whose keys nothing has any more
	shared          map[content]bool // shards of the current generation
	todo            map[string]bool  // shards of it that a dry run would purge
	archives        []string         // of another tool, with samples of these keys
	// orphans are objects that no generation names since an interrupted purge deleted its tables;
	// keyedOrphans hold samples with the keys of purged ones.
	orphans, keyedOrphans []string
	// unfinished are shards and parts of packs that may still be published.
	unfinished []string
	locked     bool // no pack runs
	dry        bool // the current generation would be an earlier one
	unread     bool // there are damaged tables, which may name any object
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
		would := h.todo[s.Name]
		h.shared[contentOf(s)] = !would
		if s.Purged == (format.Hash{}) && !would {
			continue
		}
		if h.purged[s.Hash] == nil {
			h.purged[s.Hash] = map[format.Hash]bool{}
		}
		if !would {
			h.purged[s.Hash][s.Purged] = true
		}
	}
	if len(h.purged) == 0 {
		return nil
	}
	all, err := listPresent(ctx, h.store, "")
	if err != nil {
		return err
	}
	for name := range all {
		if name == h.current || !names.IsTables(name) && !names.Parts.MatchString(name) {
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
		if (name != h.current || h.dry) && slices.ContainsFunc(h.all[name].Shards, h.holder) {
			h.holds = append(h.holds, name)
		}
	}
	others, err := h.findOrphans(ctx, all)
	if err == nil {
		err = h.learn(ctx, m, h.orphans)
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h.all)) {
		// A part that follows the current generation is of a pack that adds the samples again.
		if name == h.current || slices.Contains(h.holds, name) || !names.IsTables(name) &&
			h.all[name].Parent == h.current {
			continue
		}
		holds, more, err := h.keyed(ctx, h.all[name])
		switch {
		case err != nil:
			return err
		case holds:
			h.byKey = append(h.byKey, name)
		case more && names.IsTables(name):
			h.searched = append(h.searched, name)
		}
	}
	for _, name := range others {
		index := (&metadata.ShardInfo{Name: name}).IndexObject()
		ix, _, err := loadIndex(ctx, h.store, index)
		if err != nil {
			return err
		}
		for _, key := range ix.Keys.All() {
			if h.keys[key] {
				if h.keyedOrphans = append(h.keyedOrphans, name); index != name {
					h.keyedOrphans = append(h.keyedOrphans, index)
				}
				break
			}
		}
	}
	return nil
}

// findOrphans finds shards that hold the bytes, and keys tables, among the objects that no
// generation names, and returns the other shards of these. What a running pack may have put is none
// of them.
func (h *holding) findOrphans(ctx context.Context, all present) (others []string, err error) {
	named := map[string]bool{}
	for _, m := range h.all {
		for _, o := range objectsOf(m) {
			named[o] = true
		}
	}
	s := &survey{current: h.all[h.current].Generation}
	for _, name := range all.names() {
		if s.packOf(name) != "" && !named[name] {
			h.unfinished = append(h.unfinished, name)
		}
		switch {
		case named[name] || !names.LikeOurs(name) || s.packOf(name) != "":
			continue
		case names.IsKeys(name): // a pack puts it last: a resumed one puts it again
			if !h.unread && (h.locked || time.Since(all[name].ModTime) > DefaultGrace) {
				h.orphans = append(h.orphans, name)
			}
			continue
		}
		if _, err := metadata.ShardFormat(name); err != nil {
			continue
		}
		index := (&metadata.ShardInfo{Name: name}).IndexObject()
		ix, _, err := loadIndex(ctx, h.store, index)
		if notOurs(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		packed, is, ok := noted(ix.Meta)
		switch {
		case !ok || h.shared[content{packed, is}]:
		case h.purged[packed] != nil && !h.purged[packed][is]:
			if h.orphans = append(h.orphans, name); index != name {
				h.orphans = append(h.orphans, index)
			}
		default:
			others = append(others, name)
		}
	}
	return others, nil
}

// noted returns what an index says about its shard: the identity of the blocks that were packed,
// and of what the shard holds.
func noted(meta format.Metadata) (packed, is format.Hash, ok bool) {
	is, err := format.ParseHash(meta["content"])
	if err != nil {
		return packed, is, false
	}
	if packed = is; meta["packed"] != "" {
		packed, err = format.ParseHash(meta["packed"])
	}
	return packed, is, err == nil
}

// holder reports whether a shard holds bytes of purged samples.
func (h *holding) holder(s metadata.ShardEntry) bool {
	contents := h.purged[s.Hash]
	return contents != nil && !contents[s.Content()]
}

// delete deletes the generations that hold the bytes, and what no other generation names of their
// objects. Tables are deleted first: without them a generation cannot be opened, and so is never
// found incomplete. The generations found by keys come before those that have these keys: whoever
// goes on after an interruption still finds both.
func (h *holding) delete(ctx context.Context, tag objstore.Info,
	dry bool) (deleted []string, refused []KeptVersion, err error) {
	keep := map[string]bool{}
	for name, m := range h.all {
		if !slices.Contains(h.holds, name) && !slices.Contains(h.byKey, name) {
			keepAll(keep, m)
		}
	}
	if h.dry { // what the generation to come would name
		after := *h.all[h.current]
		after.Keys = format.Hash{}
		after.Shards = slices.DeleteFunc(slices.Clone(after.Shards),
			func(s metadata.ShardEntry) bool { return h.todo[s.Name] })
		keepAll(keep, &after)
	}
	last := maps.Clone(keep)
	for _, name := range h.holds {
		keepAll(last, h.all[name])
	}
	keyed, err := h.written(ctx, h.byKey, h.keyedOrphans, last)
	if err != nil {
		return nil, nil, err
	}
	rest, err := h.written(ctx, h.holds, h.orphans, keep)
	if err != nil {
		return nil, nil, err
	}
	deleted = append(append([]string{}, keyed...), rest...)
	if dry {
		return deleted, nil, nil
	}
	refused, err = deleteAll(ctx, h.store, deleted,
		func(some []string) ([]string, error) { return some, unchanged(ctx, h.store, tag) })
	return withoutRefused(deleted, refused), refused, err
}

func keepAll(keep map[string]bool, m *metadata.Manifest) {
	for _, o := range objectsOf(m) {
		keep[o] = true
	}
}

// written returns the tables of generations, and then the objects that they name and the orphans,
// as far as a Writer put them and they are not to be kept.
func (h *holding) written(ctx context.Context, tables, orphans []string, keep map[string]bool) ([]string, error) {
	more := map[string]bool{}
	for _, name := range tables {
		keepAll(more, h.all[name])
	}
	for _, name := range orphans {
		more[name] = true
	}
	list := slices.Clone(tables)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if keep[name] || !names.LikeOurs(name) {
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
			list = append(list, name)
		}
	}
	return list, nil
}

// objectsOf are the objects that a generation names.
func objectsOf(m *metadata.Manifest) []string {
	names := besides(&m.Totals)
	for i := range m.Shards {
		names = append(names, objectsOfShard(&m.Shards[i].ShardInfo)...)
	}
	return names
}

// objectsOfShard are the objects of a shard.
func objectsOfShard(s *metadata.ShardInfo) []string {
	if s.Plain() {
		return []string{s.Name, s.IndexObject()}
	}
	return []string{s.Name}
}
