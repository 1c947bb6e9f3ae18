package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// KeptVersion is a version that a store keeps of an object that was replaced or deleted.
type KeptVersion struct {
	// Name is the object's, with the address of the layer before it if that is elsewhere.
	Name  string `json:"name"`
	ID    string `json:"version"`
	Bytes int64  `json:"bytes"`
	// Error says why the store refused to delete it, such as that it is locked.
	Error string `json:"error,omitempty"`
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
	below := strings.TrimSuffix(store.String(), "/") + "/"
	for _, l := range layers {
		if at := strings.TrimSuffix(l.String(), "/") + "/"; !strings.HasPrefix(at, below) {
			if err := k.find(ctx, l, at); err != nil {
				return nil, err
			}
		}
	}
	return k, nil
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
	var of []objstore.Version // of one name
	for v, err := range traits.ListVersions(ctx, "") {
		if err != nil && !k.drop && ctx.Err() == nil {
			k.unknown = true // these credentials may not list them
			return nil
		}
		if err != nil {
			return err
		}
		if !replaceable(v.Name) {
			continue
		}
		if len(of) > 0 && of[0].Name != v.Name {
			if err := k.settle(ctx, traits, of, prefix); err != nil {
				return err
			}
			of = of[:0]
		}
		of = append(of, v)
	}
	return k.settle(ctx, traits, of, prefix)
}

// replaceable reports whether a name, which may be of a layer below the data set, is one that a
// Writer gives to objects with content, or a store to the objects by which it tries a bucket.
func replaceable(name string) bool {
	if rest, below := strings.CutPrefix(name, names.LayerFolder); below {
		_, name, _ = strings.Cut(rest, "/")
	}
	return likeOurs(name) || objstore.IsProbe(name)
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
		if !k.drop {
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
