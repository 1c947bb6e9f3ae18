package zips

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/zipdir"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
)

// archive makes an archive of names and contents in turn; every second member is stored.
func archive(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &zip.FileHeader{Name: files[i], Method: zip.Deflate}
		if i%4 == 2 {
			h.Method = zip.Store
		}
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(f, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(t testing.TB, b []byte) (*Store, objstore.Store, error) {
	t.Helper()
	store := mem.New()
	if _, err := objstore.Put(t.Context(), store, "a.zip", b, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), store, "a.zip", "a.zip")
	return s, store, err
}

// read reads a member in steps.
func read(ctx context.Context, s *Store, name string, step int) ([]byte, error) {
	obj, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size)
	if len(b) == 0 {
		return b, obj.ReadAt(ctx, b, 0)
	}
	for at := 0; at < len(b); at += step {
		if err := obj.ReadAt(ctx, b[at:min(at+step, len(b))], int64(at)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// TestRead: members are what was written, from front to end and at random, by many at once.
func TestRead(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	big := make([]byte, 3*window+77)
	for i := range big {
		big[i] = byte(rng.IntN(7))
	}
	texts := []string{"a/1.txt", "text", "a/1.bin", string(big), "b.txt", string(big[:5000]), "./c", "", "dir/", "", "d", string(big[1:]), "./", ""}
	s, _, err := open(t, archive(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if want := []string{"a/1.bin", "a/1.txt", "b.txt", "c", "d"}; !slices.Equal(names, want) {
		t.Fatal(names)
	}
	var group sync.WaitGroup
	for i := 0; i < len(texts); i += 2 {
		name := strings.TrimPrefix(texts[i], "./")
		if strings.HasSuffix(texts[i], "/") {
			continue
		}
		group.Go(func() {
			for _, step := range []int{1 << 30, 100_000, 4097} {
				if got, err := read(t.Context(), s, name, step); err != nil || string(got) != texts[i+1] {
					t.Errorf("%s by %d: %d bytes, %v", name, step, len(got), err)
				}
			}
			obj, err := s.Open(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				at := rand.IntN(len(texts[i+1]) + 1)
				p := make([]byte, rand.IntN(len(texts[i+1])-at+1))
				if err := obj.ReadAt(t.Context(), p, int64(at)); err != nil || string(p) != texts[i+1][at:at+len(p)] {
					t.Errorf("%s at %d: %v", name, at, err)
				}
			}
			if err := obj.ReadAt(t.Context(), make([]byte, 1), int64(len(texts[i+1]))); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if _, err := s.Stat(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if info, err := s.Stat(t.Context(), "b.txt"); err != nil || info.Size != 5000 || info.ETag == "" {
		t.Error(info, err)
	}
}

// TestDamage: an archive that is cut, or has a flipped bit, gives the right bytes or an error.
func TestDamage(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a.txt": strings.Repeat("text", 20), "b.txt": "stored", "c.txt": ""}
	b := archive(t, "a.txt", want["a.txt"], "b.txt", want["b.txt"], "c.txt", "")
	check := func(b []byte) (bad bool) {
		s, _, err := open(t, b)
		if err != nil {
			if !errors.Is(err, format.ErrCorrupt) {
				t.Error(err)
			}
			return true
		}
		for _, f := range s.files {
			name := f.Name
			got, err := read(t.Context(), s, name, 7)
			if err == nil && want[name] != string(got) && want[name] != "" {
				t.Fatalf("%s: %q", name, got)
			}
			bad = bad || err != nil || want[name] != string(got)
		}
		return bad
	}
	if check(b) {
		t.Fatal("it is not read")
	}
	for n := range b {
		if !check(b[:n]) {
			t.Fatalf("%d bytes are read", n)
		}
	}
	for at := range b {
		damaged := slices.Clone(b)
		damaged[at] ^= 4
		check(damaged)
	}
}

// TestRefused: what an archive states wrongly, and what is not read, is named.
func TestRefused(t *testing.T) {
	t.Parallel()
	good := archive(t, "a.txt", strings.Repeat("a", 1000))
	at := bytes.Index(good, []byte("PK\x01\x02")) // the entry in the list
	set := func(off, width int, v uint64) []byte {
		b := slices.Clone(good)
		for i := range width {
			b[at+off+i] = byte(v >> (8 * i))
		}
		return b
	}
	// Two entries for one member: the first overlaps the second.
	entry := bytes.Clone(good[at : len(good)-22])
	second := slices.Concat(good[:at], entry, bytes.Replace(entry, []byte("a.txt"), []byte("b.txt"), 1), good[len(good)-22:])
	end := second[len(second)-22:]
	binary.LittleEndian.PutUint16(end[8:], 2)
	binary.LittleEndian.PutUint16(end[10:], 2)
	binary.LittleEndian.PutUint32(end[12:], uint32(2*len(entry)))
	many := slices.Clone(second)
	for i := 0; i < 20; i++ {
		name := fmt.Sprintf("%c.txt", 'c'+i)
		many = slices.Concat(many[:len(many)-22], bytes.Replace(entry, []byte("a.txt"), []byte(name), 1), many[len(many)-22:])
	}
	end = many[len(many)-22:]
	binary.LittleEndian.PutUint16(end[8:], 22)
	binary.LittleEndian.PutUint16(end[10:], 22)
	binary.LittleEndian.PutUint32(end[12:], uint32(22*len(entry)))
	bomb := slices.Clone(many)
	for i := range 22 { // each of more stored bytes than a share of the archive
		binary.LittleEndian.PutUint32(bomb[at+i*len(entry)+20:], uint32(len(bomb)/2))
	}
	for want, b := range map[string][]byte{
		"not a zip archive":  []byte("PK\x03\x04 and text"),
		"zip bomb":           set(24, 4, 1<<31),
		"members overlap":    bomb,
		"it is encrypted":    set(8, 1, 1),
		"method 12":          set(10, 2, 12),
		"not a regular file": set(38, 4, 0o120777<<16),
		"states 1000":        set(10, 2, 0),
		"it has more than":   set(24, 4, 999),
		"two members":        archive(t, "a", "x", "./a", "y"),
		"or damaged before":  set(42, 4, 5),
		"its CRC-32":         set(16, 4, 7),
		"unexpected EOF":     set(24, 4, 1001),
	} {
		if strings.HasPrefix(want, "not a regular") {
			b[at+5] = 3 // Unix
		}
		s, _, err := open(t, b)
		if err == nil {
			for _, f := range s.files {
				if _, e := read(t.Context(), s, f.Name, 1<<20); e != nil {
					err = e
				}
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := (&Store{}).Create(t.Context(), "a", objstore.Condition{}); err == nil {
		t.Error("it is written")
	}
	if err := (&Store{}).Delete(t.Context(), "a"); err == nil {
		t.Error("it is written")
	}
}

// TestZip64: members and lists of more than 65,535 are read.
func TestZip64(t *testing.T) {
	t.Parallel()
	var files []string
	for i := range 70_000 {
		files = append(files, fmt.Sprintf("%d.txt", i), "x")
	}
	s, _, err := open(t, archive(t, files...))
	if err != nil || len(s.files) != 70_000 {
		t.Fatal(err)
	}
	if b, err := read(t.Context(), s, "69999.txt", 10); err != nil || string(b) != "x" {
		t.Error(b, err)
	}
}

// TestChanged: an archive that is replaced while it is read is an error.
func TestChanged(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 1<<16)
	b := archive(t, "z", "", "a", big)
	s, store, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), store, "a.zip", b, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), s, "a", 1<<30); !errors.Is(err, objstore.ErrChanged) {
		t.Error(err)
	}
}

// touched calls a function after each large read of an object.
type touched struct {
	objstore.Store
	after func()
}

type touchedObject struct {
	objstore.Object
	of *touched
}

func (s *touched) Open(ctx context.Context, name string) (objstore.Object, error) {
	obj, err := s.Store.Open(ctx, name)
	return touchedObject{obj, s}, err
}

func (o touchedObject) Is(info objstore.Info) (bool, error) {
	return o.Object.(interface {
		Is(objstore.Info) (bool, error)
	}).Is(info)
}

func (o touchedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) > window {
		defer o.of.after()
	}
	return o.Object.ReadAt(ctx, p, off)
}

// TestChangedInRead: a file of this machine that changes while its last byte is read is an error,
// and one that is gone does not pass for a member that is not there.
func TestChangedInRead(t *testing.T) {
	t.Parallel()
	b := archive(t, "z", "", "a", strings.Repeat("0123456789abcdef", 1<<16))
	for what, after := range map[string]func(path string) error{
		"overwritten": func(path string) error { return os.WriteFile(path, b, 0o644) },
		"gone":        os.Remove,
	} {
		path := filepath.Join(t.TempDir(), "a.zip")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		in, err := source.LocalInput(path)
		if err != nil {
			t.Fatal(err)
		}
		store := &touched{Store: in.Store, after: func() {}}
		s, err := New(t.Context(), store, "a.zip", "a.zip")
		if err != nil {
			t.Fatal(err)
		}
		store.after = func() {
			if err := after(path); err != nil {
				t.Error(err)
			}
		}
		if _, err := read(t.Context(), s, "a", 1<<30); !errors.Is(err, objstore.ErrChanged) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestFingerprint: rows of an archive that was made again are the same if their bytes are, whatever
// the times say.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	of := func(files ...string) string {
		s, _, err := open(t, archive(t, files...))
		if err != nil {
			t.Fatal(err)
		}
		src, err := lines.New(t.Context(), []source.Input{{Store: s, Name: "a.csv"}}, lines.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		return src.Fingerprint()
	}
	first := of("a.csv", "a,b\n1,2\n")
	if of("a.csv", "a,b\n1,2\n", "other", "x") != first {
		t.Error("the same rows are others")
	}
	if of("a.csv", "a,b\n1,3\n") == first {
		t.Error("other rows are the same")
	}
}

// FuzzZip: no archive causes a panic, a hang or a large allocation, and what is read has its
// checksum.
func FuzzZip(f *testing.F) {
	f.Add(archive(f, "a/1.txt", "text", "b", strings.Repeat("x", 500)))
	f.Add(archive(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, _, err := open(t, b)
		if err != nil {
			return
		}
		for _, f := range s.files {
			if f.UncompressedSize64 > zipdir.Inflated*uint64(len(b)) {
				t.Fatal("a bomb")
			}
			got, err := read(t.Context(), s, f.Name, 1000)
			if err == nil && crc32.ChecksumIEEE(got) != f.CRC32 {
				t.Fatal("damaged bytes are read")
			}
		}
	})
}

// TestMemory bounds what a member takes, because archives have millions of them.
func TestMemory(t *testing.T) {
	const n, most = 50_000, 300
	files := make([]string, 2*n)
	for i := range n {
		files[2*i] = fmt.Sprintf("dir/%08d.jpg", i)
	}
	b := archive(t, files...)
	_, store, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	s, err := New(t.Context(), store, "a.zip", "a.zip")
	if err != nil {
		t.Fatal(err)
	}
	got := (live() - before) / n
	if t.Logf("%d bytes a member", got); got > most || len(s.files) != n {
		t.Errorf("a member takes %d bytes, more than %d", got, most)
	}
}

// counted counts the handles that are opened: each is read once.
type counted struct {
	objstore.Store
	opens atomic.Int64
}

func (c *counted) Open(ctx context.Context, name string) (objstore.Object, error) {
	c.opens.Add(1)
	return c.Store.Open(ctx, name)
}

// TestRanges: small members share reads of the archive, and large ones are read by ranges.
func TestRanges(t *testing.T) {
	t.Parallel()
	var files []string
	for i := range 2000 {
		files = append(files, fmt.Sprintf("%04d.txt", i), strings.Repeat("text", 20))
	}
	b := archive(t, append(files, "z", "", "zz", strings.Repeat("0123456789abcdef", 1<<16))...)
	_, store, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Store: store}
	s, err := New(t.Context(), c, "a.zip", "a.zip")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.files {
		if _, err := read(t.Context(), s, f.Name, 1<<30); err != nil {
			t.Fatal(f.Name, err)
		}
	}
	if n := c.opens.Load(); n > int64(len(b)/window)+6 {
		t.Errorf("%d requests for %d bytes", n, len(b))
	}
}
