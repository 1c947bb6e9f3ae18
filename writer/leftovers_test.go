package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestOverwriteLeftovers: a pack that overwrites replaces the shards that another one left, and
// leaves alone shards of other names and objects that no Writer put.
func TestOverwriteLeftovers(t *testing.T) {
	st := interrupted(t, 50, small("d"))
	other := interrupted(t, 50, small("e"))
	for name, data := range objects(t, other) {
		replace(t, st, name, data)
	}
	replace(t, st, "d-notes-000000.tar.zst", []byte("a user's own"))
	opt := small("d")
	opt.Mode = writer.ModeOverwrite
	left, err := writer.Leftovers(t.Context(), st, "d")
	if err != nil || len(left) == 0 {
		t.Fatal(left, err)
	}
	src := func() *synth { return &synth{items: makeItems(10, 12<<10, 5), tag: "changed"} }
	mustPack(t, st, src(), opt)
	clean := mem.New()
	mustPack(t, clean, src(), opt)
	want := objects(t, clean)
	for name, data := range objects(t, other) {
		want[name] = data
	}
	want["d-notes-000000.tar.zst"] = []byte("a user's own")
	sameObjects(t, "overwritten", objects(t, st), want)
}

// locked is a store that keeps objects, also the first that is deleted if that is set. After ends
// refusals it keeps none, unless that is 0.
type locked struct {
	objstore.Store
	keeps         []string
	first         bool
	refused, ends int
}

func (l *locked) Delete(ctx context.Context, name string) error {
	if l.first {
		l.keeps, l.first = append(l.keeps, name), false
	}
	if slices.Contains(l.keeps, name) && (l.ends == 0 || l.refused < l.ends) {
		l.refused++
		return objstore.NewError("delete", l.String(), name, fmt.Errorf("%w: a lock", objstore.ErrKept))
	}
	return l.Store.Delete(ctx, name)
}

// TestOverwriteLocked: a pack that overwrites and finds shards of another that the store keeps
// deletes the others, names those, and replaces them once they may be deleted.
func TestOverwriteLocked(t *testing.T) {
	st := interrupted(t, 50, small("d"))
	left, err := writer.Leftovers(t.Context(), st, "d")
	if err != nil || len(left) < 4 {
		t.Fatal(left, err)
	}
	l := &locked{Store: st, keeps: []string{left[0], left[2]}}
	opt := small("d")
	opt.Mode = writer.ModeOverwrite
	pack := func() error {
		_, err := writer.Pack(t.Context(), l, &synth{items: makeItems(10, 12<<10, 5), tag: "changed"}, opt)
		return err
	}
	err = pack()
	if !errors.Is(err, objstore.ErrKept) || !strings.Contains(err.Error(), left[0]) || !strings.Contains(err.Error(), left[2]) ||
		!strings.Contains(err.Error(), "(2 objects)") {
		t.Errorf("%v", err)
	}
	if now, err := writer.Leftovers(t.Context(), st, "d"); err != nil || !slices.Equal(now, l.keeps) {
		t.Errorf("%v, %v; want %v", now, err, l.keeps)
	}
	l.refused, l.ends = 0, 2 // the locks end while the pack deletes the others
	if err := pack(); err != nil || l.refused != 2 {
		t.Error(l.refused, err)
	}
}
