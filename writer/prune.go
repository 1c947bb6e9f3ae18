package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/objstore"
)

// DefaultGrace is the age below which Prune spares objects that no generation names. A pack puts
// its last objects seconds before it publishes them, and the newest of its shards protects the
// others while it runs. A day also covers clocks that differ, parts that wait in a queue, and a
// night before a killed pack is resumed.
const DefaultGrace = 24 * time.Hour

// PruneOptions are the options of Prune.
type PruneOptions struct {
	// Keep is how many generations to keep: the current one and those before it. It is at least 1.
	Keep int
	// Grace spares objects younger than this that no generation names, because a running pack may
	// be about to name them. Zero means DefaultGrace; a negative value spares nothing.
	Grace time.Duration
	// DryRun deletes nothing, and takes no lock.
	DryRun bool
}

// PruneResult is what was deleted, or would be.
type PruneResult struct {
	Objects []objstore.Info
	Bytes   int64
	// Kept are the names of the tables of the generations that stay, newest first.
	Kept []string
	// Young are objects that no generation names and that Grace spares.
	Young []objstore.Info
	// Left are objects that have names like those of a Writer, that no generation names, and whose
	// content does not show that a Writer put them: somebody's own archives or copies, or damaged
	// objects.
	Left []objstore.Info
}

// Prune deletes what no kept generation names: objects of unfinished packs, generations beyond
// Keep, and views without a name. It never deletes manifest.json, what manifest.json leads to,
// views that have a name, or objects that no Writer put. Without a data set all of a Writer's
// objects are unfinished, and so are the manifests of parts once they are committed. Grace applies
// to unfinished packs alone; all objects of a pack that may still be published count as young as
// its youngest, because a pack may run for long.
//
// Where the store has locks (objstore.Traits) nothing is deleted while a pack or commit runs: the
// error wraps objstore.ErrBusy and names it.
func Prune(ctx context.Context, store objstore.Store, opt PruneOptions) (*PruneResult, error) {
	if opt.Keep < 1 {
		return nil, fmt.Errorf("writer: prune cannot keep %d generations: keep at least 1", opt.Keep)
	}
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	if exclude := objstore.TraitsOf(store).Exclude; exclude != nil && !opt.DryRun {
		release, err := exclude(ctx, "prune")
		if errors.Is(err, fs.ErrNotExist) {
			return &PruneResult{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("writer: prune deletes nothing while a pack or a commit runs in the same place: %w", err)
		}
		defer release()
	}
	res := &PruneResult{}
	s := &survey{keep: map[string]bool{}, old: map[string]bool{}}
	sum, tag, err := loadSummary(ctx, store)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil: // its objects are not known, so nothing may be deleted
		return nil, err
	default:
		s.current = sum.Generation
		if err := s.generations(ctx, store, sum.Tables, opt.Keep, res); err != nil {
			return nil, overtaken(ctx, store, tag, err)
		}
	}
	if s.all, err = listPresent(ctx, store, ""); err != nil {
		return nil, err
	}
	if err := s.views(ctx, store); err != nil {
		return nil, err
	}
	if err := s.choose(ctx, store, opt.Grace, res); err != nil {
		return nil, err
	}
	if opt.DryRun {
		return res, nil
	}
	// Tables are deleted first, and parts' manifests: without them a generation cannot be opened,
	// and so is never found incomplete.
	for _, tables := range []bool{true, false} {
		for _, info := range res.Objects {
			if (names.IsTables(info.Name) || partObjects.MatchString(info.Name)) != tables {
				continue
			}
			if err := unchanged(ctx, store, tag); err != nil {
				return nil, err
			}
			if names.IsView(info.Name) { // it may have got a name since
				if err := s.views(ctx, store); err != nil {
					return nil, err
				}
				if s.keep[info.Name] {
					continue
				}
			}
			if err := store.Delete(ctx, info.Name); err != nil {
				return nil, err
			}
		}
	}
	return res, nil
}

// unchanged checks that manifest.json is still the one that was found, or still missing. Another
// pack may have published since, and its objects may be among those to delete. Checking before each
// deletion leaves a window of a moment, not of minutes.
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
