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

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// KeptVersion is a version that a store keeps of an object that was replaced or deleted, or an
// object that it refused to delete. Name is the object's, with the address of the layer before it
// if that is elsewhere.
type KeptVersion struct {
	Name  string `json:"name"`
	ID    string `json:"version"` // empty: an object that it refused to delete
	Bytes int64  `json:"bytes"`
	Error string `json:"error,omitempty"` // why the store refused
}

// deletedAtOnce is how many objects of a store on a network are deleted at once.
const deletedAtOnce = 16

// deleteAll deletes objects, in their order or a few at once, and returns those that the store
// refused to delete, such as locked ones. What tables and the manifests of parts lead to stays where
// they do, so that no generation is incomplete. Sidecars are deleted last, and not those of archives
// that stay: without its sidecar nothing shows that a Writer put an archive, so that no later prune
// or purge would delete it. What was refused is tried once more, because a lock may have ended since
// then. before, if not nil, is called before each few are deleted; it returns those that do not stay
// after all.
func deleteAll(ctx context.Context, store objstore.Store, all []string,
	before func(some []string) ([]string, error)) (refused []KeptVersion, err error) {
	refused, err = deleteOnce(ctx, store, all, before)
	if err != nil || len(refused) == 0 {
		return refused, err
	}
	again := make([]string, len(refused))
	for i := range refused {
		again[i] = refused[i].Name
	}
	return deleteOnce(ctx, store, again, before)
}

func deleteOnce(ctx context.Context, store objstore.Store, all []string,
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
//
// What a store refused to delete is tried again, because its lock may have ended. What it lists
// after its deletion, because it lets deletions be undone, is not deleted. The last list is made
// after the last deletion, so what is left is what it has.
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
	pass := attempt{versions: k, traits: traits, prefix: prefix, refused: map[[2]string]bool{}}
	for {
		pass.deleted, pass.left = nil, nil
		if err := pass.run(ctx); err != nil {
			return err
		}
		k.deleted = slices.DeleteFunc(k.deleted, func(v KeptVersion) bool { return pass.lists(v) })
		k.deleted = append(k.deleted, pass.deleted...)
		if k.dry || len(pass.deleted) == 0 && (pass.again || len(pass.refused) == 0) {
			k.left = append(k.left, pass.left...)
			return nil
		}
		pass.again = true
	}
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

// attempt is a pass over the versions of a store.
type attempt struct {
	*versions
	traits        objstore.Traits
	prefix        string
	again         bool               // not the first one: it tries those alone that were refused
	refused       map[[2]string]bool // by name and version
	deleted, left []KeptVersion      // by this pass, and after it
	names         []named
	due           int // versions of names that are to be deleted
}

// named is the versions of a name that are to be deleted. The mark of its deletion goes last, and
// stays where a version stays, which would else be current.
type named struct {
	name       string
	due, marks []objstore.Version
	stays      bool
}

// deletedTogether is about how many versions are deleted by a request.
const deletedTogether = 1000

func (a *attempt) id(v *objstore.Version) [2]string { return [2]string{a.prefix + v.Name, v.ID} }

// lists reports whether a version is left after the pass.
func (a *attempt) lists(v KeptVersion) bool {
	return slices.ContainsFunc(a.left, func(l KeptVersion) bool { return l.Name == v.Name && l.ID == v.ID })
}

// run lists the versions and deletes those that may be.
func (a *attempt) run(ctx context.Context) error {
	err := a.list(ctx, a.traits, func(v objstore.Version) (err error) {
		if len(a.names) == 0 || a.names[len(a.names)-1].name != v.Name {
			if a.due >= deletedTogether {
				err = a.delete(ctx)
			}
			a.names = append(a.names, named{name: v.Name})
		}
		a.add(&a.names[len(a.names)-1], v)
		return err
	})
	if err != nil {
		return err
	}
	return a.delete(ctx)
}

// add adds a version to those of its name.
func (a *attempt) add(to *named, v objstore.Version) {
	switch {
	case v.Mark:
		to.marks = append(to.marks, v)
		return
	case v.Current:
		return
	}
	why := stays(v)
	if why == "" && a.again && !a.refused[a.id(&v)] {
		why = "the store lists it after its deletion: run the command again"
	}
	switch {
	case why != "" || !a.drop:
		a.keep(to, &v, why)
	case a.dry:
		a.deleted = append(a.deleted, a.kept(&v, ""))
	default:
		to.due = append(to.due, v)
		a.due++
	}
}

func (a *attempt) kept(v *objstore.Version, why string) KeptVersion {
	return KeptVersion{Name: a.prefix + v.Name, ID: v.ID, Bytes: v.Size, Error: why}
}

// keep notes that a version stays.
func (a *attempt) keep(of *named, v *objstore.Version, why string) {
	a.left = append(a.left, a.kept(v, why))
	of.stays = true
}

// delete deletes what is due, and then the marks of names of which nothing stays.
func (a *attempt) delete(ctx context.Context) error {
	names := a.names
	a.names, a.due = nil, 0
	if !a.drop || a.dry {
		return nil
	}
	var due, marks []objstore.Version
	for i := range names {
		due = append(due, names[i].due...)
	}
	errs := deleteVersions(ctx, a.traits, due)
	for i := range names {
		of := &names[i]
		for k := range of.due {
			v, err := &of.due[k], errs[k]
			switch {
			case errors.Is(err, objstore.ErrKept):
				a.refused[a.id(v)] = true
				a.keep(of, v, err.Error())
			case err != nil:
				return err
			default:
				delete(a.refused, a.id(v))
				a.deleted = append(a.deleted, a.kept(v, ""))
			}
		}
		if errs = errs[len(of.due):]; !of.stays {
			marks = append(marks, of.marks...)
		}
	}
	for _, err := range deleteVersions(ctx, a.traits, marks) {
		if err != nil && !errors.Is(err, objstore.ErrKept) {
			return err
		}
	}
	return nil
}

// deleteVersions deletes versions, and returns an error for each that is not gone.
func deleteVersions(ctx context.Context, traits objstore.Traits, all []objstore.Version) []error {
	errs, done := make([]error, len(all)), make([]bool, len(all))
	if traits.DeleteVersions != nil && len(all) > 1 {
		var err error
		if done, err = traits.DeleteVersions(ctx, all); err != nil {
			for i := range errs {
				if !done[i] {
					errs[i] = err
				}
			}
			return errs
		}
	}
	var g errgroup.Group
	g.SetLimit(deletedAtOnce)
	for i := range all {
		if !done[i] {
			g.Go(func() error {
				errs[i] = traits.DeleteVersion(ctx, all[i].Name, all[i].ID)
				return nil
			})
		}
	}
	_ = g.Wait() // errors are in errs
	return errs
}
