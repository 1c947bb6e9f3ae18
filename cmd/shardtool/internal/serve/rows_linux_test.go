package serve

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/mem"
	"github.com/shardtool/shardtool/writer"
)

// packRows packs n stacked samples: x.npy is the sample's number three times, y.npy the number.
func packRows(t *testing.T, n int) *mem.Store {
	t.Helper()
	store := mem.New()
	packRowsInto(t, store, n, false)
	return store
}

// packRowsInto is packRows in a store.
func packRowsInto(t *testing.T, store objstore.Store, n int, isPlain bool) {
	t.Helper()
	w, err := writer.New(t.Context(), store, writer.Options{BlockSize: 4 << 10, ShardSize: 64 << 10, Layout: writer.LayoutStacked, Plain: isPlain})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range n {
		x, y := npy.AppendHeader(nil, "<u4", 3, 1), npy.AppendHeader[int](nil, "<i8")
		for range 3 {
			x = binary.LittleEndian.AppendUint32(x, uint32(i))
		}
		y = binary.LittleEndian.AppendUint64(y, uint64(i))
		s := writer.Sample{Key: fmt.Sprintf("k%05d", i), Fields: []writer.Field{{Name: "x.npy", Data: x}, {Name: "y.npy", Data: y}}}
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRowsOfChangedShard cuts a shard between two batches, again and again. Each run ends with an
// error and leaves all of the ring to the next.
func TestRowsOfChangedShard(t *testing.T) {
	dir := t.TempDir()
	store, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	packRowsInto(t, store, 1000, true)
	cutAgain(t, dir, store, "", `{"batch_size":400,"prefetch":0,"ring":65536,"columns":[{"name":"x.npy","decode":"npy"}]}`)
}

// TestSamplesOfChangedShard is TestRowsOfChangedShard for samples of plain tars. What is cut off is
// missed when a part of the batch is in its region.
func TestSamplesOfChangedShard(t *testing.T) {
	dir := t.TempDir()
	store, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.New(t.Context(), store, writer.Options{BlockSize: 64 << 10, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range 60 {
		s := writer.Sample{Key: fmt.Sprintf("k%05d", i), Fields: []writer.Field{{Name: "bin", Data: bytes.Repeat([]byte{byte(i)}, 16<<10)}}}
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	cutAgain(t, dir, store, "k00019.bin", `{"batch_size":10,"prefetch":0,"ring":262144,"columns":[{"name":"bin","decode":"bytes"}]}`)
}

// cutAgain has five runs of a data set of one shard, which is cut after the first batch of each, within
// the member of that name.
func cutAgain(t *testing.T, dir string, store objstore.Store, member, start string) {
	t.Helper()
	shard := filepath.Join(dir, "data-000000.tar")
	whole, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	if member != "" {
		size = int64(bytes.Index(whole, []byte(member))) + 1024
	}
	c := dial(t, store)
	c.info()
	for run := uint64(1); run <= 5; run++ {
		time.Sleep(100 * time.Millisecond) // a file that changed just now is not mapped
		c.start(run, start)
		c.ask(run, 0)
		g := c.batch()
		c.release(&g.frame)
		if err := os.Truncate(shard, size); err != nil {
			t.Fatal(err)
		}
		c.ask(run, 1)
		f, body := c.next()
		if f.kind() == kindBatch {
			t.Skip("files are not mapped here")
		}
		if f.kind() != kindError || !bytes.Contains(body, []byte("data-000000.tar")) || !bytes.Contains(body, []byte(objstore.ErrChanged.Error())) {
			t.Fatalf("a frame of kind %d: %s", f.kind(), body)
		}
		if err := os.WriteFile(shard, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRows compares the batches of rows with those made of samples, which an optional column asks
// for: every byte that a parent sees is the same, and padding is zero.
func TestRows(t *testing.T) {
	const n = 1000
	store := packRows(t, n)
	for _, tail := range []string{"short", "pad"} {
		var clients [2]*client
		for i, optional := range []bool{false, true} {
			c := dial(t, store)
			c.info()
			columns := fmt.Sprintf(`[{"name":"y.npy","decode":"npy"},{"name":"x.npy","decode":"npy","optional":%v}]`, optional && tail == "short")
			c.start(1, fmt.Sprintf(`{"batch_size":64,"shuffle":true,"tail":%q,"columns":%s}`, tail, columns))
			clients[i] = c
		}
		seen := map[uint64]bool{}
		for k := range uint64((n + 63) / 64) {
			var both [2]got
			for i, c := range clients {
				c.ask(1, k)
				both[i] = c.batch()
			}
			a, b := both[0], both[1]
			if !slices.Equal(a.numbers, b.numbers) || !slices.Equal(a.keys, b.keys) || !reflect.DeepEqual(a.columns, b.columns) {
				t.Fatalf("%s: batch %d of rows differs from that of samples", tail, k)
			}
			if a.columns[0].kind != columnArray || a.columns[1].kind != columnArray || a.columns[1].stride != 12 {
				t.Fatalf("columns of kind %d and %d, in rows of %d", a.columns[0].kind, a.columns[1].kind, a.columns[1].stride)
			}
			for i, number := range a.numbers {
				x, y := a.columns[1].payloads[i], a.columns[0].payloads[i]
				if y == nil {
					if tail != "pad" || !bytes.Equal(a.columns[1].data[12*i:][:12], make([]byte, 12)) || a.keys[i] != "" {
						t.Fatalf("batch %d: row %d of padding", k, i)
					}
					continue
				}
				seen[number] = true
				if binary.LittleEndian.Uint32(x[8:]) != uint32(number) || binary.LittleEndian.Uint64(y) != number || a.keys[i] != fmt.Sprintf("k%05d", number) {
					t.Fatalf("sample %d with the key %q has % x and % x", number, a.keys[i], x, y)
				}
			}
		}
		if len(seen) != n {
			t.Errorf("%s: %d samples of %d", tail, len(seen), n)
		}
	}
}

// TestRowsOrNot chooses rows only where all columns are arrays of the data.
func TestRowsOrNot(t *testing.T) {
	store := packRows(t, 10)
	for _, c := range []struct{ columns, refused string }{
		{`{"name":"x.npy","decode":"bytes"}`, ""},
		{`{"name":"x.npy","decode":"npy"},{"name":"y.npy","decode":"bytes"}`, ""},
		{`{"name":"z.npy","decode":"npy"}`, `field "z.npy": the sample has no such field`},
	} {
		cl := dial(t, store)
		cl.info()
		cl.start(1, fmt.Sprintf(`{"batch_size":10,"columns":[%s]}`, c.columns))
		cl.ask(1, 0)
		if c.refused != "" {
			_, body := cl.want(kindError)
			if !bytes.Contains(body, []byte("no such field")) {
				t.Errorf("%s", body)
			}
			continue
		}
		if g := cl.batch(); len(g.numbers) != 10 || !bytes.HasPrefix(last(g.columns).payloads[0], []byte(npy.Magic)) {
			t.Errorf("%s: %+v", c.columns, g.columns)
		}
	}
}

func last(columns []gotColumn) *gotColumn { return &columns[len(columns)-1] }
