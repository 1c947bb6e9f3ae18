package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// layered is a base with layers. Every field carries the key of its sample.
type layered struct {
	base   objstore.Store
	set    *testset.Set
	layers map[string]objstore.Store
	last   map[string]uint64 // samples that a layer covers
}

// value is the content of a field of a sample.
func value(field, key string, n int) []byte {
	return []byte(strings.Repeat(field+"/"+key+" ", 1+n/(len(field)+len(key)+2)))
}

// lacks reports whether a layer has nothing for a key.
func lacks(layer, key string) bool {
	return (layer == "score" || layer == "patch") && testKeyNumber(key)%3 == 1
}

func testKeyNumber(key string) (n int) {
	fmt.Sscanf(key, "k%d", &n)
	return n
}

// newLayered makes a base of the fields jpg and txt and five layers: caption for all samples, score
// for two thirds of the samples in the first half of the shards, text, which replaces txt, and
// patch, which replaces txt of as many samples as score has.
func newLayered(t testing.TB, samples int) *layered {
	t.Helper()
	l := &layered{base: mem.New(), layers: map[string]objstore.Store{}, last: map[string]uint64{}}
	all := func(yield func(testset.Sample) bool) {
		for i := range samples {
			key := fmt.Sprintf("k%06d", i)
			if !yield(testset.Sample{Key: key, Fields: []testset.Field{{Name: "jpg", Data: value("jpg", key, 3000)}, {Name: "txt", Data: value("txt", key, 20)}}}) {
				return
			}
		}
	}
	var err error
	if l.set, err = testset.Build(t.Context(), l.base, all, testset.Options{BlockSize: 40 << 10, ShardSize: 400 << 10}); err != nil {
		t.Fatal(err)
	}
	l.add(t, "caption", "caption", len(l.set.Manifest.Shards), nil)
	l.add(t, "score", "score", len(l.set.Manifest.Shards)/2, nil)
	l.add(t, "text", "txt", len(l.set.Manifest.Shards), []string{"txt"})
	l.add(t, "patch", "txt", len(l.set.Manifest.Shards)/2, []string{"txt"})
	return l
}

// add makes a layer of one field over the first shards.
func (l *layered) add(t testing.TB, name, field string, shards int, replaces []string) {
	t.Helper()
	part := *l.set.Manifest
	part.Shards = part.Shards[:shards]
	n := 0
	for i := range part.Shards {
		n += int(part.Shards[i].Samples)
	}
	store := mem.New()
	fields := func(key string) []testset.Field {
		if lacks(name, key) {
			return nil
		}
		return []testset.Field{{Name: field, Data: value(name+"-"+field, key, 60)}}
	}
	of := &testset.Set{Manifest: &part, Keys: l.set.Keys[:n]}
	if _, err := testset.Layer(t.Context(), store, of, replaces, fields, testset.Options{}); err != nil {
		t.Fatal(err)
	}
	l.layers[name], l.last[name] = store, uint64(n)
}

// open opens the base with layers.
func (l *layered) open(t testing.TB, fields []string, names ...string) *Dataset {
	t.Helper()
	return open(t, l.base, l.options(fields, names...))
}

func (l *layered) options(fields []string, names ...string) Options {
	o := Options{Workers: 2, Fields: fields}
	for _, name := range names {
		o.Layers = append(o.Layers, Layer{Name: name, Store: l.layers[name]})
	}
	return o
}

// want returns the fields of a sample.
func (l *layered) want(number uint64, key string, fields []string, names ...string) (out []string) {
	add := func(field, text string) {
		if len(fields) == 0 || slices.Contains(fields, field) || slices.Contains(fields, field+"?") {
			out = append(out, field+"="+text)
		}
	}
	add("jpg", string(value("jpg", key, 3000)))
	patched := slices.Contains(names, "patch") && number < l.last["patch"] && !lacks("patch", key)
	if !slices.Contains(names, "text") && !patched {
		add("txt", string(value("txt", key, 20)))
	}
	for _, name := range names {
		field := map[string]string{"text": "txt", "patch": "txt", "again": "caption"}[name]
		if field == "" {
			field = name
		}
		if number < l.last[name] && !lacks(name, key) {
			add(field, string(value(name+"-"+field, key, 60)))
		}
	}
	slices.Sort(out)
	return out
}

func textOf(s *Sample) (out []string) {
	for _, f := range s.Fields {
		out = append(out, string(f.Name)+"="+string(f.Data))
	}
	return out
}

// TestLayers streams a base with layers, all of them or some fields, with ample memory and with so
// little that samples are copied out of evicted blocks: each sample has its fields and no others,
// in the order of the base alone.
func TestLayers(t *testing.T) {
	watch(t)
	l := newLayered(t, 1500)
	o := StreamOptions{Shuffle: true, Seed: 3, GlobalBatch: 100, Epochs: 2, Order: OrderOptions{Lanes: 6, RunBlocks: 2, Delay: 2}}
	keys := map[bool][]string{}
	for _, c := range []struct{ fields, layers []string }{
		{nil, nil},
		{[]string{"txt"}, nil},
		{nil, []string{"caption"}},
		{nil, []string{"score", "caption", "text"}},
		{[]string{"caption"}, []string{"caption"}},
		{[]string{"score?"}, []string{"score"}},
		{[]string{"score?", "caption"}, []string{"score", "caption"}},
		{[]string{"txt", "jpg"}, []string{"text", "caption"}},
		{nil, []string{"patch"}},
		{[]string{"txt"}, []string{"patch"}},
		{[]string{"caption", "txt"}, []string{"patch", "caption"}},
	} {
		for _, small := range []bool{false, true} {
			o := o
			o.Tuning.Memory = 0
			if small {
				o.Tuning.Memory, o.GlobalBatch = 1<<20, 500
			}
			t.Run(fmt.Sprintf("%v of %v, small %v", c.fields, c.layers, small), func(t *testing.T) {
				d := l.open(t, c.fields, c.layers...)
				s, err := d.Stream(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				var order []string
				for b, err := range s.Batches(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					for i := range b.Samples {
						smp := &b.Samples[i]
						order = append(order, string(smp.Key))
						if want := l.want(smp.Number, l.set.Keys[smp.Number], c.fields, c.layers...); string(smp.Key) != l.set.Keys[smp.Number] || !slices.Equal(textOf(smp), want) {
							t.Fatalf("sample %d has the key %s and %q, want %s and %q", smp.Number, smp.Key, textOf(smp), l.set.Keys[smp.Number], want)
						}
					}
				}
				if keys[small] == nil {
					keys[small] = order
				}
				if len(order) != 3000 || !slices.Equal(order, keys[small]) {
					t.Errorf("%d samples in another order", len(order))
				}
				if stats := s.Stats(); small && c.fields == nil && stats.Evicted == 0 {
					t.Error("nothing was evicted: the memory is not small")
				}
			})
		}
		d := l.open(t, c.fields, c.layers...)
		l.readsInOrder(t, d, c.fields, c.layers)
		for _, number := range []uint64{0, 1, 700, 1499} {
			smp, err := d.Get(t.Context(), number)
			if err != nil {
				t.Fatal(err)
			}
			if want := l.want(number, l.set.Keys[number], c.fields, c.layers...); string(smp.Key) != l.set.Keys[number] || !slices.Equal(textOf(smp), want) {
				t.Errorf("Get(%d) has the key %s and %q, want %q", number, smp.Key, textOf(smp), want)
			}
		}
	}
}

// readsInOrder compares samples in storage order, some blocks, and single fields.
func (l *layered) readsInOrder(t *testing.T, d *Dataset, fields, layers []string) {
	t.Helper()
	number := uint64(0)
	check := func(smp *Sample) {
		if want := l.want(number, l.set.Keys[number], fields, layers...); smp.Number != number || string(smp.Key) != l.set.Keys[number] || !slices.Equal(textOf(smp), want) {
			t.Fatalf("in order: sample %d has the key %s and %q, want %d and %q", smp.Number, smp.Key, textOf(smp), number, want)
		}
	}
	for smp, err := range d.Samples(t.Context(), Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		check(smp)
		number++
	}
	if number != d.NumSamples() {
		t.Fatalf("%d samples in order", number)
	}
	blocks := 0
	for b, err := range d.Blocks(t.Context(), BlockOptions{From: 20, Take: func(_ context.Context, b *Block) (bool, error) { return b.Number%2 == 1, nil }}) {
		if err != nil || b.Number%2 == 0 {
			t.Fatalf("block %+v: %v", b, err)
		}
		blocks++
		for number = b.First; ; number++ {
			smp, err := b.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			check(smp)
		}
		if number != b.First+uint64(b.Samples) {
			t.Fatalf("block %d of shard %d has %d samples", b.Number, b.Shard, number-b.First)
		}
	}
	if blocks == 0 {
		t.Error("no block was taken")
	}
	for _, number := range []uint64{0, 1, 1499} {
		var got []string
		for _, name := range []string{"caption", "jpg", "score", "txt"} {
			var text strings.Builder
			switch err := d.Field(t.Context(), number, name, &text); {
			case err == nil:
				got = append(got, name+"="+text.String())
			case !errors.Is(err, fs.ErrNotExist):
				t.Error(err)
			}
		}
		want := l.want(number, l.set.Keys[number], fields, layers...)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("fields %v, layers %v: Field reads %.20q, want %.20q", fields, layers, got, want)
		}
	}
	for _, err := range d.Frames(t.Context(), Range{}) {
		if (len(fields)+len(layers) > 0) != errors.Is(err, ErrFields) {
			t.Errorf("frames: %v", err)
		}
		break
	}
}

// TestLayersInFlight: blocks of a layer do not take the turns of the blocks beside them. With a
// layer a stream keeps as many requests in flight as the stores of base and layer send together.
func TestLayersInFlight(t *testing.T) {
	watch(t)
	l := newLayered(t, 1500)
	base, layer := &far{Store: l.base, requests: 8}, &far{Store: l.layers["caption"], requests: 8}
	d := open(t, base, Options{Workers: 2, Layers: []Layer{{Name: "caption", Store: layer}}})
	o := StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 1, Tuning: Tuning{NoAutotune: true}}
	stream := func() *Stream {
		s, err := d.Stream(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := stream()
	for range s.Batches(t.Context()) { // which loads the tables
		continue
	}
	s.Close()
	base.changed.Store(int64(time.Hour))
	layer.changed.Store(int64(time.Hour))
	s = stream()
	defer s.Close()
	for n := int64(0); n < 16; time.Sleep(time.Millisecond) { // watch ends it
		if n = base.flying.Load() + layer.flying.Load(); n > 16 {
			t.Fatalf("%d requests in flight, want 16", n)
		}
	}
}

// TestLayersReads: what is not wanted is not read. With the fields of a layer alone no byte of the
// base's shards is, except for samples that the layer does not cover.
func TestLayersReads(t *testing.T) {
	l := newLayered(t, 600)
	var base, caption atomic.Int64
	count := func(of *atomic.Int64, in objstore.Store) objstore.Store {
		h := &hooked{Store: in}
		h.read = func(name string, p []byte, _ int64) error {
			if strings.HasSuffix(name, ".tar.zst") {
				of.Add(int64(len(p)))
			}
			return nil
		}
		return h
	}
	l.base, l.layers["caption"] = count(&base, l.base), count(&caption, l.layers["caption"])
	for _, c := range []struct {
		fields, layers []string
		base, caption  bool
	}{
		{nil, []string{"caption"}, true, true},
		{[]string{"jpg"}, []string{"caption"}, true, false},
		{[]string{"caption"}, []string{"caption"}, false, true},
		{[]string{"caption", "score?"}, []string{"score", "caption"}, false, true},
		{[]string{"score?"}, []string{"score", "caption"}, true, false},
		{[]string{"none?"}, []string{"caption"}, true, false},
	} {
		base.Store(0)
		caption.Store(0)
		d := l.open(t, c.fields, c.layers...)
		s, err := d.Stream(t.Context(), StreamOptions{Shuffle: true, Epochs: 1, GlobalBatch: 64})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if s.Close(); base.Load() > 0 != c.base || caption.Load() > 0 != c.caption {
			t.Errorf("fields %v of %v: %d bytes of the base and %d of the layer", c.fields, c.layers, base.Load(), caption.Load())
		}
		if slices.Equal(c.fields, []string{"caption"}) {
			if stored := int64(d.all[1].Info().Bytes); caption.Load() > stored {
				t.Errorf("%d of %d bytes of the layer", caption.Load(), stored)
			}
		}
	}
}

// TestLayersRefused: what is no layer of the data set, and fields that two data sets have, are
// errors that name both.
func TestLayersRefused(t *testing.T) {
	l, other := newLayered(t, 300), newLayered(t, 310)
	l.layers["other"], l.layers["base"] = other.layers["caption"], other.base
	l.add(t, "again", "caption", 2, nil)
	l.add(t, "same", "txt", 2, nil)
	l.add(t, "twice", "txt", 2, []string{"txt"})
	for _, c := range []struct {
		layers, fields []string
		is             error
		says           []string
	}{
		{[]string{"other"}, nil, format.ErrMismatch, []string{"layer other", "digest"}},
		{[]string{"base"}, nil, format.ErrMismatch, []string{"layer base", "not a layer"}},
		{[]string{"caption", "again"}, nil, nil, []string{`field "caption"`, "layer caption", "layer again"}},
		{[]string{"same"}, []string{"jpg"}, nil, []string{`field "txt"`, "the data set", "layer same", "replaces"}},
		{[]string{"text", "twice"}, nil, nil, []string{`field "txt"`, "layer text", "layer twice", "both replace"}},
		{[]string{"caption", "caption"}, nil, nil, []string{"caption is named twice"}},
		{[]string{"caption"}, []string{"emb"}, ErrFields, []string{`no field "emb"`, `caption, jpg, txt`}},
	} {
		_, err := Open(t.Context(), l.base, l.options(c.fields, c.layers...))
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%v: %v", c.layers, err)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %v, want %s", c.layers, err, says)
			}
		}
	}
	var at *layerError
	if _, err := Open(t.Context(), l.base, Options{Layers: []Layer{{Name: "gone", Store: mem.New()}}}); !errors.As(err, &at) || at.layer != "gone" {
		t.Errorf("no layer: %v", err)
	}
	// On layers of layers.
	if _, err := Open(t.Context(), l.layers["caption"], Options{Layers: []Layer{{Name: "x", Store: l.layers["text"]}}}); !errors.Is(err, format.ErrMismatch) {
		t.Errorf("a layer of a layer: %v", err)
	}
}

// forged makes a layer whose tables name the base of l, but whose samples are those of another data
// set.
func (l *layered) forged(t *testing.T, of *layered, fields func(key string) []testset.Field) objstore.Store {
	t.Helper()
	store := mem.New()
	_, err := testset.Layer(t.Context(), store, of.set, nil, fields, testset.Options{Edit: func(m *metadata.Manifest) {
		m.Base = metadata.BaseOf(l.set.Manifest, -1, nil)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestLayersForged: blocks that differ from the base's, and fields that the tables do not state,
// are errors and never samples with the fields of others.
func TestLayersForged(t *testing.T) {
	watch(t)
	l, other := newLayered(t, 300), newLayered(t, 300)
	// The same numbers of shards and samples, other blocks.
	rows := other.set.Manifest.Shards[0].Rows
	rows[0].Samples--
	rows[1].Samples++
	caption := func(key string) []testset.Field { return []testset.Field{{Name: "caption", Data: []byte(key)}} }
	l.layers["blocks"] = l.forged(t, other, caption)
	rows[0].Samples++
	rows[1].Samples--
	last := &other.set.Manifest.Shards[len(other.set.Manifest.Shards)-1]
	other.set.Manifest.Shards[0], *last = *last, other.set.Manifest.Shards[0]
	l.layers["shards"] = l.forged(t, other, caption)
	for _, name := range []string{"blocks", "shards"} {
		for _, fields := range [][]string{nil, {"caption"}} {
			d := l.open(t, fields, name)
			s, err := d.Stream(t.Context(), StreamOptions{Epochs: 1, Faults: Faults{SkipCorrupt: true, MaxSkippedShare: 1}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Next(t.Context())
			if !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), "layer "+name) || !strings.Contains(err.Error(), fmt.Sprint(l.base)) {
				t.Errorf("%s: %v", name, err)
			}
			s.Close()
			if _, err := d.Get(t.Context(), 0); !errors.Is(err, format.ErrMismatch) {
				t.Errorf("%s: Get: %v", name, err)
			}
		}
	}
}

// TestLayersDamaged: a damaged block of a layer is a hole of whole samples, counted once also where
// the base's block is damaged too, and named with its layer; without SkipCorrupt it ends the
// stream.
func TestLayersDamaged(t *testing.T) {
	watch(t)
	l := newLayered(t, 400)
	damage := func(store objstore.Store, block int) {
		name := l.set.Manifest.Shards[0].Name
		raw, _, err := objstore.ReadAll(t.Context(), store, name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		d := open(t, store, Options{})
		rows, err := d.Rows(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		off := 0
		for _, r := range rows[:block] {
			off += int(r.Stored)
		}
		raw[off+int(rows[block].Stored)/2] ^= 1
		if _, err := objstore.Put(t.Context(), store, name, raw, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	damage(l.layers["caption"], 1)
	damage(l.layers["caption"], 2)
	damage(l.base, 2)
	rows := l.set.Manifest.Shards[0].Rows
	gone := uint64(rows[1].Samples + rows[2].Samples)
	for _, memory := range []int64{0, 1 << 20} {
		for _, fields := range [][]string{nil, {"caption"}} {
			d := l.open(t, fields, "caption")
			o := StreamOptions{Shuffle: true, Epochs: 1, GlobalBatch: 400, Tuning: Tuning{Memory: memory}, Order: OrderOptions{Lanes: 4, RunBlocks: 1, Delay: 2}}
			s, err := d.Stream(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.Next(t.Context()); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("damage: %v", err)
			}
			s.Close()
			o.Faults = Faults{SkipCorrupt: true, MaxSkippedShare: 1}
			if s, err = d.Stream(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if uint64(b.Holes) != gone || b.Len() != 400-int(gone) || b.SkippedSamples() != gone || len(b.Samples) != b.Len() {
				t.Errorf("memory %d, fields %v: %d holes and %d samples, %d in the ledger, want %d", memory, fields, b.Holes, b.Len(), b.SkippedSamples(), gone)
			}
			for i := range b.Samples {
				if n := b.Samples[i].Number; !slices.Equal(textOf(&b.Samples[i]), l.want(n, l.set.Keys[n], fields, "caption")) {
					t.Errorf("sample %d has %q", n, textOf(&b.Samples[i]))
				}
			}
			for _, k := range s.Skipped() {
				if k.Shard != l.set.Manifest.Shards[0].Name || k.Block == 1 && !strings.Contains(k.Reason, "layer caption") {
					t.Errorf("skipped %+v", k)
				}
			}
			if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			s.Close()
		}
	}
}

// TestLayersOtherKeys: the samples of a layer have other keys than the base's at the same places,
// as where two of its shards were exchanged with all that names them. No value is delivered under
// the key of another sample.
func TestLayersOtherKeys(t *testing.T) {
	l, other := newLayered(t, 300), newLayered(t, 300)
	keys := other.set.Keys
	keys[0], keys[1] = keys[1], keys[0]
	l.layers["keys"] = l.forged(t, other, func(key string) []testset.Field { return []testset.Field{{Name: "caption", Data: []byte(key)}} })
	d := l.open(t, nil, "keys")
	for _, memory := range []int64{0, 1 << 20} {
		s, err := d.Stream(t.Context(), StreamOptions{Epochs: 1, Tuning: Tuning{Memory: memory}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Next(t.Context()); !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), keys[0]) {
			t.Errorf("stream: %v", err)
		}
		s.Close()
	}
	if _, err := d.Get(t.Context(), 0); !errors.Is(err, format.ErrMismatch) {
		t.Errorf("Get: %v", err)
	}
	if smp, err := d.Get(t.Context(), 2); err != nil || string(smp.Key) != keys[2] {
		t.Errorf("another sample: %v", err)
	}
	for _, err := range d.Samples(t.Context(), Range{}) {
		if !errors.Is(err, format.ErrMismatch) {
			t.Errorf("in order: %v", err)
		}
		break
	}
}
