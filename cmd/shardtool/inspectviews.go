package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
)

// viewJSON is a view as inspect --json prints it.
type viewJSON struct {
	Name string `json:"name,omitempty"`
	View string `json:"view"`
	ID   string `json:"id"`
	Kind string `json:"kind,omitempty"` // `subset`, `weights` or `classes`

	Samples uint64            `json:"samples"` // of an epoch
	Of      uint64            `json:"of"`      // samples of the data set
	Made    map[string]string `json:"made,omitempty"`
	Current bool              `json:"current"` // not of another generation. If it is, select --carry makes it anew.
	Error   string            `json:"error,omitempty"`
}

// viewOf returns the view in use.
func viewOf(ds *reader.Dataset) *viewJSON {
	v := ds.Selection().View()
	if v == nil {
		return nil
	}
	return &viewJSON{View: names.View(ds.Selection().ID()), ID: ds.Selection().ID(), Kind: v.Kind(),
		Samples: ds.Selection().Len(), Of: v.Samples, Current: true}
}

// listViews lists the views that have a name. In a store that cannot list it returns none and an
// error that wraps objstore.ErrNoList.
func listViews(ctx context.Context, ds *reader.Dataset) ([]viewJSON, error) {
	list := []viewJSON{}
	for name, err := range viewstore.Names(ctx, ds.Store()) {
		if errors.Is(err, objstore.ErrNoList) {
			return list, err
		}
		if err != nil {
			return nil, err
		}
		v := viewJSON{Name: name}
		label, err := viewstore.Label(ctx, ds.Store(), name)
		if err != nil {
			v.Error = err.Error()
		} else {
			v.View, v.Kind, v.Samples, v.Of, v.Made = label.View, label.Kind, label.Samples, label.Of, label.Made
			v.ID = label.View[len("view-") : len(label.View)-len(".bin")]
			v.Current = label.Digest == format.DigestString(ds.Digest())
		}
		list = append(list, v)
	}
	return list, nil
}

// printViews prints the view in use, or else all views that have a name.
func printViews(ctx context.Context, w io.Writer, ds *reader.Dataset) error {
	if v := viewOf(ds); v != nil {
		_, err := fmt.Fprintf(w, "view %s: %s of %s (%s)\n", v.ID, countText(v.Samples), plural(v.Of, "sample"), v.Kind)
		return err
	}
	views, err := listViews(ctx, ds)
	if errors.Is(err, objstore.ErrNoList) {
		_, err = fmt.Fprintf(w,
			"views and layers are not known, because they cannot be listed: name one to read it (%v)\n", err)
	}
	for _, v := range views {
		text := fmt.Sprintf("%s (%s)", plural(v.Samples, "sample"), v.Kind)
		if made := madeText(v.Made); made != "" {
			text += ", " + made
		}
		switch {
		case v.Error != "":
			text = v.Error
		case !v.Current:
			text += "; of another generation: see `shardtool select --carry`"
		}
		fmt.Fprintf(w, "view %s: %s\n", v.Name, shown(text))
	}
	return err
}
