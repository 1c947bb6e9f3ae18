package tar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	decoded "github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// entry is a member to make.
type entry struct {
	name string
	data []byte
	flag byte
}

func noise(seed byte, n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

func archiveOf(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.data)), Mode: 0o644, Typeflag: e.flag, ModTime: time.Unix(1, 0)}
		if e.flag == tar.TypeSymlink {
			h.Linkname = "elsewhere"
		}
		if e.flag == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: e.flag, PAXRecords: map[string]string{"comment": "x"}}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var b bytes.Buffer
	switch coding, _, _ := codingOf(name); coding {
	case decoded.Gzip:
		z := gzip.NewWriter(&b)
		_, _ = z.Write(data)
		z.Close()
	case decoded.Zstd:
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(data)
		z.Close()
	default:
		b.Write(data)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// got is a sample as text, with its payloads read.
func got(t testing.TB, s writer.Sample) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", s.Key)
	for _, f := range s.Fields {
		data := f.Data
		if f.Payload != nil {
			data = make([]byte, f.Size)
			if err := f.Payload.ReadInto(t.Context(), data); err != nil {
				t.Fatal(err)
			}
			r, err := f.Payload.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			again, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(again, data) {
				t.Fatal("a stream of the payload differs", err)
			}
			r.Close()
		}
		fmt.Fprintf(&b, " %s=%d/%x", f.Name, len(data), codec.Checksum(data))
	}
	return b.String()
}

// rest reads to the end: samples, and errors of samples.
func rest(t testing.TB, src writer.Source) (all []string, bad []error, err error) {
	t.Helper()
	for {
		s, err := src.Next(t.Context())
		var one *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			return all, bad, nil
		case errors.As(err, &one):
			bad = append(bad, err)
		case err != nil:
			return all, bad, err
		default:
			all = append(all, got(t, s))
		}
	}
}

func open(t testing.TB, opt Options, paths ...string) *tarSource {
	t.Helper()
	src, err := New(t.Context(), given(t, paths...), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src.(*tarSource)
}

// given returns inputs of local paths. A path that is not a file is kept, for New to refuse.
func given(t testing.TB, paths ...string) (all []source.Input) {
	t.Helper()
	for _, path := range paths {
		in, err := source.LocalInput(path)
		if err != nil {
			dir, lerr := local.New(t.TempDir(), local.Options{})
			if lerr != nil {
				t.Fatal(lerr)
			}
			in = source.Input{Store: dir, Name: filepath.Base(path), Path: path}
		}
		all = append(all, in)
	}
	return all
}

func samples() (entries []entry, want []string) {
	for i := range 40 {
		key := fmt.Sprintf("d%d/s%03d", i/10, i)
		line := key + ":"
		for f, name := range []string{"jpg", "seg.png", "txt"} {
			size := []int{i * 100, i % 3, 700}[f]
			if i == 7 && f == 0 {
				size = 3 * inline
			}
			data := noise(byte(3*i+f), size)
			entries = append(entries, entry{name: "./" + key + "." + name, data: data})
			line += fmt.Sprintf(" %s=%d/%x", name, size, codec.Checksum(data))
		}
		want = append(want, line)
	}
	return entries, want
}

var endings = []string{"a.tar", "a.tar.gz", "a.tgz", "a.tar.zst"}

func TestSamples(t *testing.T) {
	entries, want := samples()
	entries = slices.Insert(entries, 0, entry{flag: tar.TypeXGlobalHeader}, entry{name: "d0/", flag: tar.TypeDir})
	for _, kind := range endings {
		src := open(t, Options{}, write(t, kind, archiveOf(t, entries)))
		all, bad, err := rest(t, src)
		if err != nil || bad != nil || !slices.Equal(all, want) {
			t.Fatalf("%s: %v, %v\n%q\nwant\n%q", kind, err, bad, all, want)
		}
	}
}

// TestCursors continues before every sample with a new source.
func TestCursors(t *testing.T) {
	entries, want := samples()
	other := []entry{{name: "z.txt", data: []byte("1")}, {name: "zz.txt", data: []byte("2")}}
	paths := []string{write(t, "a.tar", archiveOf(t, entries)), write(t, "b.tar.gz", archiveOf(t, nil)), write(t, "c.tar.zst", archiveOf(t, other))}
	for _, d := range other {
		key, field := format.SplitName([]byte(d.name))
		want = append(want, fmt.Sprintf("%s: %s=%d/%x", key, field, len(d.data), codec.Checksum(d.data)))
	}
	src := open(t, Options{}, paths...)
	var cursors []string
	for range want {
		cursors = append(cursors, src.Cursor())
		if _, err := src.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range append(cursors, src.Cursor()) {
		again := open(t, Options{}, paths...)
		if again.Fingerprint() != src.Fingerprint() {
			t.Fatal("the fingerprint changes by itself")
		}
		if err := again.Seek(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if all, bad, err := rest(t, again); err != nil || bad != nil || !slices.Equal(all, want[i:]) {
			t.Fatalf("from %s: %v, %v, %d samples", c, err, bad, len(all))
		}
	}
	for _, c := range []string{"", "x", "1", "-1:0", "9:0", "3:1", "0:-1", "0:99", "1:1"} {
		if err := open(t, Options{}, paths...).Seek(t.Context(), c); err == nil {
			t.Errorf("cursor %q was accepted", c)
		}
	}
}

// TestCut truncates an archive at every byte: never a shorter data set without an error.
func TestCut(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	entries, want := samples()
	entries, want = entries[:9], want[:3]
	whole := archiveOf(t, entries)
	for _, kind := range endings {
		for n := range len(whole) {
			if kind != "a.tar" && n%512 > 1 {
				continue
			}
			_, _, err := rest(t, open(t, Options{}, write(t, kind, whole[:n])))
			if n > len(whole)-512 || err != nil && errors.Is(err, format.ErrCorrupt) {
				continue
			}
			t.Fatalf("%s cut to %d of %d bytes: %v", kind, n, len(whole), err)
		}
		all, _, err := rest(t, open(t, Options{}, write(t, kind, append(slices.Clone(whole), make([]byte, 20*512)...))))
		if err != nil || len(all) != len(want) {
			t.Fatal("longer ends are usual", err)
		}
	}
	// Truncate the compressed bytes.
	for _, kind := range endings[1:] {
		path := write(t, kind, whole)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(data) {
			if err := os.WriteFile(path, data[:n], 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, err := rest(t, open(t, Options{}, path)); n > 0 && err == nil {
				t.Fatalf("%s cut to %d of %d bytes was read", kind, n, len(data))
			}
		}
	}
}

// TestZerosAreNoEnd: zeros of content at a cut are not mistaken for the end.
func TestZerosAreNoEnd(t *testing.T) {
	for _, size := range []int{512, 1024, 4096, 4000, 2 * inline} {
		whole := archiveOf(t, []entry{{name: "a.x", data: make([]byte, size)}})
		cut := whole[:512+(size+511)/512*512]
		for _, kind := range endings {
			for _, opt := range []Options{{}, {MemberMemory: 1}} {
				if _, _, err := rest(t, open(t, opt, write(t, kind, cut))); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "cut between two members") {
					t.Errorf("%s, %d zeros: %v", kind, size, err)
				}
			}
		}
	}
}

func TestBadMembers(t *testing.T) {
	entries := []entry{
		{name: "a.txt", data: []byte("1")},
		{name: "b.txt", data: []byte("2")}, {name: "a.json", data: []byte("torn")},
		{name: "link.txt", flag: tar.TypeSymlink},
		{name: "../out.txt", data: []byte("3")}, {name: "/abs.txt", data: []byte("4")},
		{name: "big.bin", data: noise(1, 5000)},
		{name: "c.txt", data: []byte("5")},
	}
	for _, kind := range endings {
		path := write(t, kind, archiveOf(t, entries))
		all, bad, err := rest(t, open(t, Options{MemberMemory: 4000}, path))
		if err != nil || len(all) != 3 || len(bad) != 5 {
			t.Fatalf("%s: %v\n%q\n%v", kind, err, all, bad)
		}
		for i := range entries { // continued after each, the others are refused as before
			src := open(t, Options{MemberMemory: 4000}, path)
			if err := src.Seek(t.Context(), fmt.Sprintf("0:%d", i)); err != nil {
				t.Fatal(err)
			}
			good, refused, err := rest(t, src)
			if err != nil || len(good)+len(refused) != len(entries)-i || !slices.Equal(good, all[len(all)-len(good):]) {
				t.Errorf("%s from sample %d: %v\n%q\n%v", kind, i, err, good, refused)
			}
		}
		for i, phrase := range []string{"are not adjacent", "a symbolic link", "rename it in the archive", "rename it in the archive", "read it from a plain archive"} {
			if !strings.Contains(bad[i].Error(), phrase) || !strings.Contains(bad[i].Error(), " at ") {
				t.Errorf("%v does not say %q", bad[i], phrase)
			}
		}
	}
}

func TestJoinedAndNot(t *testing.T) {
	entries, _ := samples()
	one := archiveOf(t, entries[:3])
	for _, kind := range endings {
		if _, _, err := rest(t, open(t, Options{}, write(t, kind, append(slices.Clone(one), one...)))); err == nil || !strings.Contains(err.Error(), "archives were concatenated") {
			t.Errorf("%s: %v", kind, err)
		}
		if _, _, err := rest(t, open(t, Options{}, write(t, kind, []byte("no archive")))); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", kind, err)
		}
		if _, _, err := rest(t, open(t, Options{}, write(t, kind, noise(3, 5000)))); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	dir := t.TempDir()
	for _, paths := range [][]string{{dir}, {filepath.Join(dir, "none.tar")}, {write(t, "a.zip", one)}, {write(t, "a.tar", one), ""}} {
		if _, err := New(t.Context(), given(t, paths...), Options{}); err == nil {
			t.Errorf("%q were accepted", paths)
		}
	}
	path := write(t, "a.tar", one)
	if _, err := New(t.Context(), given(t, path, path), Options{}); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Error(err)
	}
}

func TestChanged(t *testing.T) {
	entries, _ := samples()
	path := write(t, "a.tar", archiveOf(t, []entry{{name: "a.x", data: noise(1, 2*inline)}}))
	src := open(t, Options{}, path)
	s, err := src.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, archiveOf(t, entries), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Fields[0].Payload.ReadInto(t.Context(), make([]byte, s.Fields[0].Size)); !errors.Is(err, objstore.ErrChanged) {
		t.Error(err)
	}
	if _, _, err := rest(t, open(t, Options{}, path)); err != nil {
		t.Error(err)
	}
	if err := src.Seek(t.Context(), "0:0"); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Next(t.Context()); !errors.Is(err, objstore.ErrChanged) || !strings.Contains(err.Error(), "pack again") {
		t.Error(err)
	}
}

// TestForeign reads what GNU tar, bsdtar and Python write, with names that need extensions, and
// sparse files.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("long/", 40) + "name"
	for name, data := range map[string][]byte{"a.txt": []byte("a"), "ünï/b.bin": noise(1, 100_000), long + ".txt": []byte("l"), "z.sparse": append(make([]byte, 1<<20), "end"...)} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "z.sparse"), 2<<20); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]string{
		"gnu":    "tar -cf $OUT *",
		"sparse": "tar -S -cf $OUT *",
		"posix":  "tar --format=posix -S -cf $OUT *",
		"v7":     "tar --format=v7 -cf $OUT a.txt z.sparse",
		"bsd":    "bsdtar -cf $OUT *",
		"python": `python3 -c 'import tarfile,sys,os; t=tarfile.open(os.environ["OUT"],"w"); [t.add(n) for n in sorted(os.listdir("."))]; t.close()'`,
	} {
		t.Run(name, func(t *testing.T) {
			programs.Need(t, strings.Fields(command)[0])
			out := filepath.Join(t.TempDir(), name+".tar")
			c := exec.Command("bash", "-ec", command)
			c.Dir, c.Env = dir, append(os.Environ(), "OUT="+out, "LC_ALL=C.UTF-8")
			if text, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			all, bad, err := rest(t, open(t, Options{}, out))
			want := 4
			if name == "v7" {
				want = 2
			}
			if err != nil || bad != nil || len(all) != want {
				t.Fatalf("%v, %v, %q", err, bad, all)
			}
			for _, s := range all {
				key, fields, _ := strings.Cut(s, ": ")
				field, rest, _ := strings.Cut(fields, "=")
				data, err := os.ReadFile(filepath.Join(dir, key+"."+field))
				if err != nil || fmt.Sprintf("%d/%x", len(data), codec.Checksum(data)) != rest {
					t.Errorf("%s differs: %v", s, err)
				}
			}
		})
	}
}

func TestPack(t *testing.T) {
	entries, want := samples()
	src := open(t, Options{}, write(t, "a.tar", archiveOf(t, entries)))
	result, err := writer.Pack(context.Background(), mem.New(), src, writer.Options{})
	if err != nil || result.Samples != uint64(len(want)) {
		t.Fatal(result, err)
	}
}

func FuzzTar(f *testing.F) {
	f.Add(archiveOf(f, []entry{{name: "a.txt", data: []byte("1")}, {name: "b.txt", data: []byte("2")}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "a.tar")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		src := open(t, Options{MemberMemory: 1 << 20}, path)
		for range 10_000 {
			s, err := src.Next(t.Context())
			var one *writer.SampleError
			if err != nil && !errors.As(err, &one) {
				return
			}
			if err == nil {
				got(t, s)
			}
		}
	})
}

// TestResume fails every operation of a pack's store in turn, resumes, and compares the digest with
// that of a pack without faults.
func TestResume(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	entries, want := samples()
	for _, kind := range endings {
		path := write(t, kind, archiveOf(t, entries))
		pack := func(store objstore.Store, resume bool) (*writer.Result, error) {
			src := open(t, Options{}, path)
			return writer.Pack(t.Context(), store, src, writer.Options{ShardSize: 100_000, BlockSize: 8 << 10, Workers: 2, Resume: resume})
		}
		whole, err := pack(mem.New(), false)
		if err != nil || whole.Samples != uint64(len(want)) || whole.Shards < 3 {
			t.Fatal(whole, err)
		}
		adopted := uint64(0)
		for k := 0; ; k++ {
			inner := mem.New()
			faulty := storetest.NewFaulty(inner, storetest.Fault{At: k, Kill: true})
			_, err := pack(faulty, false)
			if !faulty.Fired() {
				break
			}
			if err == nil {
				continue // what it does without, such as listing leftovers
			}
			again, err := pack(inner, true)
			if errors.Is(err, writer.ErrExists) {
				continue // published, and the answer was lost
			}
			if err != nil || again.Digest != whole.Digest || again.Tables != whole.Tables {
				t.Fatalf("%s, operation %d: %+v, %v, want %+v", kind, k, again, err, whole)
			}
			adopted = max(adopted, uint64(again.Adopted))
		}
		if adopted == 0 {
			t.Errorf("%s: nothing was adopted", kind)
		}
	}
}
