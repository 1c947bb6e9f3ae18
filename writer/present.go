package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
)

// present has the objects of a store, by name.
type present map[string]objstore.Info

// names returns the names, ascending.
func (all present) names() []string { return slices.Sorted(maps.Keys(all)) }

func listPresent(ctx context.Context, store objstore.Store, prefix string) (present, error) {
	all := present{}
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all[info.Name] = info
	}
	return all, nil
}

// faults lists what is wrong with the objects that a generation or a part names: its shards with
// their sidecars, its keys table and lists, and the objects named in extra. done, when not nil, has
// the objects that this run put: one whose tag has changed since is read and compared.
func (all present) faults(ctx context.Context, m *metadata.Manifest, done *puts,
	extra ...string) (faults []string, err error) {
	check := func(name string, size int64) error {
		info, ok := all[name]
		var put placed
		if done != nil {
			put = done.done[name]
		}
		switch {
		case !ok:
			faults = append(faults, name+" is missing")
		case size >= 0 && info.Size != size:
			faults = append(faults, fmt.Sprintf("%s has %d bytes, %d were written", name, info.Size, size))
		case put.etag != "" && put.etag != info.ETag:
			_, equal, err := put.same(ctx, done.store, name, put.etag)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, objstore.ErrChanged) {
				equal, err = false, nil
			}
			if err == nil && !equal {
				faults = append(faults, name+" was replaced by other bytes")
			}
			return err
		}
		return nil
	}
	for _, name := range append(besides(&m.Totals), extra...) {
		if err := check(name, -1); err != nil {
			return nil, err
		}
	}
	for i := range m.Shards {
		s := &m.Shards[i]
		err := check(s.Name, int64(s.Size))
		if err == nil && s.Plain() {
			err = check(s.IndexObject(), int64(s.Tail))
		}
		if err != nil {
			return nil, err
		}
	}
	return faults, nil
}

// faultsText lists the first faults and counts the others.
func faultsText(faults []string) string {
	const most = 10
	if more := len(faults) - most; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(faults[:most], "; "), more)
	}
	return strings.Join(faults, "; ")
}

// checkObjects checks the objects that manifest.json leads to: another program may have changed
// them. The error wraps ErrLost and names the objects.
func (p *puts) checkObjects(ctx context.Context, m *metadata.Manifest, tables string) error {
	all, err := listPresent(ctx, p.store, "")
	if err != nil {
		return err
	}
	faults, err := all.faults(ctx, m, p, tables)
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("%w: %s", ErrLost, faultsText(faults))
	}
	return err
}

// besides are the objects of a part other than its shards: the keys table and the list of skipped
// samples.
func besides(t *metadata.Totals) []string {
	names := skippedLists(t)
	if keys := t.KeysName(); keys != "" {
		names = append(names, keys)
	}
	return names
}
