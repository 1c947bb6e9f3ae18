package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// PruneOptions say what to keep.
type PruneOptions struct {
	// Keep is how many generations to keep, the current one and those before it; at least 1.
	Keep int
	// Grace spares objects younger than this that no generation names: a pack that runs now may be about to name them.
	Grace time.Duration
	// DryRun deletes nothing.
	DryRun bool
}

// PruneResult is what was, or would be, deleted.
type PruneResult struct {
	Objects []objstore.Info
	Bytes   int64
	// Kept are the names of the tables of the generations that stay, newest first.
	Kept []string
	// Left are objects that are named like ours and that nothing refers to, but that do not say that a Writer put them:
	// somebody's own archives, or damaged leftovers.
	Left []objstore.Info
}

// ours matches the objects that a Writer puts; anything else in the folder is the user's and never touched.
var ours = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*-[0-9]{6,}(\.tar\.zst|\.tar|\.tar\.shidx)$`)

// Prune deletes what no kept generation names: leftovers of unfinished packs, and generations beyond Keep. It never touches
// manifest.json, what it leads to, or objects that no Writer puts. Without a data set all of a Writer's objects are
// leftovers. So are the manifests of parts once they are committed; of a pack in parts that is not, all objects are as young
// as the youngest, since it may take long from the first part to the last.
func Prune(ctx context.Context, store objstore.Store, opt PruneOptions) (*PruneResult, error) {
	if opt.Keep < 1 {
		return nil, fmt.Errorf("writer: prune keeps %d generations: keep at least 1", opt.Keep)
	}
	res := &PruneResult{}
	keep := map[string]bool{}
	sum, tag, err := loadSummary(ctx, store)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil: // what it names is not known: nothing may be deleted
		return nil, err
	default:
		if err := keepGenerations(ctx, store, sum.Tables, opt.Keep, keep, res); err != nil {
			return nil, err
		}
	}
	var all []objstore.Info
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	if opt.Grace > 0 {
		next := uint64(1)
		if sum != nil {
			next = sum.Generation + 1
		}
		if err := keepParts(ctx, store, all, next, opt.Grace, keep); err != nil {
			return nil, err
		}
	}
	for _, info := range all {
		mine := ours.MatchString(info.Name) || partObjects.MatchString(info.Name) || format.IsTablesName(info.Name) || format.IsKeysName(info.Name) ||
			format.IsSkippedName(info.Name)
		if !mine || keep[info.Name] || (opt.Grace > 0 && time.Since(info.ModTime) < opt.Grace) {
			continue
		}
		wrote, err := written(ctx, store, info.Name)
		if err != nil {
			return nil, err
		}
		if !wrote {
			res.Left = append(res.Left, info)
			continue
		}
		res.Objects = append(res.Objects, info)
		res.Bytes += info.Size
	}
	if opt.DryRun {
		return res, nil
	}
	// Tables go first: a generation whose tables are gone cannot be opened, and so is never found incomplete. So do parts'.
	for _, tables := range []bool{true, false} {
		for _, info := range res.Objects {
			if (format.IsTablesName(info.Name) || partObjects.MatchString(info.Name)) != tables {
				continue
			}
			if err := unchanged(ctx, store, tag); err != nil {
				return nil, err
			}
			if err := store.Delete(ctx, info.Name); err != nil {
				return nil, err
			}
		}
	}
	return res, nil
}

// unchanged asks whether manifest.json is still the one found at first, or still missing. Another pack may have published
// since, and what it published may be among what is to go. Asking before each deletion leaves it a moment, not minutes.
func unchanged(ctx context.Context, store objstore.Store, found objstore.Info) error {
	now, err := store.Stat(ctx, format.ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		now, err = objstore.Info{}, nil
	}
	if err == nil && now.ETag != found.ETag {
		err = fmt.Errorf("%w: the data set changed while pruning; run prune again (%w)", ErrLost, objstore.ErrChanged)
	}
	return err
}

// keepParts marks the objects of packs in parts that may still be committed and whose youngest object is within grace.
func keepParts(ctx context.Context, store objstore.Store, all []objstore.Info, generation uint64, grace time.Duration, keep map[string]bool) error {
	suffix := strings.TrimSuffix(shardPrefix("", generation), "-")
	pack := func(object string) (prefix string, manifest bool) {
		m := partObjects.FindStringSubmatch(object)
		if manifest = m != nil; !manifest {
			m = partShards.FindStringSubmatch(object)
		}
		if m == nil || !strings.HasSuffix(m[1], suffix) {
			return "", false
		}
		return m[1], manifest
	}
	alive := map[string]bool{}
	for _, info := range all {
		if prefix, _ := pack(info.Name); prefix != "" && time.Since(info.ModTime) < grace {
			alive[prefix] = true
		}
	}
	for _, info := range all {
		prefix, manifest := pack(info.Name)
		if !alive[prefix] {
			continue
		}
		keep[info.Name] = true
		if !manifest {
			continue
		}
		t, closeTables, err := loadTables(ctx, store, info.Name)
		switch {
		case err == nil:
			for _, name := range besides(&format.Manifest{Keys: t.Keys, Meta: t.Meta}) {
				keep[name] = true
			}
			closeTables()
		case !notOurs(err):
			return err
		}
	}
	return nil
}

// notOurs says of an error in reading an object that it is not there or not what its name says.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion)
}

func ignore(err error, when func(error) bool) error {
	if when(err) {
		return nil
	}
	return err
}

// written says whether an object's own content tells that a Writer put it. A name alone is no proof of shards and manifests of
// parts: people keep archives of their own beside a data set.
func written(ctx context.Context, store objstore.Store, name string) (bool, error) {
	if partObjects.MatchString(name) {
		t, closeTables, err := loadTables(ctx, store, name)
		if err != nil {
			return false, ignore(err, notOurs)
		}
		closeTables()
		return t.Meta["part"] != "", nil
	}
	if !ours.MatchString(name) {
		return true, nil
	}
	shard := name
	if base, ok := strings.CutSuffix(name, format.SidecarSuffix); ok {
		shard = base + format.TarSuffix
	}
	ix, tail, err := loadIndex(ctx, store, shard)
	if err != nil {
		return false, ignore(err, notOurs)
	}
	if tail.Plain() { // the sidecar speaks for itself; for an archive only when it is the one described
		info, err := store.Stat(ctx, shard)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if name == shard && (err != nil || uint64(info.Size) != tail.DataSize) {
			return false, nil
		}
	}
	return !tail.Foreign && ix.Meta["content"] != "", nil
}

// keepGenerations marks what the newest generations name. A parent that has been pruned before ends the chain.
func keepGenerations(ctx context.Context, store objstore.Store, tables string, n int, keep map[string]bool, res *PruneResult) error {
	for i := 0; i < n && tables != ""; i++ {
		m, err := loadManifest(ctx, store, tables)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		res.Kept = append(res.Kept, tables)
		keep[tables] = true
		keep[m.KeysName()] = true
		for _, name := range skippedLists(m) {
			keep[name] = true
		}
		for j := range m.Shards {
			s := &m.Shards[j]
			keep[s.Name] = true
			if s.Plain() {
				keep[sidecarName(s.Name)] = true
			}
		}
		tables = m.Parent
	}
	return nil
}
