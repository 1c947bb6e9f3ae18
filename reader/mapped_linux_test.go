package reader_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/writer"
)

// settled is more than a file must not have changed for before it is mapped.
const settled = 100 * time.Millisecond

var plainRows = writer.Options{Layout: writer.LayoutStacked, Plain: true}

// onDisk packs wide samples into a folder and opens them.
func onDisk(t *testing.T, n int, stored bool, opt writer.Options) (dir string, ds *reader.Dataset) {
	t.Helper()
	dir = t.TempDir()
	st, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	packWide(t, st, n, stored, opt)
	time.Sleep(settled)
	if ds, err = reader.Open(t.Context(), st, reader.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return dir, ds
}

// mappings counts the mapped files of a folder.
func mappings(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), dir+string(os.PathSeparator))
}

// mapped skips where temporary files are of a file system that is not mapped.
func mapped(t *testing.T, dir string) {
	t.Helper()
	st, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object, err := st.Open(t.Context(), "data-000000.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if _, _, err := object.(objstore.Mapper).Map(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the file system of temporary files is none that files are mapped of: ", err)
	}
}

// rightRows checks a batch's rows by what they hold.
func rightRows(t *testing.T, x, y []byte) {
	t.Helper()
	for r := range len(y) / 8 {
		i := int(binary.LittleEndian.Uint64(y[8*r:]))
		row := x[600*r:][:600]
		for k := range 300 {
			if got := binary.LittleEndian.Uint16(row[2*k:]); got != uint16(i*k) {
				t.Fatalf("row %d: number %d of sample %d is %d, want %d", r, k, i, got, uint16(i*k))
			}
		}
	}
}

func rowsStream(t *testing.T, ds *reader.Dataset, rows reader.Rows, memory int64) *reader.Stream {
	t.Helper()
	order := reader.Order{GlobalBatch: 50, Shuffle: true, Seed: 3, ShuffleMemory: 128 << 10, Epochs: 3}
	if memory > 0 { // less than a batch draws from
		order.GlobalBatch, order.ShuffleMemory = 500, 1<<20
	}
	s, err := ds.Stream(t.Context(), reader.StreamOptions{
		Order:  order,
		Read:   reader.Read{Rows: rows, Workers: 2},
		Limits: reader.Limits{Memory: memory},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestMappedRows compares rows of mapped shards with those of the same shards in a store that cannot
// be mapped, batch by batch, and finds no mapping left in the end.
func TestMappedRows(t *testing.T) {
	dir, ds := onDisk(t, 3003, false, plainRows)
	mapped(t, dir)
	want, err := reader.Open(t.Context(), wideSet(t, 3003, false, plainRows), reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for _, rows := range []reader.Rows{reader.RowsReady, reader.RowsInPlace} {
		for _, memory := range []int64{0, 1 << 20} { // and so little that rows are copied block by block
			got, other := rowsStream(t, ds, rows, memory), rowsStream(t, want, rows, memory)
			most := 0
			for {
				a, err := got.Next(t.Context())
				b, otherErr := other.Next(t.Context())
				if errors.Is(err, io.EOF) && errors.Is(otherErr, io.EOF) {
					break
				}
				if err != nil || otherErr != nil {
					t.Fatal(err, otherErr)
				}
				sameRows(t, a, b)
				x, _ := a.Rows("x.npy")
				y, _ := a.Rows("y.npy")
				rightRows(t, x, y)
				most = max(most, mappings(t, dir))
			}
			if most == 0 {
				t.Errorf("Rows %d, memory %d: no shard was mapped", rows, memory)
			}
			got.Close()
			other.Close()
		}
	}
	ds.Close()
	if n := mappings(t, dir); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
}

// TestNotMapped streams what is not used in place.
func TestNotMapped(t *testing.T) {
	for name, c := range map[string]struct {
		stored bool
		opt    writer.Options
		rows   reader.Rows
	}{
		"compressed":   {false, stacked, reader.RowsReady},
		"keys in rows": {true, plainRows, reader.RowsReady}, // keys could change after they were checked
		"samples":      {false, plainRows, reader.NoRows},
	} {
		dir, ds := onDisk(t, 500, c.stored, c.opt)
		s := rowsStream(t, ds, c.rows, 0)
		for b, err := range s.Batches(t.Context()) {
			if err != nil || b.Len() == 0 {
				t.Fatal(err)
			}
			if n := mappings(t, dir); n != 0 {
				t.Fatalf("%s: %d mappings", name, n)
			}
		}
	}
}

// change opens a shard for writing in place.
func change(t *testing.T, dir string, f func(*os.File) error) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "data-000000.tar"), os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f(file), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// overwrite writes zeros over all of a file.
func overwrite(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, info.Size()), 0)
	return err
}

// changes are what another program does to a shard.
var changes = map[string]struct {
	change func(*os.File) error
	whole  bool // the content stays
}{
	"mode":        {func(f *os.File) error { return f.Chmod(0o600) }, true},
	"link":        {func(f *os.File) error { return os.Link(f.Name(), f.Name()+".link") }, true},
	"removed":     {func(f *os.File) error { return os.Remove(f.Name()) }, true},
	"overwritten": {overwrite, false},
	"cut":         {func(f *os.File) error { return f.Truncate(700) }, false},
	"emptied":     {func(f *os.File) error { return f.Truncate(0) }, false},
}

// otherContent requires the error of a copy from a shard whose content changed.
func otherContent(t *testing.T, err error) {
	t.Helper()
	var at *format.PosError
	if !errors.Is(err, objstore.ErrChanged) || !errors.As(err, &at) || at.Shard != "data-000000.tar" {
		t.Fatalf("copied from a shard that has other content: %v", err)
	}
}

// TestChangedBeforeCopy changes a shard after a batch was found and before its rows are copied.
func TestChangedBeforeCopy(t *testing.T) {
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			dir, ds := onDisk(t, 100, false, plainRows)
			mapped(t, dir)
			s := rowsStream(t, ds, reader.RowsInPlace, 0)
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if mappings(t, dir) == 0 {
				t.Fatal("no shard was mapped")
			}
			change(t, dir, c.change)
			x, y := make([]byte, 600*b.Len()), make([]byte, 8*b.Len())
			err = errors.Join(b.CopyRows(y, "y.npy"), b.CopyRows(x, "x.npy"))
			if c.whole {
				if err != nil {
					t.Fatal(err)
				}
				rightRows(t, x, y)
				return
			}
			otherContent(t, err)
			if data, stride := b.Rows("x.npy"); data != nil || stride != 600 {
				t.Fatalf("%d bytes of a shard that has other content", len(data))
			}
		})
	}
}

// TestChangedSource: the error of rows of a mix names the source, because shards of several sources
// have the same names.
func TestChangedSource(t *testing.T) {
	m := mix.Mix{Seed: 1, Shuffle: true, Tail: order.TailWrap, Epoch: 200, Segments: []mix.Segment{{Weights: []uint64{1, 1}}}}
	var of reader.Mix
	var dirs []string
	for _, name := range []string{"a", "b"} {
		dir, ds := onDisk(t, 100, false, plainRows)
		mapped(t, dir)
		dirs, of.Sets = append(dirs, dir), append(of.Sets, ds)
		m.Sources = append(m.Sources, mix.Source{
			Name: name, Digest: format.DigestString(ds.Digest()), Units: ds.NumSamples(),
			Lanes: 4, RunBlocks: 1, Delay: 3, Head: 2, Affinity: order.AffinityEpoch,
		})
	}
	var err error
	if of.Plan, err = mix.New(m); err != nil {
		t.Fatal(err)
	}
	s, err := reader.OpenMix(t.Context(), of, reader.StreamOptions{Order: reader.Order{GlobalBatch: 50}, Read: reader.Read{Rows: reader.RowsInPlace}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	change(t, dirs[1], overwrite)
	err = b.CopyRows(make([]byte, 600*b.Len()), "x.npy")
	var source *mix.SourceError
	if !errors.Is(err, objstore.ErrChanged) || !errors.As(err, &source) || source.Source != "b" {
		t.Error(err)
	}
}

// TestChangedWhileStreamed has another program write to shards, cut them and touch them all the
// time, at random. A batch is right or an error.
func TestChangedWhileStreamed(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	failed, batches := 0, 0
	for trial := range 12 {
		dir, ds := onDisk(t, 600, false, plainRows)
		s := rowsStream(t, ds, []reader.Rows{reader.RowsReady, reader.RowsInPlace}[trial%2], 0)
		stop, done := make(chan struct{}), make(chan struct{})
		wait, kind := time.Duration(random.IntN(3000))*time.Microsecond, trial%3
		if kind == 2 { // with a new mode all the time, no content could be told from another
			wait = settled
		}
		go func() {
			defer close(done)
			for shard := 0; ; shard = (shard + 1) % 3 {
				select {
				case <-stop:
					return
				case <-time.After(wait):
				}
				path := filepath.Join(dir, "data-00000"+string(rune('0'+shard))+".tar")
				if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
					switch kind {
					case 0:
						_ = overwrite(f)
					case 1:
						_ = f.Truncate(9000)
					case 2:
						_ = f.Chmod(0o600)
					}
					f.Close()
				}
			}
		}()
		for b, err := range s.Batches(t.Context()) {
			var x, y []byte
			if err == nil {
				x, y = make([]byte, 600*b.Len()), make([]byte, 8*b.Len())
				err = errors.Join(b.CopyRows(x, "x.npy"), b.CopyRows(y, "y.npy"))
			}
			if err != nil {
				if !errors.Is(err, objstore.ErrChanged) && !errors.Is(err, format.ErrCorrupt) || kind == 2 {
					t.Fatal(err)
				}
				failed++
				break
			}
			rightRows(t, x, y)
			batches++
		}
		close(stop)
		<-done
		s.Close()
		ds.Close()
	}
	if failed == 0 || batches == 0 {
		t.Errorf("%d errors and %d batches: nothing was tried", failed, batches)
	}
}

// TestSmallBatchesAreRead: where a batch has few bytes of each shard, comparing versions would take
// longer than reading.
func TestSmallBatchesAreRead(t *testing.T) {
	dir, ds := onDisk(t, 3003, false, plainRows)
	mapped(t, dir)
	for _, c := range []struct {
		batch int
		lanes uint32
		want  bool
	}{{3, 0, false}, {20, 1, false}, {1000, 0, true}} { // mappings of the first would stay
		batch, want := c.batch, c.want
		s, err := ds.Stream(t.Context(), reader.StreamOptions{Order: reader.Order{GlobalBatch: batch, Shuffle: true, Lanes: c.lanes, Epochs: 1}, Read: reader.Read{Rows: reader.RowsReady}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := mappings(t, dir) > 0; got != want {
			t.Errorf("batches of %d rows: mapped %v", batch, got)
		}
		s.Close()
	}
}

// TestFewDescriptors streams more shards than the process may open, with as few descriptors as do
// without mappings.
func TestFewDescriptors(t *testing.T) {
	dir, ds := onDisk(t, 20_000, false, plainRows)
	mapped(t, dir)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = uint64(len(open)) + 3
	s := rowsStream(t, ds, reader.RowsReady, 0)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	for _, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestMappedOverManyShards streams more shards than are mapped at a time.
func TestMappedOverManyShards(t *testing.T) {
	dir, ds := onDisk(t, 30_000, false, plainRows)
	mapped(t, dir)
	s := rowsStream(t, ds, reader.RowsReady, 0)
	seen, sum := 0, 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		y, _ := b.Rows("y.npy")
		for ; len(y) > 0; y = y[8:] {
			sum += int(binary.LittleEndian.Uint64(y))
			seen++
		}
	}
	if seen != 90_000 || sum != 3*30_000*29_999/2 {
		t.Errorf("%d rows, whose sum is %d", seen, sum)
	}
}
