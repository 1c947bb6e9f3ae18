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
// leftovers.
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
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		mine := ours.MatchString(info.Name) || format.IsTablesName(info.Name) || format.IsKeysName(info.Name) || format.IsSkippedName(info.Name)
		if !mine || keep[info.Name] || (opt.Grace > 0 && time.Since(info.ModTime) < opt.Grace) {
			continue
		}
		if ours.MatchString(info.Name) {
			wrote, err := written(ctx, store, info.Name)
			if err != nil {
				return nil, err
			}
			if !wrote {
				res.Left = append(res.Left, info)
				continue
			}
		}
		res.Objects = append(res.Objects, info)
		res.Bytes += info.Size
	}
	if opt.DryRun {
		return res, nil
	}
	// Tables go first: a generation whose tables are gone cannot be opened, and so is never found incomplete.
	for _, tables := range []bool{true, false} {
		for _, info := range res.Objects {
			if format.IsTablesName(info.Name) != tables {
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

// written says whether a shard's own index tells that a Writer put it. A name alone is no proof: people keep archives of
// their own beside a data set.
func written(ctx context.Context, store objstore.Store, name string) (bool, error) {
	shard := name
	if base, ok := strings.CutSuffix(name, format.SidecarSuffix); ok {
		shard = base + format.TarSuffix
	}
	ix, tail, err := loadIndex(ctx, store, shard)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion) {
		return false, nil
	}
	if err != nil {
		return false, err
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
