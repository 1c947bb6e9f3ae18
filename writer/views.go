package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// ViewName is the name that PutView gives a view.
type ViewName struct {
	// Name is what readers find the view by; empty: its ID alone. An unnamed view lasts until a
	// prune.
	Name string
	// Replace gives the name to this view also where another view has it.
	Replace bool
	// Tables is the object name of the generation that the view was made on, and Made how.
	Tables string
	Made   map[string]string
	// Samples is the number of samples of an epoch of the view.
	Samples uint64
}

// PutView stores a view beside the data set and gives it a name. The name is the commit point: it
// is put last, on the condition that it is still free, or what it was before with Replace. A view
// or a name that is there already with the same content stays. A name that another view has is an
// error that wraps objstore.ErrExists; one that changed meanwhile, objstore.ErrChanged.
func PutView(ctx context.Context, store objstore.Store, v *viewfile.View, name ViewName) error {
	if name.Name != "" {
		if err := viewfile.CheckLabel(name.Name); err != nil {
			return err
		}
	}
	file, err := v.Encode()
	if err != nil {
		return err
	}
	release, err := hold(ctx, store, "select of a view", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer release()
	object := names.View(v.ID())
	if err := putNew(ctx, store, object, file); err != nil || name.Name == "" {
		return err
	}
	if err := putLabel(ctx, store, v, object, name); err != nil {
		return err
	}
	// A prune in a store without locks may have found the view without a name.
	return putNew(ctx, store, object, file)
}

// putNew puts an object whose name is a function of its content, unless it is there.
func putNew(ctx context.Context, store objstore.Store, name string, data []byte) error {
	if _, err := store.Stat(ctx, name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := objstore.Put(ctx, store, name, data, objstore.Condition{IfNoneMatch: true})
	if errors.Is(err, objstore.ErrExists) {
		return nil
	}
	return err
}

func putLabel(ctx context.Context, store objstore.Store, v *viewfile.View, object string, name ViewName) error {
	label := viewfile.Label{
		Format: viewfile.LabelFormat, View: object, Digest: format.DigestString(v.Digest), Of: v.Samples,
		Tables: name.Tables,
		Kind:   v.Kind(), Samples: name.Samples, Made: name.Made,
	}
	at := names.Label(name.Name)
	text, info, err := objstore.ReadAll(ctx, store, at, viewfile.MaxLabel)
	condition := objstore.Condition{IfNoneMatch: true}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil && !errors.Is(err, objstore.ErrTooLarge):
		return err
	default:
		if old, err := viewfile.DecodeLabel(text); err == nil && old.View == object {
			return nil
		}
		if !name.Replace {
			return fmt.Errorf("another view has the name %s: %w: choose another name, or replace it", name.Name,
				objstore.ErrExists)
		}
		condition = objstore.Condition{IfMatch: info.ETag}
	}
	_, err = objstore.Put(ctx, store, at, label.Encode(), condition)
	return err
}
