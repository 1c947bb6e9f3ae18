package writer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// holdsKey returns the shards, or their sidecars, whose index has a key.
func holdsKey(t *testing.T, st objstore.Store, key string) (names []string) {
	t.Helper()
	for name, text := range objects(t, st) {
		if _, err := metadata.ShardFormat(name); err == nil && strings.HasSuffix(name, format.TarSuffix) || err != nil && !strings.HasSuffix(name, format.SidecarSuffix) {
			continue // a plain shard, whose index is its sidecar
		}
		tail, more, err := metadata.ParseTail(text, int64(len(text)))
		if err != nil || more != 0 {
			t.Fatal(name, more, err)
		}
		off, n := tail.Cold()
		ix, err := tail.DecodeCold(text[off : off+n])
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range ix.Keys.All() {
			if k == key {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func purgeBase(t *testing.T, base objstore.Store, opt writer.PurgeOptions, numbers ...uint64) *writer.PurgeReport {
	t.Helper()
	if _, err := writer.Remove(t.Context(), base, "", numbers); err != nil {
		t.Fatal(err)
	}
	r, err := writer.Purge(t.Context(), base, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withoutSamples checks that a published layer has nothing for samples, and that nothing in its
// store has their keys.
func withoutSamples(t *testing.T, st, base objstore.Store, keys []string, numbers ...uint64) {
	t.Helper()
	fitsBase(t, st, base)
	if l := tablesAt(t, st); !slices.Equal(l.Removed, numbers) || !slices.Equal(l.Purged, numbers) {
		t.Errorf("removed %v, purged %v, want %v", l.Removed, l.Purged, numbers)
	}
	for _, n := range numbers {
		if in := holdsKey(t, st, keys[n]); len(in) > 0 {
			t.Errorf("%q is in %q", keys[n], in)
		}
	}
	if err := writer.CheckLayer(t.Context(), st, base); err != nil {
		t.Error(err)
	}
}

// TestLayerResumedAfterPurge: a run that was stopped, and the base is purged before it is resumed.
// The receipt names what holds the bytes, a purge of generations deletes it, and what is published
// does not have them.
func TestLayerResumedAfterPurge(t *testing.T) {
	for _, name := range []string{"keyed", "aligned", "arrays", "plain", "appended"} {
		for _, generations := range []bool{false, true} {
			t.Run(fmt.Sprint(name, generations), func(t *testing.T) {
				base, keys := baseSet(t, 150)
				st := mem.New()
				opt := writer.LayerOptions{ByPlace: name == "aligned", SkipUnknown: true}
				rows := func() *rowsOf { return captions(keys, "a") }
				victim := uint64(2)
				switch name {
				case "arrays":
					opt.Pack.Layout = writer.LayoutAuto
					rows = func() *rowsOf { return vectors(keys) }
				case "plain":
					opt.Pack.Plain = true
				case "appended":
					if _, err := writer.AddLayer(t.Context(), st, base, rows(), opt); err != nil {
						t.Fatal(err)
					}
					more := &synth{items: makeItems(60, 3<<10, 9), tag: "more"}
					for i := range more.items {
						more.items[i].key = "more/" + more.items[i].key
						keys = append(keys, more.items[i].key)
					}
					add := small("d")
					add.Mode = writer.ModeAppend
					if _, err := writer.Pack(t.Context(), base, more, add); err != nil {
						t.Fatal(err)
					}
					opt.Pack.Mode, victim = writer.ModeAppend, 152
				}
				ctx, cancel := context.WithCancel(t.Context())
				opt.Pack.Stored = func(int64) { cancel() }
				if _, err := writer.AddLayer(ctx, st, base, rows(), opt); err == nil {
					t.Fatal("it was not stopped")
				}
				held := holdsKey(t, st, keys[victim])
				if len(held) == 0 {
					t.Fatal("the shard that was put does not have the sample")
				}
				r := purgeBase(t, base, writer.PurgeOptions{Generations: generations, Layers: []objstore.Store{st}}, victim)
				if len(r.Layers) != 1 || r.Layers[0].Unpublished != (name != "appended") || r.Layers[0].Receipt == nil {
					t.Fatalf("%+v", r.Layers)
				}
				names := r.Layers[0].Receipt.Holding
				if generations {
					names = r.Layers[0].Receipt.Deleted
					if in := holdsKey(t, st, keys[victim]); len(in) > 0 {
						t.Errorf("%q is still in %q", keys[victim], in)
					}
				}
				for _, object := range held {
					if !slices.Contains(names, object) {
						t.Errorf("the receipt names %q, and %s has the sample", names, object)
					}
				}
				opt.Pack.Resume, opt.Pack.Stored = true, nil
				res, err := writer.AddLayer(t.Context(), st, base, rows(), opt)
				if err != nil || !generations && res.Adopted == 0 {
					t.Fatalf("%+v, %v", res, err)
				}
				withoutSamples(t, st, base, keys, victim)
			})
		}
	}
}

// TestLayerPurgedMeanwhile: the base is purged while a layer is written, whole or in parts.
func TestLayerPurgedMeanwhile(t *testing.T) {
	base, keys := baseSet(t, 200)
	st := mem.New()
	stored := 0
	opt := writer.LayerOptions{Pack: writer.Options{Stored: func(int64) {
		if stored++; stored == 1 {
			purgeBase(t, base, writer.PurgeOptions{Generations: true}, 1, 150)
		}
	}}}
	if _, err := writer.AddLayer(t.Context(), st, base, captions(shuffled(keys), "a"), opt); err != nil {
		t.Fatal(err)
	}
	withoutSamples(t, st, base, keys, 1, 150)

	base, keys = baseSet(t, 200)
	st = mem.New()
	l := mustParts(t, st, base, writer.LayerOptions{})
	l.write(t, keys, l.Missing[1:]...)
	last := l.At[l.Parts] - 2
	r := purgeBase(t, base, writer.PurgeOptions{Layers: []objstore.Store{st}}, 1, last)
	if got := r.Layers[0].Receipt; len(got.Holding) != 2 { // the shard of the last part, and its manifest
		t.Errorf("%+v", got)
	}
	l.write(t, keys, l.Missing[:1]...)
	if err := l.commit(t); err != nil {
		t.Fatal(err)
	}
	fitsBase(t, st, base)
	if got := tablesAt(t, st); !slices.Equal(got.Purged, []uint64{1, last}) {
		t.Errorf("purged %v", got.Purged)
	}
	if _, fields := layerRows(t, st); len(fields) != 198 {
		t.Errorf("%d samples", len(fields))
	}

	base, keys = baseSet(t, 200)
	st = mem.New()
	l = mustParts(t, st, base, writer.LayerOptions{})
	l.write(t, keys, l.Missing[1:]...)
	purgeBase(t, base, writer.PurgeOptions{Generations: true, Layers: []objstore.Store{st}}, last)
	if again := mustParts(t, st, base, writer.LayerOptions{}); !slices.Equal(again.Missing, []int{0, l.Parts - 1}) {
		t.Errorf("missing %v", again.Missing)
	}
}

// TestLayerPurgedLocked: the store keeps the first of the shards that were rewritten meanwhile: the
// others are deleted even so, and a warning names what stays.
func TestLayerPurgedLocked(t *testing.T) {
	base, keys := baseSet(t, 200)
	st := mem.New()
	var log strings.Builder
	l := &locked{Store: st, first: true}
	stored := 0
	opt := writer.LayerOptions{Pack: writer.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Stored: func(int64) {
		if stored++; stored == 1 {
			purgeBase(t, base, writer.PurgeOptions{Generations: true}, 1, 150)
		}
	}}}
	if _, err := writer.AddLayer(t.Context(), l, base, captions(shuffled(keys), "a"), opt); err != nil {
		t.Fatal(err)
	}
	if len(l.keeps) != 1 || !strings.Contains(log.String(), l.keeps[0]) {
		t.Errorf("kept %q: %s", l.keeps, &log)
	}
	if in := append(holdsKey(t, st, keys[1]), holdsKey(t, st, keys[150])...); !slices.Equal(in, l.keeps) {
		t.Errorf("purged samples are in %q, and %q was kept", in, l.keeps)
	}
}

// TestLayerRemovedAlone: RemoveLayer deletes layers of its data set, published or not, and nothing
// else.
func TestLayerRemovedAlone(t *testing.T) {
	base, keys := baseSet(t, 120)
	other, otherKeys := baseSet(t, 90)
	whole, part, purged, of, pack := mem.New(), mem.New(), mem.New(), mem.New(), mem.New()
	add := func(st, base objstore.Store, keys []string) {
		t.Helper()
		if _, err := writer.AddLayer(t.Context(), st, base, captions(keys, "a"), writer.LayerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	add(whole, base, keys)
	add(purged, base, keys)
	add(of, other, otherKeys)
	l := mustParts(t, part, base, writer.LayerOptions{})
	l.write(t, keys, l.Missing[1:]...)
	src := &synth{items: makeItems(60, 3<<10, 9), tag: "parts"}
	if _, err := writer.PackPart(t.Context(), pack, src, 0, 2, small("d")); err != nil {
		t.Fatal(err)
	}
	purgeBase(t, base, writer.PurgeOptions{Generations: true, Layers: []objstore.Store{whole, purged}}, 3)
	if err := purged.Delete(t.Context(), format.ManifestName); err != nil { // an interrupted removal
		t.Fatal(err)
	}
	refused := map[string]objstore.Store{"a layer of another data set": of, "parts of a pack": pack, "a data set": other}
	for name, st := range refused {
		before := objects(t, st)
		for _, own := range []bool{false, true} {
			if own && st == of { // the base may have been packed again
				continue
			}
			if _, err := writer.RemoveLayer(t.Context(), st, base, own); !errors.Is(err, writer.ErrNotLayer) {
				t.Errorf("%s: %v", name, err)
			}
		}
		sameObjects(t, name, objects(t, st), before)
	}
	if err := of.Delete(t.Context(), format.ManifestName); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.RemoveLayer(t.Context(), of, base, false); !errors.Is(err, writer.ErrNotLayer) {
		t.Errorf("what is left of a layer of another data set: %v", err)
	}
	for name, st := range map[string]objstore.Store{"published": whole, "parts": part, "purged, and its removal interrupted": purged} {
		if res, err := writer.RemoveLayer(t.Context(), st, base, false); err != nil || len(res.Objects) == 0 {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if left := objects(t, st); len(left) > 0 {
			t.Errorf("%s: %d objects are left", name, len(left))
		}
	}
}
