package serve

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// packRows packs n stacked samples: x.npy is the sample's number three times, y.npy the number.
func packRows(t *testing.T, n int) *mem.Store {
	t.Helper()
	store := mem.New()
	w, err := writer.New(t.Context(), store, writer.Options{BlockSize: 4 << 10, ShardSize: 64 << 10, Layout: writer.LayoutStacked})
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
	return store
}

// TestRows compares the batches of rows with those made of samples, which an optional column asks
// for: every byte that a parent sees is the same, of padding too.
func TestRows(t *testing.T) {
	const n = 1000
	store := packRows(t, n)
	for _, tail := range []string{"short", "pad"} {
		var clients [2]*client
		for i, optional := range []bool{false, true} {
			c := dial(t, store)
			c.info()
			columns := fmt.Sprintf(`[{"name":"y.npy","decode":"npy"},{"name":"x.npy","decode":"npy","optional":%v}]`, optional)
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
