package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/names"
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
	// Versions also deletes, for good, what the store keeps of objects of the data set and of layers
	// below it that were replaced or deleted. The error of a store that does not list versions wraps
	// errors.ErrUnsupported.
	Versions bool
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
	// Left are objects that are named as a Writer names objects, that no generation names, and whose
	// content does not show that a Writer put them: somebody's own archives or copies, or damaged
	// objects.
	Left []objstore.Info
	// VersionsDeleted are the versions that PruneOptions.Versions deleted, or would delete, and
	// VersionsLeft those that are there, and objects that the store refused to delete.
	VersionsDeleted, VersionsLeft []KeptVersion
	// Versions reports that the store keeps versions of what was deleted or replaced, or may.
	Versions bool
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
		return nil, fmt.Errorf("prune cannot keep %d generations: keep at least 1", opt.Keep)
	}
	opt.Grace = cmp.Or(opt.Grace, DefaultGrace)
	if exclude := objstore.TraitsOf(store).Exclude; exclude != nil && !opt.DryRun {
		release, err := exclude(ctx, "prune")
		if errors.Is(err, fs.ErrNotExist) {
			return &PruneResult{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("prune deletes nothing while a pack or a commit runs in the same place: %w", err)
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
		return res, res.versions(ctx, store, opt)
	}
	// Tables are deleted first, and parts' manifests: without them a generation cannot be opened,
	// and so is never found incomplete.
	var order []string
	for _, tables := range []bool{true, false} {
		for _, info := range res.Objects {
			if (names.IsTables(info.Name) || names.Parts.MatchString(info.Name)) == tables {
				order = append(order, info.Name)
			}
		}
	}
	refused, err := deleteAll(ctx, store, order, func(some []string) ([]string, error) {
		err := unchanged(ctx, store, tag)
		if err == nil && slices.ContainsFunc(some, names.IsView) { // it may have got a name since
			err = s.views(ctx, store)
		}
		return slices.DeleteFunc(some, func(name string) bool { return names.IsView(name) && s.keep[name] }), err
	})
	if err != nil {
		return nil, err
	}
	res.refuse(refused)
	return res, res.versions(ctx, store, opt)
}

// refuse takes what the store refused to delete out of what was deleted.
func (r *PruneResult) refuse(refused []KeptVersion) {
	kept := map[string]*KeptVersion{}
	for i := range refused {
		kept[refused[i].Name] = &refused[i]
	}
	r.Objects = slices.DeleteFunc(r.Objects, func(o objstore.Info) bool {
		k := kept[o.Name]
		if k != nil {
			k.Bytes = o.Size
			r.Bytes -= o.Size
		}
		return k != nil
	})
	r.VersionsLeft = refused
}

// versions lists what the store keeps, and deletes it if it shall.
func (r *PruneResult) versions(ctx context.Context, store objstore.Store, opt PruneOptions) error {
	kept, err := keptVersions(ctx, store, nil, opt.Versions, opt.DryRun)
	if err == nil {
		r.VersionsDeleted, r.VersionsLeft, r.Versions = kept.deleted, append(r.VersionsLeft, kept.left...), kept.remain()
	}
	return err
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

// survey sorts the objects of a store for a prune.
type survey struct {
	all     present
	current uint64          // generation; 0 without a data set
	keep    map[string]bool // named by generations that stay
	old     map[string]bool // named by generations before them
}

// generations marks what the newest n generations name as kept, and what earlier ones name as old.
// A missing parent was pruned before and ends the chain; so does an old one that is damaged, whose
// objects then count as left by unfinished packs.
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
		keepAll(mark, m)
		tables = m.Parent
	}
	return nil
}

// views marks the views that have a name as kept. Where a name cannot be read, it is not known what
// may be deleted.
func (s *survey) views(ctx context.Context, store objstore.Store) error {
	return labels(ctx, store, func(name string, text []byte, err error) error {
		if err != nil {
			return err
		}
		label, err := viewfile.DecodeLabel(text)
		if err != nil {
			return format.InShard(name, err)
		}
		s.keep[label.View] = true
		return nil
	})
}

// labels calls f for the name of each view, with its text or the error of reading it.
func labels(ctx context.Context, store objstore.Store, f func(name string, text []byte, err error) error) error {
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
		if err := f(info.Name, text, err); err != nil {
			return err
		}
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
	var others []objstore.Info
	for _, name := range s.all.names() {
		info := s.all[name]
		if !names.LikeOurs(name) || s.keep[name] {
			continue
		}
		// The manifest of a part that does not follow the current generation can no longer be
		// committed.
		past := s.old[name] || names.Parts.MatchString(name) && s.packOf(name) == ""
		if young[name] && !past {
			res.Young = append(res.Young, info)
			continue
		}
		others = append(others, info)
	}
	return eachWritten(ctx, store, others, func(info objstore.Info, wrote bool) {
		if !wrote {
			res.Left = append(res.Left, info)
			return
		}
		res.Objects = append(res.Objects, info)
		res.Bytes += info.Size
	})
}

// young finds the objects that grace spares: the younger ones, and with them all objects of a pack
// that may still be published, including its keys tables and lists.
func (s *survey) young(ctx context.Context, store objstore.Store, grace time.Duration) (map[string]bool, error) {
	young, packs := map[string]bool{}, map[string]bool{}
	for name, info := range s.all {
		if grace > 0 && time.Since(info.ModTime) < grace { // the store's clock may be ahead
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
		if !names.Parts.MatchString(name) {
			continue
		}
		t, err := loadTotals(ctx, store, name)
		switch {
		case err == nil:
			for _, beside := range besides(&t.Totals) {
				young[beside] = true
			}
		case !notOurs(err):
			return nil, err
		}
	}
	return young, nil
}

// packOf returns the part that all names of a pack of the next generation share; empty for other
// objects.
func (s *survey) packOf(name string) string {
	m := names.Parts.FindStringSubmatch(name)
	if m == nil {
		m = partShards.FindStringSubmatch(name)
	}
	if m == nil {
		m = names.Shards.FindStringSubmatch(name)
	}
	if m == nil || !strings.HasSuffix(m[1], strings.TrimSuffix(shardPrefix("", s.current+1), "-")) {
		return ""
	}
	return m[1]
}
