package reshard

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// TestReshard: cut anew, and back again, a data set has the samples, attributes and identity that
// it had.
func TestReshard(t *testing.T) {
	samples := some("a", 500)
	first := pack(t, samples, small)
	d := open(t, first, reader.Options{Workers: 2})
	src := source(t, Options{}, d)
	if n, size := src.Total(); n != 500 || size == 0 {
		t.Errorf("total is %d samples, %d bytes", n, size)
	}
	other, res, err := repack(t, src, writer.Options{BlockSize: 16 << 10, ShardSize: 100 << 10, Level: codec.LevelFastest})
	if err != nil || res.Samples != 500 || res.Skipped != 0 {
		t.Fatal(res, err)
	}
	got, _ := drain(t, source(t, Options{}, open(t, other, reader.Options{})))
	same(t, got, samples)
	if digest(t, other) == d.Digest() {
		t.Error("cut otherwise, the digest is the same")
	}
	back, _, err := repack(t, source(t, Options{}, open(t, other, reader.Options{})), small)
	if err != nil || digest(t, back) != d.Digest() {
		t.Errorf("cut as before, the digest is another: %v", err)
	}
	plain, _, err := repack(t, source(t, Options{}, d), writer.Options{BlockSize: 4096, ShardSize: 40 << 10, Plain: true})
	if err != nil || digest(t, plain) != d.Digest() {
		t.Errorf("cut as before into plain tars, the digest is another: %v", err)
	}
}

// TestMerge: data sets follow each other; keys that are in two of them are refused.
func TestMerge(t *testing.T) {
	a, b, c := some("a", 130), some("b", 1), some("c", 77)
	da, db, dc := open(t, pack(t, a, small), reader.Options{}), open(t, pack(t, b, small), reader.Options{}), open(t, pack(t, c, small), reader.Options{})
	got, _ := drain(t, source(t, Options{}, da, db, dc))
	same(t, got, slices.Concat(a, b, c))
	if _, _, err := repack(t, source(t, Options{}, da, dc), small); err != nil {
		t.Error(err)
	}
	twice := open(t, pack(t, a[100:110], small), reader.Options{})
	if _, _, err := repack(t, source(t, Options{}, da, twice), small); !errors.Is(err, format.ErrDuplicate) {
		t.Errorf("keys that come twice: %v", err)
	}
	if _, err := New(t.Context(), []*reader.Dataset{da, db, da}, Options{}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a data set given twice: %v", err)
	}
	if _, err := New(t.Context(), nil, Options{}); err == nil {
		t.Error("no data set")
	}
}

// TestCursor: a seek to the cursor before any sample gives the rest, also in another source over
// the same data sets.
func TestCursor(t *testing.T) {
	a, b := some("a", 70), some("b", 45)
	da, db := open(t, pack(t, a, small), reader.Options{Workers: 1}), open(t, pack(t, b, small), reader.Options{Workers: 1})
	for name, opt := range map[string]Options{"all": {}, "some": {Where: []string{"n<10"}, Share: Share{From: 0, To: 60 * percent}}} {
		src := source(t, opt, da, db)
		whole, _ := drain(t, source(t, opt, da, db))
		for i := 0; ; i++ {
			cursor := src.Cursor()
			again := source(t, opt, da, db)
			if again.Fingerprint() != src.Fingerprint() {
				t.Fatal("another fingerprint for the same")
			}
			if err := again.Seek(t.Context(), cursor); err != nil {
				t.Fatal(err)
			}
			rest, _ := drain(t, again)
			same(t, rest, whole[i:])
			if _, err := src.Next(t.Context()); errors.Is(err, io.EOF) {
				if i != len(whole) {
					t.Fatalf("%s: it ends behind %d of %d", name, i, len(whole))
				}
				break
			}
		}
	}
	for _, cursor := range []string{"", "0", "0:71", "2:0", "-1:0", "0:-1", "a:b", "0:1:2", "0:18446744073709551616"} {
		if err := source(t, Options{}, da, db).Seek(t.Context(), cursor); err == nil {
			t.Errorf("cursor %q is taken", cursor)
		}
	}
}

// TestSplit: parts are disjoint, in order, and together the whole.
func TestSplit(t *testing.T) {
	a, b := some("a", 61), some("b", 40)
	da, db := open(t, pack(t, a, small), reader.Options{}), open(t, pack(t, b, small), reader.Options{})
	for _, parts := range []int{1, 2, 3, 7, 150} {
		var got []writer.Sample
		total := int64(0)
		for part := range parts {
			src := source(t, Options{}, da, db)
			if err := src.Split(part, parts); err != nil {
				t.Fatal(err)
			}
			n, _ := src.Total()
			before := len(got)
			begin := src.Cursor()
			more, _ := drain(t, src)
			if got = append(got, more...); int64(len(got)-before) != n {
				t.Fatalf("part %d of %d has %d samples, %d were told", part, parts, len(got)-before, n)
			}
			total += n
			if err := src.Seek(t.Context(), begin); err != nil {
				t.Fatal(err)
			}
			again, _ := drain(t, src)
			same(t, again, more)
			if n > 0 && begin != "0:0" && src.Seek(t.Context(), "0:0") == nil {
				t.Errorf("part %d of %d seeks before its beginning", part, parts)
			}
		}
		same(t, got, slices.Concat(a, b))
		if total != 101 {
			t.Errorf("%d parts tell %d samples", parts, total)
		}
	}
	for _, bad := range [][2]int{{0, 0}, {-1, 2}, {2, 2}} {
		if source(t, Options{}, da).Split(bad[0], bad[1]) == nil {
			t.Errorf("part %d of %d", bad[0], bad[1])
		}
	}
}

// TestFingerprint: what changes samples changes the fingerprint.
func TestFingerprint(t *testing.T) {
	da, db := open(t, pack(t, some("a", 20), small), reader.Options{}), open(t, pack(t, some("b", 20), small), reader.Options{})
	seen := map[string]string{}
	for name, src := range map[string]writer.Splitter{
		"a": source(t, Options{}, da), "b": source(t, Options{}, db), "ab": source(t, Options{}, da, db), "ba": source(t, Options{}, db, da),
		"fields": source(t, Options{Fields: []string{"txt"}}, da), "rename": source(t, Options{Rename: map[string]string{"txt": "t"}}, da),
		"where": source(t, Options{Where: []string{"n>0"}}, da), "share": source(t, Options{Share: Share{To: 5}}, da),
		"salt": source(t, Options{Share: Share{To: 5, Salt: "x"}}, da), "include": source(t, Options{Include: []string{"*"}}, da),
		"exclude": source(t, Options{Exclude: []string{"*"}}, da),
	} {
		if other, twice := seen[src.Fingerprint()]; twice {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[src.Fingerprint()] = name
	}
}

// TestClasses: names of classes travel, grow, and are refused where they would be mixed up.
func TestClasses(t *testing.T) {
	with := func(name, classes string) *reader.Dataset {
		meta := format.Metadata{"note": "same", "classes": classes}
		if classes == "" {
			delete(meta, "classes")
		}
		store, _, err := repack(t, &withMeta{source(t, Options{}, open(t, pack(t, some(name, 20), small), reader.Options{})), meta}, small)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, store, reader.Options{})
	}
	two, three, other, none := with("a", `["cat","dog"]`), with("b", `["cat","dog","emu"]`), with("c", `["dog","cat"]`), with("d", "")
	for _, c := range []struct {
		sets []*reader.Dataset
		want string
	}{
		{[]*reader.Dataset{two}, `["cat","dog"]`}, {[]*reader.Dataset{two, three}, `["cat","dog","emu"]`},
		{[]*reader.Dataset{three, two, none}, `["cat","dog","emu"]`}, {[]*reader.Dataset{none}, ""},
	} {
		meta := source(t, Options{}, c.sets...).Meta()
		if meta["classes"] != c.want || meta["note"] != "same" || meta["tool"] != "" || meta["source"] != "" {
			t.Errorf("metadata %v, want classes %s", meta, c.want)
		}
	}
	if _, err := New(t.Context(), []*reader.Dataset{two, other}, Options{}); !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), `class 0 is "cat"`) {
		t.Errorf("classes that are mixed up: %v", err)
	}
	if _, err := New(t.Context(), []*reader.Dataset{other}, Options{Classes: []string{"cat"}}); !errors.Is(err, format.ErrMismatch) {
		t.Errorf("classes unlike those that are there: %v", err)
	}
}

// TestFeatures: types of fields stay where all data sets have the same, under new names too.
func TestFeatures(t *testing.T) {
	const image, text = `{"_type":"Image"}`, `{"dtype":"string","_type":"Value"}`
	with := func(name, features string) *reader.Dataset {
		meta := format.Metadata{kinds.FeaturesKey: features}
		store, _, err := repack(t, &withMeta{source(t, Options{}, open(t, pack(t, some(name, 20), small), reader.Options{})), meta}, small)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, store, reader.Options{})
	}
	same := `{"jpg":` + image + `,"txt":` + text + `}`
	both, one, none, again := with("a", same), with("b", `{"jpg":`+image+`,"txt":`+image+`}`), with("c", "{"), with("d", same)
	for _, c := range []struct {
		opt  Options
		sets []*reader.Dataset
		want string
	}{
		{Options{}, []*reader.Dataset{both, again}, same},
		{Options{Rename: map[string]string{"txt": "a.txt"}}, []*reader.Dataset{both}, `{"a.txt":` + text + `,"jpg":` + image + `}`},
		{Options{Fields: []string{"txt"}}, []*reader.Dataset{both}, `{"txt":` + text + `}`},
		{Options{}, []*reader.Dataset{both, one}, `{"jpg":` + image + `}`},
		{Options{}, []*reader.Dataset{both, one, again}, `{"jpg":` + image + `}`},
		{Options{}, []*reader.Dataset{one, none}, ""},
	} {
		if got := source(t, c.opt, c.sets...).Meta()[kinds.FeaturesKey]; got != c.want {
			t.Errorf("%+v: %s, want %s", c.opt, got, c.want)
		}
	}
}

type withMeta struct {
	writer.Splitter
	meta format.Metadata
}

func (s *withMeta) Meta() format.Metadata { return s.meta }

// TestDamaged: a damaged block costs its samples and no others, and each of them is reported by its
// key.
func TestDamaged(t *testing.T) {
	samples := some("a", 300)
	store := pack(t, samples, small)
	d := open(t, store, reader.Options{})
	info, err := d.Shard(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := objstore.ReadAll(t.Context(), store, info.Name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	data = slices.Clone(data)
	data[200] ^= 4
	if _, err := objstore.Put(t.Context(), store, info.Name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	first, _ := d.FirstSample(t.Context(), 1)
	rows, _ := d.Rows(t.Context(), 1)
	lost := keysOf(samples[first : first+uint64(rows[0].Samples)])
	bad := open(t, store, reader.Options{})
	got, failed := drain(t, source(t, Options{}, bad))
	if !slices.Equal(failed, lost) || len(got)+len(lost) != len(samples) {
		t.Errorf("%d samples, lost %q, want %q", len(got), failed, lost)
	}
	_, failed = drain(t, source(t, Options{Include: []string{lost[1]}}, bad))
	if !slices.Equal(failed, lost[1:2]) {
		t.Errorf("of the samples wanted these are lost: %q", failed)
	}
	_, _, err = repack(t, source(t, Options{}, bad), small)
	var at *format.PosError
	if !errors.Is(err, format.ErrCorrupt) || !errors.As(err, &at) || at.Shard != info.Name || at.Block != 0 {
		t.Errorf("pack of a damaged data set: %v", err)
	}
	skip := small
	skip.Faults.Skip = true
	_, res, err := repack(t, source(t, Options{}, bad), skip)
	if err != nil || res.Skipped != int64(len(lost)) || int(res.Samples) != len(samples)-len(lost) {
		t.Errorf("with skip: %+v, %v", res, err)
	}
	for i := range int(rows[0].Samples) { // a cursor between lost samples
		src := source(t, Options{}, bad)
		if err := src.Seek(t.Context(), fmt.Sprintf("0:%d", first+uint64(i))); err != nil {
			t.Fatal(err)
		}
		if _, failed := drain(t, src); len(failed) != len(lost)-i {
			t.Errorf("from sample %d of the block %d are lost", i, len(failed))
		}
	}
}

// TestLarge: blocks that memory does not hold come through, whole and unharmed.
func TestLarge(t *testing.T) {
	var samples []writer.Sample
	for i, size := range []int{100, 300 << 10, 17 << 20, 7, 0, 1 << 20} {
		samples = append(samples, writer.Sample{Key: fmt.Sprintf("k%d", i), Fields: []writer.Field{
			{Name: "bin", Data: bytes.Repeat([]byte{byte(i), 1, 2}, size/3+1)[:size]}, {Name: "txt", Data: []byte{byte(i)}}}})
	}
	store := pack(t, samples, writer.Options{})
	d := open(t, store, reader.Options{Memory: 8 << 20})
	got, failed := drain(t, source(t, Options{}, d))
	if failed != nil {
		t.Fatal(failed)
	}
	same(t, got, samples)
	for i := range samples {
		src := source(t, Options{}, d)
		if err := src.Seek(t.Context(), fmt.Sprintf("0:%d", i)); err != nil {
			t.Fatal(err)
		}
		in, err := src.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, []writer.Sample{detach(t, in)}, samples[i:i+1])
	}
	again, _, err := repack(t, source(t, Options{}, d), writer.Options{Memory: 8 << 20})
	if err != nil || digest(t, again) != d.Digest() {
		t.Errorf("packed again: %v", err)
	}
	in, err := source(t, Options{Include: []string{"k2"}}, d).Next(t.Context())
	if err != nil || in.Fields[0].Payload == nil {
		t.Fatal(in.Key, err)
	}
	r, err := in.Fields[0].Payload.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil { // in the middle: goleak reports goroutines that have not ended
		t.Fatal(err)
	}
}

// TestCanceled: the end of the context is returned, and the place does not change.
func TestCanceled(t *testing.T) {
	samples := some("a", 300)
	src := source(t, Options{}, open(t, pack(t, samples, small), reader.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	var got []writer.Sample
	for range 150 {
		in, err := src.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, detach(t, in))
	}
	cancel()
	if _, err := src.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	rest, _ := drain(t, src)
	same(t, append(got, rest...), samples)
}

// TestResume: a pack that was stopped resumes, with the result of one that was not.
func TestResume(t *testing.T) {
	samples := some("a", 600)
	d := open(t, pack(t, samples, small), reader.Options{})
	opt := Options{Share: Share{From: 10 * percent, To: 95 * percent}}
	want, _, err := repack(t, source(t, opt, d), writer.Options{BlockSize: 4096, ShardSize: 20 << 10})
	if err != nil {
		t.Fatal(err)
	}
	store, res, err := repackResumed(t, source(t, opt, d), source(t, opt, d), 260)
	if err != nil || res.Adopted == 0 || res.Written == 0 || digest(t, store) != digest(t, want) {
		t.Errorf("%+v, %v", res, err)
	}
	if _, _, err := repackResumed(t, source(t, opt, d), source(t, Options{}, d), 260); !errors.Is(err, writer.ErrSource) {
		t.Errorf("resumed with other options: %v", err)
	}
}

// repackResumed packs the given number of samples of one source, and resumes with another.
func repackResumed(t *testing.T, first, second writer.Splitter, samples int) (objstore.Store, *writer.Result, error) {
	t.Helper()
	o := writer.Options{BlockSize: 4096, ShardSize: 20 << 10}
	broken := errors.New("the machine stops")
	store := pack(t, some("z", 1), writer.Options{Name: "other"})
	if err := store.Delete(t.Context(), format.ManifestName); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Pack(t.Context(), store, &stopping{first, samples, broken}, o); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	o.Resume = true
	res, err := writer.Pack(t.Context(), store, second, o)
	return store, res, err
}

// stopping is a source that fails after a number of samples.
type stopping struct {
	writer.Splitter
	left int
	err  error
}

func (s *stopping) Next(ctx context.Context) (writer.Sample, error) {
	if s.left--; s.left < 0 {
		return writer.Sample{}, s.err
	}
	return s.Splitter.Next(ctx)
}

// TestFailing: a store that fails is no damage: the pack ends, whatever is skipped, and the place
// stays for another try.
func TestFailing(t *testing.T) {
	samples := some("a", 120)
	inner := pack(t, samples, small)
	for k := 0; ; k += 3 {
		store := storetest.NewFaulty(inner, storetest.Fault{At: k})
		d, err := reader.Open(t.Context(), store, reader.Options{Workers: 1})
		if err != nil {
			if !errors.Is(err, storetest.ErrInjected) {
				t.Fatal(err)
			}
			continue
		}
		src, err := New(t.Context(), []*reader.Dataset{d}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []writer.Sample
		failed := 0
		for {
			in, err := src.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			var se *writer.SampleError
			if errors.As(err, &se) || err != nil && !errors.Is(err, storetest.ErrInjected) {
				t.Fatalf("operation %d: %v", k, err)
			}
			if err != nil {
				if failed++; failed > 1 {
					t.Fatalf("operation %d: it fails again: %v", k, err)
				}
				continue
			}
			got = append(got, detach(t, in))
		}
		same(t, got, samples)
		src.Close()
		d.Close()
		if failed == 0 && !store.Fired() {
			break
		}
	}
}

// TestForeign: tars of another tool, indexed where they lie, are packed as the tars themselves
// would be.
func TestForeign(t *testing.T) {
	store, own := mem.New(), []writer.Sample{}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := range 90 {
		s := writer.Sample{Key: fmt.Sprintf("dir/%03d", i)}
		for _, f := range []string{"txt", "jpg"} { // not in the order of their names
			data := bytes.Repeat([]byte{byte(i)}, i*13)
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./" + s.Key + "." + f, Size: int64(len(data)), Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
			s.Fields = append([]writer.Field{{Name: f, Data: data}}, s.Fields...)
		}
		own = append(own, s)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), store, "x.tar", buf.Bytes(), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Index(t.Context(), store, []string{"x.tar"}, writer.Options{BlockSize: 4096}); err != nil {
		t.Fatal(err)
	}
	d := open(t, store, reader.Options{})
	got, _ := drain(t, source(t, Options{}, d))
	same(t, got, own)
	packed, _, err := repack(t, source(t, Options{}, d), small)
	if err != nil || digest(t, packed) != digest(t, pack(t, own, small)) {
		t.Errorf("packed, it is another data set: %v", err)
	}
	src := source(t, Options{}, d)
	if err := src.Seek(t.Context(), "0:41"); err != nil {
		t.Fatal(err)
	}
	got, _ = drain(t, src)
	same(t, got, own[41:])
}
