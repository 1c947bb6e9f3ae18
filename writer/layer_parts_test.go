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

// partRows are the rows of one shard, whose first sample has a number.
type partRows struct {
	*rowsOf
	first uint64
}

func (r partRows) Next(ctx context.Context) (writer.Sample, error) {
	s, err := r.rowsOf.Next(ctx)
	s.Row += int64(r.first)
	return s, err
}

func (partRows) Split(int, int) error { return nil }
func (partRows) Fingerprint() string  { return "captions" }

// layerParts is a layer that is written in parts.
type layerParts struct {
	*writer.PartsReport
	store, base objstore.Store
	of          func(writer.Splitter) writer.Splitter
}

func openParts(t *testing.T, st, base objstore.Store, opt writer.LayerOptions) (*layerParts, error) {
	t.Helper()
	opt.Pack.Memory = 1 << 20
	l := &layerParts{store: st, base: base}
	var err error
	l.PartsReport, l.of, err = writer.LayerParts(t.Context(), st, base, partRows{captions(nil, "a"), 0}, opt)
	return l, err
}

// write writes parts from captions, without every tenth.
func (l *layerParts) write(t *testing.T, keys []string, parts ...int) {
	t.Helper()
	for _, part := range parts {
		rows := captions(keys[l.At[part]:l.At[part+1]], "a")
		for i := range rows.rows {
			if (int(l.At[part])+i)%10 == 9 {
				rows.rows[i].Fields = nil
			}
		}
		src := l.of(partRows{rows, l.At[part]})
		if _, err := writer.PackPart(t.Context(), l.store, src, part, l.Parts, writer.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *layerParts) commit(t *testing.T) error {
	_, err := writer.Commit(t.Context(), l.store, writer.CommitOptions{Parts: l.Parts, Base: l.base})
	return err
}

func mustParts(t *testing.T, st, base objstore.Store, opt writer.LayerOptions) *layerParts {
	t.Helper()
	l, err := openParts(t, st, base, opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLayerParts writes the shards of a layer in two orders: the bytes are the same. The base loses
// samples meanwhile, and gets some, which an append adds to the layer.
func TestLayerParts(t *testing.T) {
	base, keys := baseSet(t, 300)
	var shards [][]string
	for run := range 2 {
		st := mem.New()
		l := mustParts(t, st, base, writer.LayerOptions{})
		left := slices.Clone(l.Missing)
		if l.Published || len(left) != l.Parts || l.First != 0 || l.Parts < 4 {
			t.Fatalf("%+v", l.PartsReport)
		}
		if run == 1 {
			slices.Reverse(left)
		}
		l.write(t, keys, left[1:]...)
		if err := l.commit(t); !errors.Is(err, writer.ErrMissing) {
			t.Fatalf("a commit of some parts: %v", err)
		}
		if l = mustParts(t, st, base, writer.LayerOptions{}); !slices.Equal(l.Missing, left[:1]) {
			t.Fatalf("missing %v, want %v", l.Missing, left[:1])
		}
		l.write(t, keys, left...)
		if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: l.Parts}); !errors.Is(err, writer.ErrSource) {
			t.Errorf("a commit without the base: %v", err)
		}
		for range 2 {
			if err := l.commit(t); err != nil {
				t.Fatal(err)
			}
		}
		fitsBase(t, st, base)
		got, fields := layerRows(t, st)
		if !slices.Equal(got, keys) {
			t.Fatal("other keys")
		}
		for i, k := range keys {
			if want := "a of " + k; (string(fields[k]["caption"]) == want) == (i%10 == 9) {
				t.Errorf("sample %d has %q", i, fields[k]["caption"])
			}
		}
		shards = append(shards, contents(t, st))
		if l = mustParts(t, st, base, writer.LayerOptions{}); !l.Published {
			t.Errorf("a complete layer: %+v", l.PartsReport)
		}
	}
	if !slices.Equal(shards[0], shards[1]) {
		t.Error("the bytes depend on the order")
	}
}

func contents(t *testing.T, st objstore.Store) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(t.Context(), st, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %x", info.Name, data))
	}
	slices.Sort(all)
	return all
}

// TestLayerPartsMeanwhile: the base gets and loses samples while the parts are written.
func TestLayerPartsMeanwhile(t *testing.T) {
	base, keys := baseSet(t, 300)
	st := mem.New()
	l := mustParts(t, st, base, writer.LayerOptions{})
	last := l.Parts
	l.write(t, keys, 2)
	more := &synth{items: makeItems(100, 3<<10, 6), tag: "more"}
	for i := range more.items {
		more.items[i].key = fmt.Sprintf("more/%d", i)
	}
	opt := small("d")
	opt.Mode = writer.ModeAppend
	if _, err := writer.Pack(t.Context(), base, more, opt); err != nil {
		t.Fatal(err)
	}
	for i := range more.items {
		keys = append(keys, more.items[i].key)
	}
	if _, err := writer.Remove(t.Context(), base, "", []uint64{0, 150}); err != nil {
		t.Fatal(err)
	}
	if l = mustParts(t, st, base, writer.LayerOptions{}); l.Parts != last {
		t.Fatalf("%d parts, begun with %d", l.Parts, last)
	}
	l.write(t, keys, l.Missing...)
	if err := l.commit(t); err != nil {
		t.Fatal(err)
	}
	got, fields := layerRows(t, st)
	if len(got) != 298 || len(fields[keys[0]])+len(fields[keys[150]]) != 0 || string(fields[keys[1]]["caption"]) != "a of "+keys[1] {
		t.Errorf("%d samples, %q %q %q", len(got), fields[keys[0]], fields[keys[150]], fields[keys[1]])
	}
	version2 := map[string]string{"version": "2"}
	if _, err := openParts(t, st, base, writer.LayerOptions{Pack: writer.Options{SourceOptions: version2}}); !errors.Is(err, writer.ErrExists) {
		t.Errorf("another version of a complete layer: %v", err)
	}
	l = mustParts(t, st, base, writer.LayerOptions{Pack: writer.Options{Mode: writer.ModeAppend}})
	if l.First != last || l.Parts == 0 {
		t.Fatalf("an append: %+v", l.PartsReport)
	}
	l.write(t, keys, l.Missing...)
	_, err := openParts(t, st, base, writer.LayerOptions{Pack: writer.Options{Mode: writer.ModeAppend, SourceOptions: version2}})
	if !errors.Is(err, writer.ErrSource) || !strings.Contains(err.Error(), `"source.version":"2"`) {
		t.Errorf("parts of another version: %v", err)
	}
	if err := l.commit(t); err != nil {
		t.Fatal(err)
	}
	fitsBase(t, st, base)
	if got, fields = layerRows(t, st); len(got) != 398 || string(fields[keys[390]]["caption"]) != "a of "+keys[390] {
		t.Errorf("%d samples, %q", len(got), fields[keys[390]])
	}
}
