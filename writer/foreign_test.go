package writer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
)

// foreignMember is a file of an archive.
type foreignMember struct{ name, data string }

// foreignMembers are n samples as other tools leave them: members of a sample in any order, long
// names, empty files.
func foreignMembers(prefix string, n int) (members []foreignMember) {
	for i := range n {
		key := fmt.Sprintf("%s/%04d", prefix, i)
		if i%9 == 4 {
			key = fmt.Sprintf("%s/%s%04d", prefix, strings.Repeat("a long name/", 15), i)
		}
		txt := foreignMember{key + ".txt", fmt.Sprint("text ", i)}
		jpg := foreignMember{key + ".jpg", strings.Repeat(string(rune('a'+i%26)), i*37%1500)}
		switch i % 4 {
		case 0:
			members = append(members, txt, jpg)
		case 1:
			members = append(members, jpg, txt)
		case 2:
			members = append(members, txt, foreignMember{key, ""}, jpg)
		default:
			members = append(members, jpg)
		}
	}
	return members
}

// archive is an archive of members, with what else stands in archives of that format between them.
func archive(t testing.TB, f tar.Format, dot string, members []foreignMember) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h *tar.Header, data string) {
		t.Helper()
		h.Format, h.Mode, h.Size = f, 0o644, int64(len(data))
		if f == tar.FormatPAX && h.Typeflag == tar.TypeReg {
			h.ModTime, h.PAXRecords = time.Unix(1, 5e8), map[string]string{"SCHILY.xattr.user.x": "y"}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if f == tar.FormatPAX {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	add(&tar.Header{Typeflag: tar.TypeDir, Name: dot + "dir/"}, "")
	for i, m := range members {
		if i%5 == 3 {
			add(&tar.Header{Typeflag: tar.TypeDir, Name: dot + fmt.Sprint("dir", i, "/")}, "")
		}
		add(&tar.Header{Typeflag: tar.TypeReg, Name: dot + m.name}, m.data)
	}
	add(&tar.Header{Typeflag: tar.TypeDir, Name: dot + "behind/"}, "")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return append(buf.Bytes(), make([]byte, 3*512)...) // tools fill up to a record of 10 KiB
}

// samplesOf groups members as reading is to give them.
func samplesOf(members []foreignMember) (keys []string, fields []map[string]string) {
	for _, m := range members {
		key, field := format.SplitName([]byte(m.name))
		if len(keys) == 0 || keys[len(keys)-1] != string(key) {
			keys, fields = append(keys, string(key)), append(fields, map[string]string{})
		}
		fields[len(fields)-1][string(field)] = m.data
	}
	return keys, fields
}

func putObject(t testing.TB, store objstore.Store, name string, data []byte) {
	t.Helper()
	if _, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func readDataset(t testing.TB, store objstore.Store, o reader.Options) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// checkForeignSample compares what was read with what was archived.
func checkForeignSample(t testing.TB, s *reader.Sample, keys []string, fields []map[string]string) {
	t.Helper()
	got := map[string]string{}
	for i, f := range s.Fields {
		got[string(f.Name)] = string(f.Data)
		if i > 0 && string(f.Name) <= string(s.Fields[i-1].Name) {
			t.Fatalf("sample %q: field %q behind %q", s.Key, f.Name, s.Fields[i-1].Name)
		}
	}
	if n := int(s.Number); string(s.Key) != keys[n] || !maps.Equal(got, fields[n]) {
		t.Fatalf("sample %d is %q with %d fields, want %q with %d", n, s.Key, len(got), keys[n], len(fields[n]))
	}
}

// TestIndex: archives of every format are read in every way in place, and changed archives are
// errors.
func TestIndex(t *testing.T) {
	for f, dot := range map[tar.Format]string{tar.FormatUSTAR: "", tar.FormatPAX: "./", tar.FormatGNU: ""} {
		if testing.Short() && f != tar.FormatUSTAR {
			continue // the same goroutines
		}
		t.Run(f.String()+dot, func(t *testing.T) { testIndex(t, f, dot) })
	}
}

func testIndex(t *testing.T, f tar.Format, dot string) {
	a, b := foreignMembers("a", 130), foreignMembers("b", 1)
	if f == tar.FormatUSTAR { // which has no room for longer names
		for _, members := range [][]foreignMember{a, b} {
			for i := range members {
				members[i].name = strings.Replace(members[i].name, strings.Repeat("a long name/", 15), strings.Repeat("a long name/", 9), 1)
			}
		}
	}
	b = append(b, foreignMember{"b/huge.bin", strings.Repeat("0123456789abcdef", 18<<16)}, foreignMember{"b/huge.txt", "huge"}, foreignMember{"b/last.txt", "x"})
	store, err := local.New(t.TempDir(), local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	putObject(t, store, "x/a.tar", archive(t, f, dot, a))
	putObject(t, store, "b.tar", archive(t, f, dot, b))
	res, err := Index(t.Context(), store, []string{"x/a.tar", "b.tar"}, Options{BlockSize: 8 << 10, ShardSize: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	keys, fields := samplesOf(append(a, b...))
	if res.Samples != uint64(len(keys)) || res.Shards != 2 || res.Written != int64(len(keys)) || res.Adopted != 0 {
		t.Errorf("%+v, want %d samples", res, len(keys))
	}
	d := readDataset(t, store, reader.Options{})
	if r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: true}); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	n := 0
	for s, err := range d.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		checkForeignSample(t, s, keys, fields)
		n++
	}
	if n != len(keys) {
		t.Fatalf("%d samples of %d", n, len(keys))
	}
	for _, shuffle := range []bool{false, true} {
		s, err := d.Stream(t.Context(), reader.StreamOptions{Shuffle: shuffle, Seed: 3, Epochs: 1, GlobalBatch: 16, Tail: "short"})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]bool{}
		for batch, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range batch.Samples {
				checkForeignSample(t, &batch.Samples[i], keys, fields)
				seen[batch.Samples[i].Number] = true
			}
		}
		s.Close()
		if len(seen) != len(keys) {
			t.Fatalf("shuffle %v: %d samples of %d", shuffle, len(seen), len(keys))
		}
	}
	for i, key := range keys {
		numbers, err := d.Lookup(t.Context(), key)
		if err != nil || !slices.Equal(numbers, []uint64{uint64(i)}) {
			t.Fatalf("%q is %v, %v", key, numbers, err)
		}
		for field, want := range fields[i] {
			var got bytes.Buffer
			if err := d.Field(t.Context(), uint64(i), field, &got); err != nil || got.String() != want {
				t.Fatalf("%q.%s has %d bytes, want %d, %v", key, field, got.Len(), len(want), err)
			}
		}
		if err := d.Field(t.Context(), uint64(i), "none", io.Discard); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		var one bytes.Buffer
		if err := d.WriteTar(t.Context(), uint64(i), &one); err != nil {
			t.Fatal(err)
		}
		members := 0
		for in := tar.NewReader(&one); ; members++ {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			_, field := format.SplitName([]byte(h.Name))
			data, err := io.ReadAll(in)
			if err != nil || string(data) != fields[i][string(field)] {
				t.Fatalf("%s: %d bytes, %v", h.Name, len(data), err)
			}
		}
		if members != len(fields[i]) {
			t.Fatalf("%q as a tar has %d members, want %d", key, members, len(fields[i]))
		}
	}
}

// TestIndexFlipped: every bit of an archive and its index is guarded.
func TestIndexFlipped(t *testing.T) {
	whole := mem.New()
	members := foreignMembers("k", 5)
	putObject(t, whole, "a.tar", archive(t, tar.FormatPAX, "", members))
	if _, err := Index(t.Context(), whole, []string{"a.tar"}, Options{BlockSize: 4096}); err != nil {
		t.Fatal(err)
	}
	for name, step := range map[string]int{"a.tar": 331, sidecarOf(t, whole, "a.tar"): 43} {
		data, _, err := objstore.ReadAll(t.Context(), whole, name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if testing.Short() {
			step *= 7
		}
		for bit := 0; bit < 8*len(data); bit += step {
			bad := slices.Clone(data)
			bad[bit/8] ^= 1 << (bit % 8)
			store := whole.Clone()
			putObject(t, store, name, bad)
			d := readDataset(t, store, reader.Options{Workers: 1})
			r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: true})
			if err != nil || r.OK() {
				t.Fatalf("%s: bit %d of byte %d: nothing found, %v", name, bit%8, bit/8, err)
			}
			d.Close()
		}
		for _, n := range []int{0, 1, 511, 512, len(data) - 512, len(data) - 1} {
			store := whole.Clone()
			putObject(t, store, name, data[:n])
			d := readDataset(t, store, reader.Options{Workers: 1})
			for _, deep := range []bool{false, true} {
				if r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: deep}); err != nil || r.OK() {
					t.Fatalf("%s cut to %d bytes, deep %v: nothing found, %v", name, n, deep, err)
				}
			}
		}
	}
}

// TestIndexRefused: an archive that cannot be indexed is an error with the place, and nothing is
// published.
func TestIndexRefused(t *testing.T) {
	good := archive(t, tar.FormatUSTAR, "", foreignMembers("a", 3))
	with := func(names ...string) []byte {
		var members []foreignMember
		for _, n := range names {
			members = append(members, foreignMember{n, "data"})
		}
		return archive(t, tar.FormatUSTAR, "", members)
	}
	link := func(kind byte) []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a.txt"})
		_ = w.WriteHeader(&tar.Header{Typeflag: kind, Name: "b.txt", Linkname: "a.txt"})
		_ = w.Close()
		return buf.Bytes()
	}
	flipped := slices.Clone(good)
	flipped[512+20] ^= 1
	global := func(key, value string) []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{key: value}})
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a.txt"})
		_ = w.Close()
		return buf.Bytes()
	}
	old, err := os.ReadFile("../testdata/corpora/go-tar/v7.tar")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
		is   error
	}{
		"torn apart":     {with("a.txt", "b.txt", "a.jpg"), `key "a": member "a.jpg" belongs to the sample that begins at 512`, format.ErrDuplicate},
		"field twice":    {with("a.txt", "a.txt"), `field "txt" in sample "a"`, format.ErrDuplicate},
		"hard link":      {link(tar.TypeLink), `"b.txt" is a hard link`, nil},
		"symbolic link":  {link(tar.TypeSymlink), "a symbolic link", nil},
		"pipe":           {link(tar.TypeFifo), "a device or pipe", nil},
		"no key":         {with("dir/.txt"), "dir/.txt", format.ErrName},
		"absolute":       {with("/a.txt"), "absolute", format.ErrName},
		"dots":           {with("../a.txt"), "path element", format.ErrName},
		"cut in a file":  {good[:1024+100], "cut", format.ErrCorrupt},
		"cut in between": {with("a.txt")[:512+1024], "cut between two members", format.ErrCorrupt},
		"half an end":    {append(with("a.txt")[:512+1024], make([]byte, 512)...), "inside its end marker", format.ErrCorrupt},
		"joined":         {append(slices.Clone(good), good...), "joined", format.ErrCorrupt},
		"flipped":        {flipped, "checksum mismatch in a tar header", format.ErrCorrupt},
		"no archive":     {bytes.Repeat([]byte("no archive "), 100), "no tar header", format.ErrCorrupt},
		"empty":          {nil, "no end", format.ErrCorrupt},
		"only folders":   {with(), "no samples", ErrEmpty},
		"before POSIX":   {old, "(V7), which an index does not describe: pack it", format.ErrVersion},
		"all one name":   {global("path", "b.txt"), "a global header sets the name or the size of all members", format.ErrVersion},
		"all one size":   {global("size", "7"), "a global header sets", format.ErrVersion},
	} {
		store := mem.New()
		putObject(t, store, "good.tar", good)
		putObject(t, store, "bad.tar", c.data)
		names := []string{"good.tar", "bad.tar"}
		if errors.Is(c.is, ErrEmpty) {
			names = names[1:]
		}
		_, err := Index(t.Context(), store, names, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) || (!errors.Is(c.is, ErrEmpty) && !strings.Contains(err.Error(), "bad.tar")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := store.Stat(t.Context(), format.ManifestName); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v: something was published", name, err)
		}
	}
	store := mem.New()
	putObject(t, store, "a.tar", good)
	putObject(t, store, "b.tar", good)
	if _, err := Index(t.Context(), store, []string{"a.tar", "b.tar"}, Options{}); !errors.Is(err, format.ErrDuplicate) {
		t.Errorf("a key in two archives: %v", err)
	}
	for _, names := range [][]string{nil, {"a.tar", "a.tar"}, {"a.tar.zst"}, {"../a.tar"}, {"a.txt"}} {
		if _, err := Index(t.Context(), store, names, Options{}); err == nil {
			t.Errorf("%q are indexed", names)
		}
	}
	if _, err := Index(t.Context(), store, []string{"none.tar"}, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an archive that is not there: %v", err)
	}
	if res, err := Index(t.Context(), store, []string{"a.tar", "b.tar"}, Options{KeepDuplicates: true}); err != nil || res.Samples != 6 {
		t.Errorf("duplicates kept: %+v, %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Index(ctx, store, []string{"a.tar", "b.tar"}, Options{Mode: ModeOverwrite}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestIndexGenerations: archives are added, packed ones too, and changed ones indexed again.
func TestIndexGenerations(t *testing.T) {
	store := mem.New()
	a, b := foreignMembers("a", 40), foreignMembers("b", 30)
	putObject(t, store, "a.tar", archive(t, tar.FormatUSTAR, "", a[:20]))
	putObject(t, store, "b.tar", archive(t, tar.FormatGNU, "", b))
	if _, err := Index(t.Context(), store, []string{"a.tar"}, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Index(t.Context(), store, []string{"a.tar"}, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("indexed again: %v", err)
	}
	if _, err := Index(t.Context(), store, []string{"a.tar"}, Options{Mode: ModeAppend}); err == nil {
		t.Error("an archive that is there is added")
	}
	if res, err := Index(t.Context(), store, []string{"b.tar"}, Options{Mode: ModeAppend}); err != nil || res.Shards != 2 || res.Written != 30 {
		t.Errorf("%+v, %v", res, err)
	}
	w, err := New(t.Context(), store, Options{Mode: ModeAppend})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.Write(t.Context(), Sample{Key: "packed", Fields: []Field{{Name: "txt", Data: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, fields := samplesOf(append(append(slices.Clone(a[:20]), b...), foreignMember{"packed.txt", "x"}))
	d := readDataset(t, store, reader.Options{})
	for s, err := range d.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		checkForeignSample(t, s, keys, fields)
	}
	if res, err := Prune(t.Context(), store, PruneOptions{Keep: 1, Grace: -1}); err != nil {
		t.Fatal(err)
	} else {
		for _, o := range res.Objects {
			if strings.HasSuffix(o.Name, ".tar") || strings.HasSuffix(o.Name, ".shidx") {
				t.Errorf("prune deletes %s", o.Name)
			}
		}
	}
	putObject(t, store, "a.tar", archive(t, tar.FormatUSTAR, "", a))
	if r, err := check.Verify(t.Context(), store, check.Options{}); err != nil || r.OK() {
		t.Errorf("an archive that changed: %v", err)
	}
	if res, err := Index(t.Context(), store, []string{"a.tar", "b.tar"}, Options{Mode: ModeOverwrite}); err != nil || res.Generation != 4 {
		t.Fatal(res, err)
	}
	if r, err := check.Verify(t.Context(), store, check.Options{Deep: true}); err != nil || !r.OK() {
		t.Errorf("indexed again: %+v, %v", r, err)
	}
}

// TestIndexFaults: after any failure of the store there is no data set or the whole, and another
// try makes it.
func TestIndexFaults(t *testing.T) {
	data := archive(t, tar.FormatUSTAR, "", foreignMembers("a", 5))
	storetest.EachFault(t, func(t *testing.T) objstore.Store {
		store := mem.New()
		putObject(t, store, "a.tar", data)
		return store
	}, storetest.Fault{}, func(t *testing.T, store *storetest.Faulty) {
		_, err := Index(t.Context(), store, []string{"a.tar"}, Options{Workers: 1})
		if err == nil {
			return
		}
		res, err := Index(t.Context(), store, []string{"a.tar"}, Options{Workers: 1})
		if err != nil && !errors.Is(err, ErrExists) || err == nil && res.Samples != 5 {
			t.Errorf("tried again: %+v, %v", res, err)
		}
		if r, err := check.Verify(t.Context(), store, check.Options{Deep: true}); err != nil || !r.OK() {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
