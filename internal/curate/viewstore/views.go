// Package viewstore finds the views in the store of a data set, and holds the one in use.
//
//	name ──▶ views/NAME.json ──▶ view-ID.bin ──▶ Read, Decode ──▶ reader.Dataset.UseView ──▶ Selection
package viewstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

// ErrGeneration is returned for a view of other content than the data set's, usually of an earlier
// generation.
var ErrGeneration = hint.New("the view is of another generation", hint.Command("makes it again", "select", "--carry"))

// maxView bounds the bytes of a view file: weights of 2^32 samples.
const maxView = 16 << 30

// Content identifies the samples that a view belongs to.
type Content struct {
	Digest  format.Hash
	Samples uint64
}

// File is a view as it was read.
type File struct {
	store        objstore.Store
	name, object string
	raw          []byte
}

// Read reads a view by its name or ID. The error wraps fs.ErrNotExist where there is none.
func Read(ctx context.Context, store objstore.Store, name string) (*File, error) {
	object := names.View(name)
	if !names.IsViewID(name) {
		label, err := Label(ctx, store, name)
		if err != nil {
			return nil, err
		}
		object = label.View
	}
	raw, _, err := objstore.ReadAll(ctx, store, object, maxView)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && object != names.View(name) {
			err = fmt.Errorf("%w: the name %s leads to a view that is missing: make it again", err, name)
		}
		return nil, fmt.Errorf("view %s: %w", name, err)
	}
	return &File{store: store, name: name, object: object, raw: raw}, nil
}

// Decode returns the view. The error wraps ErrGeneration where it is of other content.
func (f *File) Decode(of Content) (*viewfile.View, error) {
	head, err := viewfile.Head(f.raw)
	if err != nil {
		return nil, format.InShard(f.object, err)
	}
	if err := of.check(head); err != nil {
		return nil, fmt.Errorf("view %s of %v: %w", f.name, f.store, err)
	}
	v, err := viewfile.Decode(f.raw, of.Digest, of.Samples)
	if err == nil && names.View(v.ID()) != f.object {
		err = fmt.Errorf("%w: its content has the ID %s", format.ErrCorrupt, v.ID())
	}
	return v, format.InShard(f.object, err)
}

// Label reads the object that names a view.
func Label(ctx context.Context, store objstore.Store, name string) (*viewfile.Label, error) {
	if err := viewfile.CheckLabel(name); err != nil {
		return nil, err
	}
	object := names.Label(name)
	text, _, err := objstore.ReadAll(ctx, store, object, viewfile.MaxLabel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no view %s in %v%s%w", name, store, someNames(ctx, store), plain.Silent(fs.ErrNotExist))
	}
	if err != nil {
		return nil, fmt.Errorf("view %s: %w", name, err)
	}
	label, err := viewfile.DecodeLabel(text)
	return label, format.InShard(object, err)
}

// someNames lists names for an error.
func someNames(ctx context.Context, store objstore.Store) string {
	const most = 8
	text, n := "", 0
	for name, err := range Names(ctx, store) {
		if err != nil {
			return ""
		}
		if n++; n > most {
			return ": there are" + text + " and more"
		}
		text += " " + name
	}
	if n == 0 {
		return fmt.Sprintf(": it has no views; `shardtool select %v --where EXPR --name NAME` makes one", store)
	}
	return ": there are" + text
}

// Names yields the names of the views in a store, in ascending order.
func Names(ctx context.Context, store objstore.Store) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for info, err := range store.List(ctx, names.LabelFolder) {
			if err != nil {
				yield("", err)
				return
			}
			if name, ok := names.ParseLabel(info.Name); ok && !yield(name, nil) {
				return
			}
		}
	}
}

// check refuses a view of other content.
func (of Content) check(v *viewfile.View) error {
	if v.Digest == of.Digest && v.Samples == of.Samples {
		return nil
	}
	return fmt.Errorf("%w: it is of %d samples with the digest %s, this one has %d and %s: carry it over to this generation", ErrGeneration,
		v.Samples, format.DigestString(v.Digest), of.Samples, format.DigestString(of.Digest))
}
