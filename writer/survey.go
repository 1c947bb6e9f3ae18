package writer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/internal/viewfile"
	"github.com/shardtool/shardtool/objstore"
)

// survey is what a prune knows of a store.
type survey struct {
	all     present
	current uint64          // generation; 0 without a data set
	keep    map[string]bool // named by generations that stay
	old     map[string]bool // named by generations before them
}

// ours matches the shards and sidecars that a Writer names by number. Other objects beside them
// belong to the user.
var ours = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*)-[0-9]{6,}(?:-x[0-9a-f]{16})?(?:\.tar\.zst|\.tar|\.tar\.shidx)$`)

// likeOurs reports whether an object has a name like those that a Writer puts.
func likeOurs(name string) bool {
	_, _, sidecar := names.ParseSidecar(name)
	return sidecar || ours.MatchString(name) || partObjects.MatchString(name) || names.IsTables(name) ||
		names.IsKeys(name) || names.IsSkipped(name) || names.IsView(name)
}

// generations marks what the newest n generations name as kept, and what earlier ones name as old.
// A missing parent was pruned before and ends the chain; so does an old one that is damaged, whose
// objects then count as those of unfinished packs.
func (s *survey) generations(ctx context.Context, store objstore.Store, tables string, n int, res *PruneResult) error {
	for i := 0; tables != ""; i++ {
		m, err := loadManifest(ctx, store, tables)
		if i > 0 && errors.Is(err, fs.ErrNotExist) || i >= n && notOurs(err) {
			return nil
		}
		if err != nil {
			return err
		}
		mark := s.old
		if i < n {
			mark = s.keep
			res.Kept = append(res.Kept, tables)
		}
		mark[tables] = true
		for _, name := range besides(m) {
			mark[name] = true
		}
		for j := range m.Shards {
			mark[m.Shards[j].Name], mark[m.Shards[j].IndexObject()] = true, true
		}
		tables = m.Parent
	}
	return nil
}

// views marks the views that have a name as kept. Where a name cannot be read, it is not known what
// may be deleted.
func (s *survey) views(ctx context.Context, store objstore.Store) error {
	for info, err := range store.List(ctx, names.LabelFolder) {
		if err != nil {
			return err
		}
		if _, ok := names.ParseLabel(info.Name); !ok {
			continue
		}
		text, _, err := objstore.ReadAll(ctx, store, info.Name, viewfile.MaxLabel)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since
		}
		if err != nil {
			return err
		}
		label, err := viewfile.DecodeLabel(text)
		if err != nil {
			return format.InShard(info.Name, err)
		}
		s.keep[label.View] = true
	}
	return nil
}

// choose sorts the objects with names like ours that no kept generation names into those to delete,
// the young, and those that are not ours.
func (s *survey) choose(ctx context.Context, store objstore.Store, grace time.Duration, res *PruneResult) error {
	young, err := s.young(ctx, store, grace)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		info := s.all[name]
		if !likeOurs(name) || s.keep[name] {
			continue
		}
		// The manifest of a part that does not follow the current generation can no longer be
		// committed.
		past := s.old[name] || partObjects.MatchString(name) && s.packOf(name) == ""
		if young[name] && !past {
			res.Young = append(res.Young, info)
			continue
		}
		wrote, err := written(ctx, store, info)
		if err != nil {
			return err
		}
		if !wrote {
			res.Left = append(res.Left, info)
			continue
		}
		res.Objects = append(res.Objects, info)
		res.Bytes += info.Size
	}
	return nil
}

// young finds the objects that grace spares: the younger ones, and with them all objects of a pack
// that may still be published, including its keys tables and lists.
func (s *survey) young(ctx context.Context, store objstore.Store, grace time.Duration) (map[string]bool, error) {
	young, packs := map[string]bool{}, map[string]bool{}
	for name, info := range s.all {
		if time.Since(info.ModTime) < grace {
			young[name] = true
			packs[s.packOf(name)] = true
		}
	}
	delete(packs, "")
	for name := range s.all {
		if !packs[s.packOf(name)] {
			continue
		}
		young[name] = true
		if !partObjects.MatchString(name) {
			continue
		}
		t, closeTables, err := loadTables(ctx, store, name)
		switch {
		case err == nil:
			for _, beside := range besides(&sections.Manifest{Keys: t.Keys, Meta: t.Meta}) {
				young[beside] = true
			}
			closeTables()
		case !notOurs(err):
			return nil, err
		}
	}
	return young, nil
}

// packOf is what the names of one pack of the next generation have in common; empty for other
// objects.
func (s *survey) packOf(name string) string {
	m := partObjects.FindStringSubmatch(name)
	if m == nil {
		m = partShards.FindStringSubmatch(name)
	}
	if m == nil {
		m = ours.FindStringSubmatch(name)
	}
	if m == nil || !strings.HasSuffix(m[1], strings.TrimSuffix(shardPrefix("", s.current+1), "-")) {
		return ""
	}
	return m[1]
}
