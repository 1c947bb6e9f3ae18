package cache

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// rig is one cached range, and its file.
type rig struct {
	dir    string
	cache  *Cache
	source *counting
	object objstore.Object
	data   []byte
	path   string
	good   []byte
}

func newRig(t *testing.T, size int) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir()}
	r.cache = newCache(t, r.dir, 1<<20)
	r.source, r.data = dataset(t, "far:", 1, size)
	r.object = open(t, r.cache.Wrap(r.source), "shard", "hash")
	expect(t, r.object, 0, size, r.data)
	found := pieces(t, r.dir)
	if len(found) != 1 {
		t.Fatal(found)
	}
	r.path = found[0]
	var err error
	if r.good, err = os.ReadFile(r.path); err != nil {
		t.Fatal(err)
	}
	return r
}

// healed reads the range twice after its file was damaged: the first read asks the source and
// replaces the file, the second uses it.
func (r *rig) healed(t *testing.T, what string) {
	t.Helper()
	reads := r.source.reads.Load()
	for range 2 {
		expect(t, r.object, 0, len(r.data), r.data)
	}
	if n := r.source.reads.Load() - reads; n != 1 {
		t.Fatalf("%s: %d reads of the source, want 1", what, n)
	}
	if now, err := os.ReadFile(r.path); err != nil || !bytes.Equal(now, r.good) {
		t.Fatalf("%s: not replaced: %v", what, err)
	}
}

func (r *rig) write(t *testing.T, data []byte) {
	t.Helper()
	if err := os.WriteFile(r.path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBytes flips every byte of a file.
func TestFlippedBytes(t *testing.T) {
	r := newRig(t, 300)
	for i := range r.good {
		bad := bytes.Clone(r.good)
		bad[i] ^= 0x40
		r.write(t, bad)
		r.healed(t, "flipped")
	}
	if s := r.cache.Stats(); s.Damaged != int64(len(r.good)) || s.Errors != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestTruncated truncates a file to every length, fills it with zeros from there as after a power
// failure, and extends it.
func TestTruncated(t *testing.T) {
	r := newRig(t, 300)
	for n := range r.good {
		r.write(t, r.good[:n])
		r.healed(t, "cut")
		if bytes.ContainsFunc(r.good[n:], func(c rune) bool { return c != 0 }) {
			r.write(t, append(bytes.Clone(r.good[:n]), make([]byte, len(r.good)-n)...))
			r.healed(t, "zero-filled")
		}
	}
	for _, more := range []int{1, 300, 100_000} {
		r.write(t, append(bytes.Clone(r.good), make([]byte, more)...))
		r.healed(t, "longer")
	}
}

// TestForeignFile replaces a file by other valid files: of another range, of another data set.
func TestForeignFile(t *testing.T) {
	r := newRig(t, 300)
	other, _ := dataset(t, "far:other", 2, 600)
	object := open(t, r.cache.Wrap(other), "shard", "other hash")
	object.ReadAt(t.Context(), make([]byte, 300), 0)
	object.ReadAt(t.Context(), make([]byte, 300), 300)
	r.object.ReadAt(t.Context(), make([]byte, 100), 100)
	taken := 0
	for _, path := range pieces(t, r.dir) {
		if path == r.path {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r.write(t, data)
		r.healed(t, "another's file")
		taken++
	}
	if taken != 3 {
		t.Fatalf("%d files", taken)
	}
}

// TestLinks replaces a file by links to good and bad files, inside and outside the folder. The
// targets stay unchanged.
func TestLinks(t *testing.T) {
	r := newRig(t, 300)
	outside := filepath.Join(t.TempDir(), "precious")
	inside := filepath.Join(filepath.Dir(r.path), "precious")
	for _, target := range []string{outside, inside} {
		if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{outside, "precious", "/etc/passwd", "none", "..", filepath.Base(r.path)} {
		if err := os.Remove(r.path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(link, r.path); err != nil {
			t.Skip(err)
		}
		r.healed(t, "link to "+link)
		if fi, err := os.Lstat(r.path); err != nil || !fi.Mode().IsRegular() {
			t.Fatal("the link is still there")
		}
	}
	for _, target := range []string{outside, inside} {
		if data, err := os.ReadFile(target); err != nil || string(data) != "precious" {
			t.Fatalf("%s: %q, %v", target, data, err)
		}
	}
}

// TestDirectoryInPlace replaces a file by a directory, which the cache does not remove: it reads
// from the source.
func TestDirectoryInPlace(t *testing.T) {
	r := newRig(t, 300)
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(r.path, "mine")
	if err := os.MkdirAll(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		expect(t, r.object, 0, 300, r.data)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Fatal(err)
	}
	if s := r.cache.Stats(); s.Damaged != 3 || s.Hits != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestGone removes the entire folder during use.
func TestGone(t *testing.T) {
	r := newRig(t, 300)
	if err := os.RemoveAll(r.dir); err != nil {
		t.Skip(err)
	}
	for range 3 {
		expect(t, r.object, 0, 300, r.data)
	}
}

// TestState damages the shared record in every way: the folder is counted again.
func TestState(t *testing.T) {
	r := newRig(t, 300)
	path := filepath.Join(r.dir, stateName)
	good, err := os.ReadFile(path)
	if err != nil || len(good) != stateSize {
		t.Fatal(good, err)
	}
	damages := [][]byte{nil, good[:10], bytes.Repeat([]byte{0xff}, 100)}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		damages = append(damages, bad)
	}
	for i, bad := range damages {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		forget(t.Context(), r.object, 0, 300)
		expect(t, r.object, 0, 300, r.data)
		if s, disk := r.cache.Stats(), onDisk(t, r.dir); s.Used != disk || s.Errors != 0 {
			t.Fatalf("damage %d: %d used, %d there; %+v", i, s.Used, disk, s)
		}
	}
	// Another file has the name, so a lock on the old one protects nothing.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	forget(t.Context(), r.object, 0, 300)
	expect(t, r.object, 0, 300, r.data)
	if again, err := os.ReadFile(path); err != nil || len(again) != stateSize || r.cache.Stats().Used != onDisk(t, r.dir) {
		t.Fatal(again, err)
	}
}

// TestEvictsOwnOnly reduces a folder full of foreign files to nothing: the foreign files stay.
func TestEvictsOwnOnly(t *testing.T) {
	r := newRig(t, 300)
	bucket := filepath.Dir(r.path)
	group := filepath.Dir(bucket)
	name := filepath.Base(r.path)
	foreign := []string{
		filepath.Join(bucket, "README"),
		filepath.Join(bucket, name+"0"+"g"),
		filepath.Join(bucket, name+".bak"),
		filepath.Join(bucket, strings.Repeat("a", 40)+"-0-12c"), // the right name, but not the magic
		filepath.Join(group, name),
		filepath.Join(group, "notes", name),
		filepath.Join(r.dir, name),
		filepath.Join(r.dir, "d-0123", "00", name),
		filepath.Join(r.dir, tempDir, "work"),
		filepath.Join(r.dir, "shards", "000.tar.zst"),
	}
	for _, path := range foreign {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("precious bytes of someone"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "d-0123456789abcdef")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(group, filepath.Join(outside, "group")); err != nil {
		t.Fatal(err)
	}
	// The target of a link does not belong to the cache, even if it looks like a cached range.
	linked := filepath.Join(r.dir, "d-ffffffffffffffff")
	if err := os.Symlink(filepath.Join(outside, "group"), linked); err != nil {
		t.Skip(err)
	}
	behind := filepath.Join(outside, "group", filepath.Base(bucket), name)
	if err := os.CopyFS(group, os.DirFS(filepath.Join(outside, "group"))); err != nil {
		t.Fatal(err)
	}
	if err := r.cache.Close(); err != nil {
		t.Fatal(err)
	}
	small := newCache(t, r.dir, 1)
	if s := small.Stats(); s.Evicted != 1 {
		t.Fatalf("%+v", s)
	}
	if _, err := os.Lstat(r.path); err == nil {
		t.Fatal("its own file was not evicted")
	}
	for _, path := range append(foreign, behind) {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestWarnsOnce breaks everything repeatedly: there is one warning of each kind, with advice.
func TestWarnsOnce(t *testing.T) {
	var log lockedBuffer
	dir := t.TempDir()
	source, data := dataset(t, "far:", 1, 300)
	c := newCacheWith(t, dir, Options{Size: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
	object := open(t, c.Wrap(source), "shard", "hash")
	for range 5 {
		expect(t, object, 0, 300, data)
		for _, path := range pieces(t, dir) {
			if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "damaged or foreign") {
		t.Fatalf("%s", log.String())
	}
	if err := os.Remove(filepath.Join(dir, stateName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, stateName), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		c.pause.until.Store(0)
		expect(t, object, i, 100, data)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "advice=") {
		t.Fatalf("%s", log.String())
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
