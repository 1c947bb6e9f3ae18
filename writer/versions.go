package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// KeptVersion is a version that a store keeps of an object that was replaced or deleted, or an
// object that it refused to delete.
type KeptVersion struct {
	// Name is the object's, with the address of the layer before it if that is elsewhere.
	Name string `json:"name"`
	// ID is empty for an object that was to be deleted.
	ID    string `json:"version"`
	Bytes int64  `json:"bytes"`
	// Error says why the store refused to delete it, such as that it is locked.
	Error string `json:"error,omitempty"`
}

// deletedAtOnce is how many objects of a store on a network are deleted at once.
const deletedAtOnce = 16

// deleteAll deletes objects, in their order or a few at once, and returns those that the store
// refused to delete, such as locked ones. What tables and the manifests of parts lead to stays where
// they do, so that no generation is incomplete. Sidecars are deleted last, and not those of archives
// that stay: without its sidecar nothing shows that a Writer put an archive, so that no later prune
// or purge would delete it. before, if not nil, is called before each few are deleted; it returns
// those that do not stay after all.
func deleteAll(ctx context.Context, store objstore.Store, all []string,
	before func(some []string) ([]string, error)) (refused []KeptVersion, err error) {
	atOnce := 1
	if objstore.TraitsOf(store).Remote() {
		atOnce = deletedAtOnce
	}
	sidecar := func(name string) bool { return strings.HasSuffix(name, format.SidecarSuffix) }
	all = slices.Concat(slices.DeleteFunc(slices.Clone(all), sidecar),
		slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !sidecar(name) }))
	stays := map[string]string{} // by sidecar, the archive
	leads := func(name string) bool { return names.IsTables(name) || names.Parts.MatchString(name) }
	for first := 0; first < len(all); {
		if of := stays[all[first]]; of != "" {
			refused = append(refused, KeptVersion{Name: all[first], Error: "not tried, because it describes " + of + ", which stays"})
			first++
			continue
		}
		end := first + 1
		for !leads(all[first]) && end < len(all) && end < first+atOnce && !leads(all[end]) && stays[all[end]] == "" &&
			sidecar(all[end]) == sidecar(all[first]) {
			end++
		}
		some := slices.Clone(all[first:end])
		if before != nil {
			if some, err = before(some); err != nil {
				return refused, err
			}
		}
		errs := make([]error, len(some))
		var g sync.WaitGroup
		for i, name := range some {
			g.Go(func() { errs[i] = store.Delete(ctx, name) })
		}
		g.Wait()
		for i, name := range some {
			if errors.Is(errs[i], objstore.ErrKept) {
				refused = append(refused, KeptVersion{Name: name, Error: errs[i].Error()})
				stays[(&metadata.ShardInfo{Name: name}).IndexObject()] = name
			} else {
				err = cmp.Or(err, errs[i])
			}
		}
		if err != nil {
			return refused, err
		}
		if first = end; len(refused) > 0 && leads(all[end-1]) && refused[len(refused)-1].Name == all[end-1] {
			for _, name := range all[end:] {
				refused = append(refused, KeptVersion{Name: name,
					Error: "not tried, because " + all[end-1] + " stays, which leads to it"})
			}
			break
		}
	}
	return refused, nil
}

// notDeleted returns an error that wraps ErrKept and names what deleteAll returned, or nil if that
// is nothing.
func notDeleted(refused []KeptVersion) error {
	if len(refused) == 0 {
		return nil
	}
	const most = 10
	var named []string
	for _, k := range refused[:min(len(refused), most)] {
		named = append(named, k.Error) // has the name
	}
	if more := len(refused) - most; more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w (%d objects): %s", objstore.ErrKept, len(refused), strings.Join(named, "; "))
}

// withoutRefused returns the names that are none of what was refused.
func withoutRefused(all []string, refused []KeptVersion) []string {
	kept := map[string]bool{}
	for _, k := range refused {
		kept[k.Name] = true
	}
	return slices.DeleteFunc(all, func(name string) bool { return kept[name] })
}

// versions is what stores keep of the objects of a data set and of its layers that were replaced or
// deleted, by this program or before.
type versions struct {
	drop, dry     bool          // delete them; say only which
	deleted, left []KeptVersion // for good, or would be; still there
	unknown       bool          // a store may keep versions and does not list them
}

// keptVersions finds what the stores of a data set and of its layers keep, and deletes it where
// drop is set.
func keptVersions(ctx context.Context, store objstore.Store, layers []objstore.Store, drop,
	dry bool) (*versions, error) {
	k := &versions{drop: drop, dry: dry}
	if err := k.find(ctx, store, ""); err != nil {
		return nil, err
	}
	for _, l := range layers {
		if at := within(store, l); at == strings.TrimSuffix(l.String(), "/")+"/" {
			if err := k.find(ctx, l, at); err != nil {
				return nil, err
			}
		}
	}
	return k, nil
}

// within returns what stands before the names of objects of a layer: its folder below the data set,
// or its address.
func within(store, layer objstore.Store) string {
	return strings.TrimPrefix(strings.TrimSuffix(layer.String(), "/")+"/", strings.TrimSuffix(store.String(), "/")+"/")
}

// remain reports whether versions remain, or may.
func (k *versions) remain() bool { return k.unknown || len(k.left) > 0 }

// find lists the versions of a store. prefix is put before the names in the report.
func (k *versions) find(ctx context.Context, store objstore.Store, prefix string) error {
	traits := objstore.TraitsOf(store)
	if traits.ListVersions == nil && k.drop && traits.Versions {
		return fmt.Errorf("%v: versions cannot be listed here: delete them with the store's own tools: %w", store,
			errors.ErrUnsupported)
	}
	if traits.ListVersions == nil {
		k.unknown = k.unknown || traits.Versions
		return nil
	}
	gone := len(k.deleted)
	var of []objstore.Version // of one name
	settle := func(v objstore.Version) (err error) {
		if len(of) > 0 && of[0].Name != v.Name {
			err = k.settle(ctx, traits, of, prefix)
			of = of[:0]
		}
		of = append(of, v)
		return err
	}
	err := k.list(ctx, traits, settle)
	if err == nil {
		err = k.settle(ctx, traits, of, prefix)
	}
	if err != nil || k.dry || len(k.deleted) == gone {
		return err
	}
	// What is listed after its deletion, because the store lets deletions be undone, is not deleted.
	id := func(v KeptVersion) [2]string { return [2]string{v.Name, v.ID} }
	known, there := map[[2]string]bool{}, map[[2]string]bool{}
	for _, v := range k.left {
		known[id(v)] = true
	}
	err = k.list(ctx, traits, func(v objstore.Version) error {
		kept := KeptVersion{Name: prefix + v.Name, ID: v.ID, Bytes: v.Size, Error: stays(v)}
		if v.Current || v.Mark {
			return nil
		}
		there[id(kept)] = true
		if known[id(kept)] {
			return nil
		}
		if kept.Error == "" {
			kept.Error = "the store lists it after its deletion: run the command again"
		}
		k.left = append(k.left, kept)
		return nil
	})
	k.deleted = slices.DeleteFunc(k.deleted, func(v KeptVersion) bool { return there[id(v)] })
	return err
}

// list calls each for the versions of replaceable names.
func (k *versions) list(ctx context.Context, traits objstore.Traits, each func(objstore.Version) error) error {
	for v, err := range traits.ListVersions(ctx, "") {
		if err != nil && ctx.Err() == nil && (!k.drop || errors.Is(err, objstore.ErrKept)) {
			k.unknown = true // these credentials may not list them, or not all
			return nil
		}
		if err == nil && replaceable(v.Name) {
			err = each(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stays says why a version cannot be deleted, "" if it may be.
func stays(v objstore.Version) string {
	if v.Until.IsZero() {
		return ""
	}
	until := v.Until.UTC().Format(time.RFC3339)
	if objstore.IsPart(v.Name) && v.Until.Sub(v.ModTime) <= 24*time.Hour {
		return "a pack that runs may still need this part: delete it after " + until
	}
	return "the store has soft deletion: it deletes the bytes itself, on " + until + " or soon after"
}

// replaceable reports whether a name, which may be of a layer below the data set, is one that a
// Writer gives to objects with content, or a store to parts and to those by which it tries a bucket.
func replaceable(name string) bool {
	if rest, below := strings.CutPrefix(name, names.LayerFolder); below {
		_, name, _ = strings.Cut(rest, "/")
	}
	return names.LikeOurs(name) || objstore.IsProbe(name) || objstore.IsPart(name)
}

// settle deletes the versions of one name but a current one. The mark of the deletion goes last,
// and stays where a version stays, which would else be current.
func (k *versions) settle(ctx context.Context, traits objstore.Traits, of []objstore.Version, prefix string) error {
	left := 0
	var marks []objstore.Version
	for _, v := range of {
		switch {
		case v.Mark:
			marks = append(marks, v)
			continue
		case v.Current:
			continue
		}
		kept := KeptVersion{Name: prefix + v.Name, ID: v.ID, Bytes: v.Size}
		if kept.Error = stays(v); !k.drop || kept.Error != "" {
			k.left = append(k.left, kept)
			continue
		}
		if !k.dry {
			err := traits.DeleteVersion(ctx, v.Name, v.ID)
			if errors.Is(err, objstore.ErrKept) {
				kept.Error = err.Error()
				k.left = append(k.left, kept)
				left++
				continue
			}
			if err != nil {
				return err
			}
		}
		k.deleted = append(k.deleted, kept)
	}
	if !k.drop || k.dry || left > 0 {
		return nil
	}
	for _, m := range marks {
		if err := traits.DeleteVersion(ctx, m.Name, m.ID); err != nil && !errors.Is(err, objstore.ErrKept) {
			return err
		}
	}
	return nil
}
