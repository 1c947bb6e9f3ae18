package writer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// rowsOf is a source of rows in memory.
type rowsOf struct {
	rows []writer.Sample
	at   int
}

func (r *rowsOf) Next(context.Context) (writer.Sample, error) {
	if r.at == len(r.rows) {
		return writer.Sample{}, io.EOF
	}
	r.at++
	s := r.rows[r.at-1]
	s.Source, s.Row, s.Origin = "rows", int64(r.at), fmt.Sprintf("rows: row %d", r.at)
	return s, nil
}
func (r *rowsOf) Cursor() string                     { return fmt.Sprint(r.at) }
func (r *rowsOf) Seek(context.Context, string) error { return nil }
func (r *rowsOf) Fingerprint() string                { return fmt.Sprint("rows ", len(r.rows)) }
func (r *rowsOf) Meta() format.Metadata              { return nil }
func (r *rowsOf) Total() (int64, int64)              { return int64(len(r.rows)), 0 }
func (r *rowsOf) Close() error                       { return nil }

// captions are rows for keys, each with the key in its caption.
func captions(keys []string, version string) *rowsOf {
	r := &rowsOf{}
	for _, k := range keys {
		r.rows = append(r.rows, writer.Sample{Key: k, Fields: []writer.Field{{Name: "caption", Data: []byte(version + " of " + k)}}})
	}
	return r
}

// vectors are rows of one array each.
func vectors(keys []string) *rowsOf {
	r := &rowsOf{}
	for i, k := range keys {
		r.rows = append(r.rows, writer.Sample{Key: k, Fields: []writer.Field{{Name: "emb.npy", Data: testset.Npy("<u2", 2, []byte{byte(i), 1, byte(i >> 8), 2})}}})
	}
	return r
}

func shuffled(keys []string) []string {
	out := slices.Clone(keys)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// baseSet packs a data set of n samples and returns its keys in storage order.
func baseSet(t *testing.T, n int) (objstore.Store, []string) {
	t.Helper()
	st := mem.New()
	src := &synth{items: makeItems(n, 3<<10, 5), tag: "base"}
	if _, err := writer.Pack(t.Context(), st, src, small("d")); err != nil {
		t.Fatal(err)
	}
	keys := []string{}
	for _, it := range src.items {
		keys = append(keys, it.key)
	}
	return st, keys
}

// layerRows reads a layer as a data set: key to fields, in storage order, removed samples left out.
func layerRows(t *testing.T, st objstore.Store) (keys []string, fields map[string]map[string][]byte) {
	t.Helper()
	d, err := reader.Open(t.Context(), st, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	src, err := reshard.New(t.Context(), []*reader.Dataset{d}, reshard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	fields = map[string]map[string][]byte{}
	for {
		s, err := src.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return keys, fields
		}
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, s.Key)
		fields[s.Key] = map[string][]byte{}
		for _, f := range s.Fields {
			fields[s.Key][f.Name] = bytes.Clone(f.Data)
		}
	}
}

func tablesAt(t *testing.T, st objstore.Store) *metadata.Tables {
	t.Helper()
	text, _, err := objstore.ReadAll(t.Context(), st, format.ManifestName, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := metadata.DecodeSummary(text)
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := objstore.ReadAll(t.Context(), st, sum.Tables, 1<<26)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := metadata.OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// fitsBase checks that a layer is whole, fits its base, and has the blocks of the base.
func fitsBase(t *testing.T, st, base objstore.Store) {
	t.Helper()
	of, l := tablesAt(t, base), tablesAt(t, st)
	if l.Base == nil {
		t.Fatal("no base")
	}
	if err := l.Base.Fits(of, l.Shards, l.Samples); err != nil {
		t.Error(err)
	}
	want, err := of.Load()
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Shards {
		var a, b []uint32
		for _, r := range got.Shards[i].Rows {
			if r.Samples > 0 {
				a = append(a, r.Samples)
			}
		}
		for _, r := range want.Shards[i].Rows {
			if r.Samples > 0 {
				b = append(b, r.Samples)
			}
		}
		if !slices.Equal(a, b) {
			t.Fatalf("shard %d has blocks of %v, the base %v", i, a, b)
		}
	}
	r, err := check.Verify(t.Context(), st, check.Options{Deep: true})
	if err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAddLayer: rows in any order, in the order of the samples and copied from the base make a
// layer with the blocks of the base, the same for any number of workers.
func TestAddLayer(t *testing.T) {
	base, keys := baseSet(t, 300)
	open := func(fields ...string) func() writer.Source {
		return func() writer.Source {
			d, err := reader.Open(t.Context(), base, reader.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			src, err := reshard.New(t.Context(), []*reader.Dataset{d}, reshard.Options{Fields: fields})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { src.Close() })
			return src
		}
	}
	for name, c := range map[string]struct {
		src     func() writer.Source
		opt     writer.LayerOptions
		field   string
		stacked bool
		missing uint64
	}{
		"keyed":   {func() writer.Source { return captions(shuffled(keys), "a") }, writer.LayerOptions{}, "caption", false, 0},
		"aligned": {func() writer.Source { return captions(keys, "a") }, writer.LayerOptions{ByPlace: true}, "caption", false, 0},
		"copied":  {open("bin"), writer.LayerOptions{InOrder: true}, "bin", false, 0},
		"sparse":  {open("Atxt"), writer.LayerOptions{InOrder: true, AllowMissing: true}, "Atxt", false, 240},
		"arrays":  {func() writer.Source { return vectors(shuffled(keys)) }, writer.LayerOptions{Pack: writer.Options{Layout: writer.LayoutAuto}}, "emb.npy", true, 0},
		"some arrays": {func() writer.Source { return vectors(keys[1:201]) },
			writer.LayerOptions{AllowMissing: true, Pack: writer.Options{Layout: writer.LayoutAuto}}, "emb.npy", false, 100},
	} {
		t.Run(name, func(t *testing.T) {
			var digests []format.Hash
			for _, workers := range []int{1, 3} {
				st := mem.New()
				c.opt.Pack.Workers, c.opt.Pack.Memory = workers, 1<<20
				res, err := writer.AddLayer(t.Context(), st, base, c.src(), c.opt)
				if err != nil {
					t.Fatal(err)
				}
				fitsBase(t, st, base)
				if res.Missing != c.missing || res.Samples != 300 {
					t.Errorf("%+v", res)
				}
				got, fields := layerRows(t, st)
				if !slices.Equal(got, keys) {
					t.Error("other keys")
				}
				nothing := uint64(0)
				for key, of := range fields {
					switch v, has := of[c.field]; {
					case !has && len(of) == 1 && len(of[""]) == 0:
						nothing++
					case c.field == "caption" && string(v) != "a of "+key:
						t.Errorf("%q: %q", key, v)
					}
				}
				if nothing != c.missing {
					t.Errorf("%d samples have nothing", nothing)
				}
				m, err := tablesAt(t, st).Load()
				if err != nil {
					t.Fatal(err)
				}
				if (m.Shards[0].Layout != nil) != c.stacked {
					t.Errorf("layout %v", m.Shards[0].Layout)
				}
				digests = append(digests, res.Digest)
			}
			if digests[0] != digests[1] {
				t.Error("the bytes depend on the workers")
			}
		})
	}
}

// TestLayerFollowsBase: a layer of a base that gets samples removed, restored, purged and appended.
func TestLayerFollowsBase(t *testing.T) {
	base, keys := baseSet(t, 200)
	if _, err := writer.Remove(t.Context(), base, "", []uint64{3, 70, 150}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Purge(t.Context(), base, writer.PurgeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Remove(t.Context(), base, "", []uint64{5, 71}); err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string]func(keys []string) *rowsOf{"texts": func(k []string) *rowsOf { return captions(k, "a") }, "arrays": vectors} {
		st := mem.New()
		opt := writer.LayerOptions{Pack: writer.Options{Layout: writer.LayoutAuto}}
		live := shuffled(slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == keys[3] || k == keys[70] || k == keys[150] }))
		res, err := writer.AddLayer(t.Context(), st, base, src(live), opt)
		if err != nil || res.Removed != 2 || res.Missing != 0 {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		fitsBase(t, st, base)
		l := tablesAt(t, st)
		if want := []uint64{3, 5, 70, 71, 150}; !slices.Equal(l.Removed, want) || !slices.Equal(l.Purged, want) {
			t.Errorf("%s: removed %v, purged %v", name, l.Removed, l.Purged)
		}
		if got, _ := layerRows(t, st); len(got) != 195 || slices.Contains(got, keys[5]) {
			t.Errorf("%s: %d samples", name, len(got))
		}
		for _, info := range objects(t, st) { // the keys of removed samples are nowhere
			if bytes.Contains(info, []byte(keys[71])) {
				t.Errorf("%s: an object has the key of a removed sample", name)
			}
		}
	}

	st := mem.New()
	if _, err := writer.AddLayer(t.Context(), st, base, captions(keys, "a"), writer.LayerOptions{SkipUnknown: true}); err != nil {
		t.Fatal(err)
	}
	follow := func(removed, purged []uint64, already bool) {
		t.Helper()
		res, err := writer.FollowBase(t.Context(), st, base)
		if err != nil || res.Already != already {
			t.Fatalf("%+v, %v", res, err)
		}
		if l := tablesAt(t, st); !slices.Equal(l.Removed, removed) || !slices.Equal(l.Purged, purged) {
			t.Errorf("removed %v, purged %v", l.Removed, l.Purged)
		}
		fitsBase(t, st, base)
	}
	gone := []uint64{3, 5, 70, 71, 150}
	follow(gone, gone, true)
	if _, err := writer.Remove(t.Context(), base, "", []uint64{9}); err != nil {
		t.Fatal(err)
	}
	follow([]uint64{3, 5, 9, 70, 71, 150}, gone, false)
	if _, err := writer.Restore(t.Context(), base, "", []uint64{9, 71}); err != nil {
		t.Fatal(err)
	}
	follow(gone, gone, false) // the layer has nothing for 71

	more := &synth{items: makeItems(60, 3<<10, 9), tag: "more"}
	var added []string
	for i := range more.items {
		more.items[i].key = "more/" + more.items[i].key
		added = append(added, more.items[i].key)
	}
	opt := small("d")
	opt.Mode = writer.ModeAppend
	if _, err := writer.Pack(t.Context(), base, more, opt); err != nil {
		t.Fatal(err)
	}
	follow(gone, gone, true)
	appended := writer.LayerOptions{Pack: writer.Options{Mode: writer.ModeAppend}}
	res, err := writer.AddLayer(t.Context(), st, base, captions(append(shuffled(added), keys[20], keys[21]), "b"), appended)
	if err != nil || res.Covered != 2 || res.Samples != 260 || res.Written != 60 {
		t.Fatalf("%+v, %v", res, err)
	}
	fitsBase(t, st, base)
	_, fields := layerRows(t, st)
	if string(fields[added[5]]["caption"]) != "b of "+added[5] || string(fields[keys[20]]["caption"]) != "a of "+keys[20] {
		t.Error("other captions")
	}
	appended.Pack.Resume = true // it is published already
	if again, err := writer.AddLayer(t.Context(), st, base, captions(append(shuffled(added), keys[20], keys[21]), "b"), appended); err != nil || !again.Already {
		t.Errorf("%+v, %v", again, err)
	}

	// Rows for some samples; the others keep what they have.
	d, err := reader.Open(t.Context(), st, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before, err := reshard.New(t.Context(), []*reader.Dataset{d}, reshard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	update := writer.LayerOptions{Pack: writer.Options{Mode: writer.ModeOverwrite}, Before: before}
	if _, err := writer.AddLayer(t.Context(), st, base, captions([]string{keys[100], keys[30]}, "c"), update); err != nil {
		t.Fatal(err)
	}
	fitsBase(t, st, base)
	_, fields = layerRows(t, st)
	for key, want := range map[string]string{keys[30]: "c of " + keys[30], keys[31]: "a of " + keys[31], added[5]: "b of " + added[5]} {
		if got := string(fields[key]["caption"]); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestLayerPurged: a purge takes the bytes from the base and then from its layers, also where an
// earlier one ended between them.
// TestLayerLacksObject: following ends with an error that names what is missing, and works once it
// is back.
func TestLayerLacksObject(t *testing.T) {
	base, keys := baseSet(t, 200)
	st := mem.New()
	if _, err := writer.AddLayer(t.Context(), st, base, captions(keys, "a"), writer.LayerOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Remove(t.Context(), base, "", []uint64{9}); err != nil {
		t.Fatal(err)
	}
	all := objects(t, st)
	name := slices.Sorted(maps.Keys(all))[0] // the first shard
	data := all[name]
	if err := st.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.FollowBase(t.Context(), st, base); !errors.Is(err, writer.ErrLost) || !strings.Contains(err.Error(), name) {
		t.Fatal(err)
	}
	if _, err := writer.Purge(t.Context(), base, writer.PurgeOptions{Layers: []objstore.Store{st}}); err == nil || !strings.Contains(err.Error(), name) {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), st, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.FollowBase(t.Context(), st, base); err != nil || !slices.Equal(tablesAt(t, st).Removed, []uint64{9}) {
		t.Fatal(err)
	}
}

func TestLayerPurged(t *testing.T) {
	base, keys := baseSet(t, 60)
	texts, arrays, other := mem.New(), mem.New(), mem.New()
	for st, src := range map[objstore.Store]*rowsOf{texts: captions(keys, "a"), arrays: vectors(keys)} {
		if _, err := writer.AddLayer(t.Context(), st, base, src, writer.LayerOptions{Pack: writer.Options{Layout: writer.LayoutAuto}}); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere, foreign := baseSet(t, 9)
	if _, err := writer.AddLayer(t.Context(), other, elsewhere, captions(foreign, "a"), writer.LayerOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Remove(t.Context(), base, "", []uint64{7, 40}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Purge(t.Context(), base, writer.PurgeOptions{}); err != nil { // it ends here
		t.Fatal(err)
	}
	r, err := writer.Purge(t.Context(), base, writer.PurgeOptions{Generations: true, Layers: []objstore.Store{texts, arrays, other}})
	if err != nil || len(r.Layers) != 3 || r.Layers[2].Error == "" || r.Layers[2].Receipt != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, st := range []objstore.Store{texts, arrays} {
		fitsBase(t, st, base)
		if l := tablesAt(t, st); !slices.Equal(l.Purged, []uint64{7, 40}) {
			t.Errorf("purged %v", l.Purged)
		}
		if got := r.Layers[i].Receipt; len(got.Samples) != 2 || len(got.Holding) != 0 || i == 0 && got.Samples[0].Key != keys[7] {
			t.Errorf("%+v", got)
		}
	}
}

// TestLayerForged: tables of a base whose checksums are right, and that name other keys, blocks or
// lengths than the shards have.
func TestLayerForged(t *testing.T) {
	build := func(edit func(*metadata.Manifest), o testset.Options) (objstore.Store, *testset.Set) {
		st := mem.New()
		o.Edit, o.BlockSize, o.ShardSize = edit, 4<<10, 16<<10
		set, err := testset.Build(t.Context(), st, func(yield func(testset.Sample) bool) {
			for i := range 60 {
				if !yield(testset.Sample{Key: fmt.Sprintf("k%03d", i), Fields: []testset.Field{{Name: "txt", Data: bytes.Repeat([]byte{'x'}, 500)}}}) {
					return
				}
			}
		}, o)
		if err != nil {
			t.Fatal(err)
		}
		return st, set
	}
	_, set := build(nil, testset.Options{})
	for name, c := range map[string]struct {
		edit func(*metadata.Manifest)
		opt  testset.Options
		is   error
	}{
		"other blocks": {edit: func(m *metadata.Manifest) {
			rows := slices.Clone(m.Shards[0].Rows)
			rows[0].Samples, rows[1].Samples = rows[0].Samples-1, rows[1].Samples+1
			m.Shards[0].Rows = rows
		}, is: format.ErrMismatch},
		"shards exchanged": {edit: func(m *metadata.Manifest) {
			m.Shards[0].Name, m.Shards[1].Name = m.Shards[1].Name, m.Shards[0].Name
		}, is: format.ErrMismatch},
		"other keys table": {opt: testset.Options{KeyHash: func(key string) uint64 {
			return samplekey.Hash("k" + fmt.Sprintf("%03d", (60+len(key)-4+59-int(key[3]-'0')-10*int(key[2]-'0'))%60))
		}}, is: format.ErrMismatch},
	} {
		st, _ := build(c.edit, c.opt)
		_, err := writer.AddLayer(t.Context(), mem.New(), st, captions(set.Keys, "a"), writer.LayerOptions{})
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLayerEveryFault kills the writing of a layer at each operation of its store, lets each fail,
// and cuts each write. A layer is then published whole or not at all, and the same call with Resume
// ends with the bytes of one that was left alone.
func TestLayerEveryFault(t *testing.T) {
	base, keys := baseSet(t, 12)
	rows := func() *rowsOf { return captions(shuffled(keys), "a") }
	opt := writer.LayerOptions{Pack: writer.Options{Workers: 1, Plain: true}}
	clean := mem.New()
	if _, err := writer.AddLayer(t.Context(), clean, base, rows(), opt); err != nil {
		t.Fatal(err)
	}
	want := objects(t, clean)
	for _, kind := range []string{"kill", "killAfter", "short"} {
		var inner *mem.Store
		ops := eachFault(t, faultKinds[kind], func() objstore.Store { inner = mem.New(); return inner }, func(f *storetest.Faulty) {
			_, err := writer.AddLayer(t.Context(), f, base, rows(), opt)
			if err != nil && !f.Fired() {
				t.Fatal(err)
			}
			if _, there := objects(t, inner)[format.ManifestName]; there {
				fitsBase(t, inner, base)
			} else if err == nil {
				t.Fatal("success without a layer")
			}
			again := opt
			again.Pack.Resume = true
			if _, err := writer.AddLayer(t.Context(), inner, base, rows(), again); err != nil {
				t.Fatal(err)
			}
			sameObjects(t, "again", objects(t, inner), want)
		})
		if ops < 10 {
			t.Errorf("%s: only %d operations", kind, ops)
		}
	}
}

// TestLayerTwice: of two programs that add one layer with other rows at once, at most one
// publishes, and what is published is whole.
func TestLayerTwice(t *testing.T) {
	base, keys := baseSet(t, 80)
	st := mem.New()
	errs := make(chan error, 2)
	for _, version := range []string{"a", "b"} {
		go func() {
			_, err := writer.AddLayer(t.Context(), st, base, captions(shuffled(keys), version), writer.LayerOptions{})
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if first == nil && second == nil {
		t.Error("both succeeded")
	}
	for _, err := range []error{first, second} {
		if err != nil && !errors.Is(err, writer.ErrLost) && !errors.Is(err, writer.ErrExists) {
			t.Error(err)
		}
	}
	if first == nil || second == nil {
		fitsBase(t, st, base)
		_, fields := layerRows(t, st)
		version := fields[keys[0]]["caption"][:1]
		for key, of := range fields {
			if string(of["caption"]) != string(version)+" of "+key {
				t.Fatalf("%q has %q", key, of["caption"])
			}
		}
	}
}

// TestLayerChecked: CheckLayer finds a layer whose tables fit and whose samples have other keys.
func TestLayerChecked(t *testing.T) {
	samples := func(yield func(testset.Sample) bool) {
		for i := range 20 {
			if !yield(testset.Sample{Key: fmt.Sprint("k", i), Fields: []testset.Field{{Name: "txt", Data: []byte("x")}}}) {
				return
			}
		}
	}
	base := mem.New()
	set, err := testset.Build(t.Context(), base, samples, testset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, swapped := range []bool{false, true} {
		if swapped {
			set.Keys[3], set.Keys[4] = set.Keys[4], set.Keys[3]
		}
		st := mem.New()
		if _, err := testset.Layer(t.Context(), st, set, nil, func(string) []testset.Field { return nil }, testset.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := writer.CheckLayer(t.Context(), st, base); errors.Is(err, format.ErrMismatch) != swapped || !swapped && err != nil {
			t.Errorf("swapped %v: %v", swapped, err)
		}
	}
}

// TestLayerMeanwhile: the base changes while a layer is written.
func TestLayerMeanwhile(t *testing.T) {
	base, keys := baseSet(t, 200)
	st := mem.New()
	remove := func() {
		if _, err := writer.Remove(t.Context(), base, "", []uint64{150}); err != nil {
			t.Error(err)
		}
	}
	stored := 0
	opt := writer.LayerOptions{Pack: writer.Options{Stored: func(int64) {
		if stored++; stored == 1 {
			remove()
		}
	}}}
	if _, err := writer.AddLayer(t.Context(), st, base, captions(shuffled(keys), "a"), opt); err != nil {
		t.Fatal(err)
	}
	if l := tablesAt(t, st); !slices.Equal(l.Removed, []uint64{150}) || len(l.Purged) != 0 {
		t.Errorf("removed %v, purged %v", l.Removed, l.Purged)
	}
	fitsBase(t, st, base)

	stored, st = 0, mem.New()
	opt.Pack.Stored = func(int64) {
		if stored++; stored == 1 {
			over := small("d")
			over.Mode = writer.ModeOverwrite
			if _, err := writer.Pack(t.Context(), base, &synth{items: makeItems(50, 3<<10, 6), tag: "other"}, over); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := writer.AddLayer(t.Context(), st, base, captions(shuffled(keys), "a"), opt); !errors.Is(err, writer.ErrLost) {
		t.Error(err)
	}
	if _, err := st.Stat(t.Context(), format.ManifestName); err == nil {
		t.Error("a layer of no base was published")
	}
}

// TestLayerResumed: a layer whose writing ended after any shard is continued with the same bytes,
// samples removed meanwhile or not.
func TestLayerResumed(t *testing.T) {
	for _, byPlace := range []bool{false, true} {
		base, keys := baseSet(t, 150)
		rows := func() *rowsOf {
			if byPlace {
				return captions(keys, "a")
			}
			return captions(shuffled(keys), "a")
		}
		whole := mem.New()
		opt := writer.LayerOptions{ByPlace: byPlace}
		want, err := writer.AddLayer(t.Context(), whole, base, rows(), opt)
		if err != nil {
			t.Fatal(err)
		}
		for stop := int(want.Shards); stop > 0; stop -= 3 { // after the last shard, too
			st := mem.New()
			ctx, cancel := context.WithCancel(t.Context())
			stored := 0
			opt.Pack.Resume = false
			opt.Pack.Stored = func(int64) {
				if stored++; stored == stop {
					cancel()
				}
			}
			if _, err := writer.AddLayer(ctx, st, base, rows(), opt); err == nil {
				t.Fatal("it was not stopped")
			}
			cancel()
			opt.Pack.Resume, opt.Pack.Stored = true, nil
			res, err := writer.AddLayer(t.Context(), st, base, rows(), opt)
			if err != nil || res.Digest != want.Digest || res.Adopted == 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			sameObjects(t, "resumed", objects(t, st), objects(t, whole))
		}
		// Removed between the runs: the shards that are there keep the values.
		st := mem.New()
		ctx, cancel := context.WithCancel(t.Context())
		opt.Pack.Resume = false
		opt.Pack.Stored = func(int64) { cancel() }
		_, _ = writer.AddLayer(ctx, st, base, rows(), opt)
		cancel()
		if _, err := writer.Remove(t.Context(), base, "", []uint64{0, 149}); err != nil {
			t.Fatal(err)
		}
		opt.Pack.Resume, opt.Pack.Stored = true, nil
		if _, err := writer.AddLayer(t.Context(), st, base, rows(), opt); err != nil {
			t.Fatal(err)
		}
		fitsBase(t, st, base)
		if l := tablesAt(t, st); !slices.Equal(l.Removed, []uint64{0, 149}) || !slices.Equal(l.Purged, []uint64{149}) {
			t.Errorf("removed %v, purged %v", l.Removed, l.Purged)
		}
	}
}

// TestLayerRefused: what the rows and the base may be.
func TestLayerRefused(t *testing.T) {
	base, keys := baseSet(t, 100)
	twice := captions(append(slices.Clone(keys), keys[7]), "a")
	nameless := captions(keys, "a")
	nameless.rows[3].Fields = []writer.Field{{Name: "", Data: []byte("x")}}
	layer := mem.New()
	if _, err := writer.AddLayer(t.Context(), layer, base, captions(keys, "a"), writer.LayerOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store, base objstore.Store
		src         *rowsOf
		opt         writer.LayerOptions
		is          error
		text        string
	}{
		"missing":     {mem.New(), base, captions(keys[1:90], "a"), writer.LayerOptions{}, writer.ErrMissingRow, `11 in all, the first is "` + keys[0] + `" (number 0)`},
		"unknown":     {mem.New(), base, captions(append([]string{"other"}, keys...), "a"), writer.LayerOptions{}, writer.ErrUnknownKey, "row 1"},
		"twice":       {mem.New(), base, twice, writer.LayerOptions{}, format.ErrDuplicate, "row 8"},
		"empty field": {mem.New(), base, nameless, writer.LayerOptions{}, format.ErrName, "row 4"},
		"few rows":    {mem.New(), base, captions(keys[:99], "a"), writer.LayerOptions{ByPlace: true}, writer.ErrMissingRow, "number 99"},
		"many rows":   {mem.New(), base, twice, writer.LayerOptions{ByPlace: true}, format.ErrMismatch, "more rows"},
		"of a layer":  {mem.New(), layer, captions(keys, "a"), writer.LayerOptions{}, format.ErrMismatch, "is a layer itself"},
		"over a set":  {base, base, captions(keys, "a"), writer.LayerOptions{Pack: writer.Options{Mode: writer.ModeOverwrite}}, writer.ErrNotLayer, ""},
		"there":       {layer, base, captions(keys, "a"), writer.LayerOptions{}, writer.ErrExists, ""},
		"covered":     {layer, base, captions(keys, "a"), writer.LayerOptions{Pack: writer.Options{Mode: writer.ModeAppend}}, writer.ErrEmpty, "covers all"},
		"no base":     {mem.New(), mem.New(), captions(keys, "a"), writer.LayerOptions{}, nil, "no data set"},
		"not stacked": {mem.New(), base, captions(keys, "a"), writer.LayerOptions{Pack: writer.Options{Layout: writer.LayoutStacked}}, writer.ErrLayout, ""},
	} {
		before := objects(t, c.store)
		c.src.at = 0
		_, err := writer.AddLayer(t.Context(), c.store, c.base, c.src, c.opt)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok := objects(t, c.store)[format.ManifestName]; ok && len(before) == 0 {
			t.Errorf("%s: published", name)
		}
	}
	var left []string
	res, err := writer.AddLayer(t.Context(), mem.New(), base, captions(append([]string{"other"}, keys...), "a"), writer.LayerOptions{SkipUnknown: true,
		Skipped: func(e *writer.SampleError) { left = append(left, e.Key) }})
	if err != nil || res.Unknown != 1 || !slices.Equal(left, []string{"other"}) {
		t.Errorf("%+v, %q, %v", res, left, err)
	}
}

// TestLayerGolden: the golden layer, which the second reader reads as a data set, is one of a base
// of two shards, and replaces a field.
func TestLayerGolden(t *testing.T) {
	st := localStore(t, "../testdata/spec/golden-layer")
	l := tablesAt(t, st)
	if b := l.Base; b == nil || b.Shards != 2 || b.Samples != 5 || !slices.Equal(b.Replaces, []string{"txt"}) {
		t.Fatalf("%+v", l.Base)
	}
	keys, fields := layerRows(t, st)
	if len(keys) != 5 || string(fields["k2"]["caption.txt"]) != "two" || len(fields["k3"][""]) != 0 || len(fields["k3"]) != 1 {
		t.Errorf("%q", fields)
	}
}
