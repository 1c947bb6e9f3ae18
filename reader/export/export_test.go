package export

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// some returns n samples of several shapes, some of them with long names.
func some(n int) (samples []testset.Sample) {
	for i := range n {
		s := testset.Sample{Key: fmt.Sprintf("dir%d/%05d", i%3, i)}
		if i%11 == 4 {
			s.Key += "-" + strings.Repeat("long/", 40) + "end"
		}
		if i%4 != 1 {
			s.Fields = append(s.Fields, testset.Field{Name: "jpg", Data: bytes.Repeat([]byte{byte(i), 3}, i*7%900)})
		}
		s.Fields = append(s.Fields, testset.Field{Name: "seg.png", Data: []byte(fmt.Sprint("mask ", i))})
		samples = append(samples, s)
	}
	return samples
}

// short returns keys that wids can read.
func short(samples []testset.Sample) []testset.Sample {
	for i := range samples {
		samples[i].Key, _, _ = strings.Cut(samples[i].Key, "-")
	}
	return samples
}

var packings = map[string]testset.Options{
	"zstd":   {BlockSize: 3000, ShardSize: 30000},
	"frames": {BlockSize: 6000, FrameSize: 1500, ShardSize: 40000},
	"plain":  {BlockSize: 3000, FrameSize: 2048, ShardSize: 30000, Plain: true},
	"one":    {},
}

func build(t testing.TB, samples []testset.Sample, o testset.Options) *mem.Store {
	t.Helper()
	store := mem.New()
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
		t.Fatal(err)
	}
	return store
}

func open(t testing.TB, store objstore.Store) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func get(t testing.TB, store objstore.Store, name string) []byte {
	t.Helper()
	data, _, err := objstore.ReadAll(t.Context(), store, name, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func objects(t testing.TB, store objstore.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		out[info.Name] = string(get(t, store, info.Name))
	}
	return out
}

// TestForms: the archives contain what was packed, and the indexes locate it.
func TestForms(t *testing.T) {
	for kind, o := range packings {
		for _, form := range []Form{Tar, DALI, WIDS} {
			samples := some(150)
			if form == WIDS {
				samples = short(samples)
			}
			t.Run(kind+"/"+string(form), func(t *testing.T) {
				d, to := open(t, build(t, samples, o)), mem.New()
				var last Progress
				res, err := Run(t.Context(), d, to, Options{Form: form, Parallel: 3, Progress: func(p Progress) { last = p }})
				if err != nil {
					t.Fatal(err)
				}
				if res.Samples != 150 || res.Found != 0 || len(res.Shards) != d.NumShards() || last.Bytes != res.Bytes || last.Shards != int64(len(res.Shards)) {
					t.Errorf("%+v, progress %+v", res, last)
				}
				checkArchives(t, to, res, samples, form)
			})
		}
	}
}

// checkArchives reads an export with archive/tar, and compares the indexes with it.
func checkArchives(t *testing.T, to objstore.Store, res *Result, samples []testset.Sample, form Form) {
	t.Helper()
	n := 0
	files := 1 // the list
	for _, a := range res.Shards {
		data := get(t, to, a.Name)
		files++
		r := bytes.NewReader(data)
		in := tar.NewReader(r)
		var lines [][]string
		first := n
		for n < first+int(a.Samples) {
			var line []string
			for _, f := range samples[n].Fields {
				h, err := in.Next()
				if err != nil {
					t.Fatal(err)
				}
				at := len(data) - r.Len()
				got, err := io.ReadAll(in)
				if err != nil || h.Name != samples[n].Key+"."+f.Name || !bytes.Equal(got, f.Data) {
					t.Fatalf("%s: member %s of %d bytes, %v; want %s.%s", a.Name, h.Name, len(got), err, samples[n].Key, f.Name)
				}
				line = append(line, f.Name, fmt.Sprint(at), fmt.Sprint(len(got)), h.Name)
			}
			lines = append(lines, line)
			n++
		}
		if _, err := in.Next(); !errors.Is(err, io.EOF) || r.Len() != 0 {
			t.Errorf("%s goes on: %v, %d bytes left", a.Name, err, r.Len())
		}
		if form != DALI {
			continue
		}
		files++
		want := fmt.Sprintf("v1.2 %d\n", len(lines))
		for _, line := range lines {
			want += strings.Join(line, " ") + "\n"
		}
		if got := string(get(t, to, strings.TrimSuffix(a.Name, ".tar")+".idx")); got != want {
			t.Errorf("%s has the index\n%s\nwant\n%s", a.Name, got, want)
		}
	}
	if n != len(samples) {
		t.Errorf("%d samples of %d", n, len(samples))
	}
	if form == WIDS {
		files++
		var index struct {
			Kind      string `json:"__kind__"`
			Version   int    `json:"wids_version"`
			Shardlist []struct {
				URL, MD5sum        string
				Nsamples, Filesize int64
			}
		}
		if err := json.Unmarshal(get(t, to, WIDSName), &index); err != nil || index.Kind != "wids-shard-index-v1" || index.Version != 1 || len(index.Shardlist) != len(res.Shards) {
			t.Fatalf("%+v, %v", index, err)
		}
		for i, s := range index.Shardlist {
			data := get(t, to, s.URL)
			if s.URL != res.Shards[i].Name || s.Filesize != int64(len(data)) || s.Nsamples != int64(res.Shards[i].Samples) || s.MD5sum != md5Of(data) {
				t.Errorf("%+v", s)
			}
		}
	}
	var list Result
	if err := json.Unmarshal(get(t, to, listName(form)), &list); err != nil || list.Samples != res.Samples || len(list.Shards) != len(res.Shards) || list.Digest != res.Digest {
		t.Errorf("%+v, %v", list, err)
	}
	if got := objects(t, to); len(got) != files {
		t.Errorf("objects %q, want %d", slices.Sorted(maps.Keys(got)), files)
	}
}

// TestAgain: an export that was interrupted at any operation can be repeated, with the same result;
// forms share a place.
func TestAgain(t *testing.T) {
	samples := short(some(100))
	d := open(t, build(t, samples, packings["zstd"]))
	for _, form := range []Form{DALI, WIDS} {
		whole := mem.New()
		if _, err := Run(t.Context(), d, whole, Options{Form: form}); err != nil {
			t.Fatal(err)
		}
		want := objects(t, whole)
		for k := 0; ; k++ {
			to := mem.New()
			_, err := Run(t.Context(), d, storetest.NewFaulty(to, storetest.Fault{At: k, After: k%2 == 1, Kill: k%3 == 0}), Options{Form: form})
			if err == nil {
				break
			}
			if _, err := to.Stat(t.Context(), listName(form)); !errors.Is(err, fs.ErrNotExist) && len(objects(t, to)) != len(want) {
				t.Fatalf("operation %d failed, and the list is there: %v", k, err)
			}
			before := 0
			for name := range objects(t, to) {
				if strings.HasSuffix(name, ".tar") {
					before++
				}
			}
			res, err := Run(t.Context(), d, to, Options{Form: form, Parallel: 2})
			if err != nil || res.Found != before || !maps.Equal(objects(t, to), want) {
				t.Fatalf("after a failure of operation %d: %+v, %v", k, res, err)
			}
		}
		res, err := Run(t.Context(), d, whole, Options{Form: form})
		if err != nil || res.Found != len(res.Shards) || !maps.Equal(objects(t, whole), want) {
			t.Errorf("done again: %+v, %v", res, err)
		}
		if _, err := Run(t.Context(), d, whole, Options{Form: Tar}); err != nil {
			t.Errorf("another form: %v", err)
		}
	}
}

// TestInPlace: the shards of a plain data set are the archives.
// blind says of each object once that it is not there, as to an export that another one overtakes.
type blind struct {
	objstore.Store
	mu   sync.Mutex
	seen map[string]bool
}

func (b *blind) Stat(ctx context.Context, name string) (objstore.Info, error) {
	b.mu.Lock()
	before := b.seen[name]
	b.seen[name] = true
	b.mu.Unlock()
	if !before {
		return objstore.Info{}, fs.ErrNotExist
	}
	return b.Store.Stat(ctx, name)
}

// TestTwoAtOnce: an export that another equal one overtakes succeeds with the same result; one of
// other data fails.
func TestTwoAtOnce(t *testing.T) {
	tokens := []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: "x.npy", Data: array("|u1", []int64{2}, 1, 2)}}}}
	others := []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: "x.npy", Data: array("|u1", []int64{2}, 1, 3)}}}}
	for _, form := range []Form{Tar, DALI, WIDS, energon, hf, megatron} {
		store := mem.New()
		first, err := Run(t.Context(), open(t, build(t, tokens, testset.Options{})), store, Options{Form: form})
		if err != nil {
			t.Fatal(form, err)
		}
		before := objects(t, store)
		second, err := Run(t.Context(), open(t, build(t, tokens, testset.Options{})), &blind{Store: store, seen: map[string]bool{}}, Options{Form: form})
		if err != nil || second.Bytes != first.Bytes || second.Samples != first.Samples || second.Found != len(second.Shards) {
			t.Errorf("%s: %+v, %v; want %+v", form, second, err, first)
		}
		if !maps.Equal(before, objects(t, store)) {
			t.Error(form, "the objects have changed")
		}
		_, err = Run(t.Context(), open(t, build(t, others, testset.Options{})), &blind{Store: store, seen: map[string]bool{}}, Options{Form: form})
		if !errors.Is(err, ErrExists) {
			t.Error(form, err)
		}
	}
}

func TestInPlace(t *testing.T) {
	store := build(t, some(100), packings["plain"])
	d := open(t, store)
	res, err := Run(t.Context(), d, store, Options{Form: DALI})
	if err != nil || res.Found != d.NumShards() {
		t.Fatal(res, err)
	}
	if res, err = Run(t.Context(), d, store, Options{}); err != nil || res.Found != d.NumShards() {
		t.Fatal(res, err)
	}
	if card := string(get(t, store, cardName)); !strings.Contains(card, `path: "*.tar"`) {
		t.Error(card)
	}
	if r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: true}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRefused: existing objects with other bytes, names that DALI cannot hold, and damage are
// errors.
func TestRefused(t *testing.T) {
	samples := some(60)
	d := open(t, build(t, samples, packings["zstd"]))
	for name, change := range map[string]func(p []byte) []byte{
		"shorter": func(p []byte) []byte { return p[:len(p)-512] },
		"flipped": func(p []byte) []byte { p[700] ^= 1; return p },
		"its end": func(p []byte) []byte { p[len(p)-1] = 1; return p },
	} {
		to := mem.New()
		if _, err := Run(t.Context(), d, to, Options{}); err != nil {
			t.Fatal(err)
		}
		archive := slices.Collect(maps.Keys(objects(t, to)))
		slices.Sort(archive)
		archive = slices.DeleteFunc(archive, func(name string) bool { return !strings.HasSuffix(name, ".tar") })
		data := change(slices.Clone(get(t, to, archive[0])))
		if _, err := objstore.Put(t.Context(), to, archive[0], data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), d, to, Options{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), archive[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range map[string]testset.Sample{
		"key":      {Key: "a b", Fields: []testset.Field{{Name: "jpg"}}},
		"newline":  {Key: "a\nb", Fields: []testset.Field{{Name: "jpg"}}},
		"field":    {Key: "a", Fields: []testset.Field{{Name: "a jpg"}}},
		"no field": {Key: "a", Fields: []testset.Field{{Name: ""}}},
	} {
		bad, to := open(t, build(t, []testset.Sample{s}, testset.Options{})), mem.New()
		if _, err := Run(t.Context(), bad, to, Options{Form: DALI}); !errors.Is(err, ErrName) || len(objects(t, to)) != 0 {
			t.Errorf("%s: %v, and %d objects", name, err, len(objects(t, to)))
		}
		if _, err := Run(t.Context(), bad, to, Options{}); err != nil {
			t.Errorf("%s as tar: %v", name, err)
		}
	}
	deep := strings.Repeat("deep/", 15) // 75 bytes: with the rest below, in ustar's prefix and name or in a separate record
	for name, c := range map[string]struct {
		key, field string
		fits       bool
	}{
		"100 bytes":     {deep + strings.Repeat("k", 21), "jpg", true},
		"prefix":        {deep + strings.Repeat("k", 22), "jpg", false},
		"long record":   {strings.Repeat("k", 120), "jpg", false},
		"only one long": {"k", strings.Repeat("f", 99), false},
		"not UTF-8":     {"k\xff", "jpg", false},
		"no field":      {"k", "", false},
	} {
		s := []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: "txt"}}}, {Key: c.key, Fields: []testset.Field{{Name: "aa"}, {Name: c.field}}}}
		if c.field == "" {
			s[1].Fields = s[1].Fields[1:]
		}
		from, to := open(t, build(t, s, testset.Options{})), mem.New()
		_, err := Run(t.Context(), from, to, Options{Form: WIDS})
		if c.fits && err != nil || !c.fits && (!errors.Is(err, ErrName) || len(objects(t, to)) != 0) {
			t.Errorf("wids, %s: %v, and %d objects", name, err, len(objects(t, to)))
		}
	}
	if _, err := Run(t.Context(), d, mem.New(), Options{Form: "zip"}); !errors.Is(err, ErrForm) {
		t.Error(err)
	}
	store := build(t, samples, packings["zstd"])
	info, err := open(t, store).Shard(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	data := slices.Clone(get(t, store, info.Name))
	data[100] ^= 1
	if _, err := objstore.Put(t.Context(), store, info.Name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	to := mem.New()
	_, err = Run(t.Context(), open(t, store), to, Options{})
	if _, there := objects(t, to)[strings.TrimSuffix(info.Name, ".zst")]; !errors.Is(err, format.ErrCorrupt) || there {
		t.Errorf("damage: %v; the archive is there: %v", err, there)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, d, mem.New(), Options{Parallel: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestTarfile: Python's tarfile and GNU tar read the whole archives without a warning.
func TestTarfile(t *testing.T) {
	programs.Need(t, "python3")
	samples := some(120)
	dir := t.TempDir()
	to, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run(t.Context(), open(t, build(t, samples, packings["zstd"])), to, Options{Form: DALI})
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, s := range samples {
		for _, f := range s.Fields {
			want += fmt.Sprintf("%s.%s %d\n", s.Key, f.Name, len(f.Data))
		}
	}
	const list = `
import sys, tarfile
for name in sys.argv[1:]:
    with tarfile.open(name, "r:") as t:
        where = {}
        for m in t:
            assert m.isreg() and len(t.extractfile(m).read()) == m.size
            where[m.name] = (m.offset_data, m.size)
            print(m.name, m.size)
    lines = open(name[:-4] + ".idx").read().splitlines()
    assert lines[0] == "v1.2 %d" % (len(lines) - 1)
    for line in lines[1:]:
        w = line.split(" ")
        for ext, off, size, name in zip(w[::4], w[1::4], w[2::4], w[3::4]):
            assert name.endswith("." + ext) and where.pop(name) == (int(off), int(size)), name
    assert not where
`
	args := []string{"-c", list}
	got := ""
	for _, a := range res.Shards {
		args = append(args, filepath.Join(dir, a.Name))
		text, err := exec.Command("tar", "-tf", filepath.Join(dir, a.Name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		got += string(text)
	}
	text, err := exec.Command("python3", args...).CombinedOutput()
	if err != nil || string(text) != want {
		t.Errorf("%v: %d bytes, want %d: %.300s", err, len(text), len(want), text)
	}
	if lines := strings.Count(got, "\n"); lines != strings.Count(want, "\n") {
		t.Errorf("tar lists %d members", lines)
	}
	if _, err := os.Stat(filepath.Join(dir, listName(DALI))); err != nil {
		t.Error(err)
	}
}

func md5Of(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}
