package block

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// same compares every sample of a block that was packed with those of the block where it is.
func same(t *testing.T, data []byte, count int, foreign bool) {
	t.Helper()
	var want, got Table
	wantErr := want.Add(data, 7, count, Kind{Foreign: foreign})
	decoded, dst := bytes.Clone(data), make([]byte, len(data))
	var p Packer
	for range 2 { // the second time with used memory
		got.Reset()
		given := 0
		room := func(n int) []byte { given = n; return dst[:n:n] }
		b, err := p.Pack(&got, room, decoded, count, foreign)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if len(b.data) != given {
			t.Fatalf("%d bytes of %d are used", len(b.data), given)
		}
		got.AddPacked(b, 7)
		for i := range decoded { // nothing points there
			decoded[i] = 'X'
		}
		var fields, wantFields []format.FieldView
		for i := range count {
			key, fs, _, err := got.Sample(0, i, uint64(7+i), fields[:0], nil)
			wantKey, wantFs, _, _ := want.Sample(0, i, uint64(7+i), wantFields[:0], nil)
			if err != nil || !bytes.Equal(key, wantKey) || len(fs) != len(wantFs) {
				t.Fatalf("sample %d: %q with %d fields, %v; want %q with %d", i, key, len(fs), err, wantKey, len(wantFs))
			}
			for j := range fs {
				if !bytes.Equal(fs[j].Name, wantFs[j].Name) || !bytes.Equal(fs[j].Data, wantFs[j].Data) || fs[j].Data == nil || cap(fs[j].Data) != len(fs[j].Data) {
					t.Fatalf("sample %d, field %d: %q %q; want %q %q", i, j, fs[j].Name, fs[j].Data, wantFs[j].Name, wantFs[j].Data)
				}
			}
		}
		if _, _, _, err := got.Sample(0, count, uint64(7+count), nil, nil); !errors.Is(err, format.ErrMismatch) {
			t.Fatalf("a sample past the last: %v", err)
		}
		copy(decoded, data)
	}
}

// TestPacked packs blocks whose samples differ in fields, and in the form of their headers.
func TestPacked(t *testing.T) {
	same(t, tarBlock("x", 3), 3, false)
	same(t, nil, 0, false)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var b tarblock.Builder
		n := 1 + rnd.IntN(40)
		for i := range n {
			key := fmt.Sprintf("dir/%s%d", strings.Repeat("k", rnd.IntN(250)*rnd.IntN(2)), i)
			fields := 0
			for _, f := range []string{"", "a", "b.c", strings.Repeat("f", 300), fmt.Sprintf("z%d", i)} {
				if fields > 0 && rnd.IntN(2) == 0 || fields == 0 && f == "a" && rnd.IntN(4) > 0 {
					continue
				}
				fields++
				size := rnd.IntN(1500) * rnd.IntN(2)
				at := b.Member(format.JoinName(key, f), size)
				for j := range size {
					b.Buf[at+j] = byte(i + j)
				}
			}
		}
		same(t, b.Buf, n, false)
		same(t, b.Buf, n+1, false) // as many as nobody wrote
	}
}

// TestPackedForeign packs an archive of another tool: fields in any order, extended headers,
// members that are no files.
func TestPackedForeign(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name, data string, format tar.Format) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Format: format}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "dir/", Typeflag: tar.TypeDir}); err != nil {
		t.Fatal(err)
	}
	add("dir/a.txt", "text", tar.FormatUSTAR)
	add("dir/a.cls", "1", tar.FormatUSTAR)
	add("dir/"+strings.Repeat("long", 80)+".json", "{}", tar.FormatPAX)
	add("dir/"+strings.Repeat("long", 80)+".cls", "", tar.FormatGNU)
	add(strings.Repeat("p", 80)+"/"+strings.Repeat("q", 80)+".txt", "prefix", tar.FormatUSTAR)
	add("./e", "no field", tar.FormatUSTAR)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, buf.Bytes(), 4, true)
}

// TestShapesAreShared checks that samples of the same fields share their names, and that more
// shapes than are compared stay right.
func TestShapesAreShared(t *testing.T) {
	var b tarblock.Builder
	for i := range 300 {
		b.Member(format.JoinName(fmt.Sprintf("k%d", i), fmt.Sprintf("f%d", i%(2*shapesTried*(i/200)+1))), 1)
	}
	same(t, b.Buf, 300, false)
	var table Table
	var p Packer
	got, err := p.Pack(&table, func(n int) []byte { return make([]byte, n) }, b.Buf, 300, false)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.shapes); n < 2*shapesTried || n > 100+shapesTried {
		t.Errorf("%d shapes", n)
	}
	if got := cap(got.data); got > 300*8 {
		t.Errorf("%d bytes were kept", got)
	}
}

// FuzzPacked packs what claims to be a block, and compares it with the block where it is.
func FuzzPacked(f *testing.F) {
	f.Add(tarBlock("x", 3), 3, false)
	f.Add(tarBlock("x", 3), 3, true)
	var long tarblock.Builder
	long.Member(strings.Repeat("n", 200)+".a", 3)
	long.Member(strings.Repeat("n", 200)+".b", 0)
	f.Add(long.Buf, 1, false)
	f.Fuzz(func(t *testing.T, data []byte, count int, foreign bool) {
		if count < 0 || count > len(data)/512 || len(data) > MostPacked {
			return
		}
		same(t, data, count, foreign)
	})
}

// BenchmarkPack packs blocks of 1 MiB of samples with keys as files in folders have them.
func BenchmarkPack(b *testing.B) {
	for _, size := range []int{200, 3000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			var of tarblock.Builder
			n := 0
			for ; len(of.Buf) < 1<<20; n++ {
				of.Member(fmt.Sprintf("%04d/%016x.txt", n/1000, n*n), size)
			}
			var table Table
			var p Packer
			dst := make([]byte, len(of.Buf))
			room := func(n int) []byte { return dst[:n] }
			b.SetBytes(int64(len(of.Buf)))
			b.ReportAllocs()
			for b.Loop() {
				table.Reset()
				if _, err := p.Pack(&table, room, of.Buf, n, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/sample")
		})
	}
}
