package samplekey

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// decodeKeys reads a whole table.
func decodeKeys(raw []byte, entries uint64) ([]Entry, error) {
	k := Table{entries}
	if err := k.CheckHeader(raw[:min(len(raw), HeaderLen)]); err != nil {
		return nil, err
	}
	return k.Decode(nil, raw[HeaderLen:], 0, k.Groups())
}

// TestKeyTable: all entries come back, from the whole table and from the groups where a hash must
// be.
func TestKeyTable(t *testing.T) {
	for _, n := range []int{0, 1, 2, 255, 256, 257, 1023, 1024, 1025, 70_000} {
		entries := keyEntries(n)
		raw := keyTable(t, entries)
		k := Table{uint64(n)}
		if int64(len(raw)) != k.Size() {
			t.Fatalf("%d entries: %d bytes, Size says %d", n, len(raw), k.Size())
		}
		if got, err := decodeKeys(raw, k.Entries); err != nil || !slices.Equal(got, entries) {
			t.Fatalf("%d entries: %d came back, %v", n, len(got), err)
		}
		for i := range min(n, 500) {
			e := entries[i*n/min(n, 500)]
			from, to := k.Guess(e.Hash)
			off, size := k.Range(from, to)
			got, err := k.Decode(nil, raw[off:off+size], from, to)
			if err != nil {
				t.Fatalf("%d entries, groups %d to %d: %v", n, from, to, err)
			}
			if a, b := Search(got, e.Hash); !slices.Contains(got[a:b], e) {
				t.Fatalf("%d entries: hash %x in groups %d to %d: %v, want number %d", n, e.Hash, from, to, got[a:b], e.Number)
			}
			if to-from > 8 {
				t.Errorf("%d entries: %d groups are read for one", n, to-from)
			}
		}
		if a, b := Search(entries, 12345); a != b {
			t.Errorf("found %v for a hash that is not there", entries[a:b])
		}
		for _, h := range []uint64{0, 1, 1 << 63, 1<<64 - 1} {
			if from, to := k.Guess(h); from < 0 || to > k.Groups() || from > to || (n > 0 && from == to) {
				t.Errorf("%d entries: hash %x guessed in groups %d to %d of %d", n, h, from, to, k.Groups())
			}
		}
	}
}

// TestKeyTableGuess: the hashes of keys are where Guess looks, for tables too large to build here.
func TestKeyTableGuess(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	hashes := make([]uint64, 1_000_000)
	for i := range hashes {
		hashes[i] = r.Uint64()
	}
	slices.Sort(hashes)
	k := Table{uint64(len(hashes))}
	for i, h := range hashes {
		if from, to := k.Guess(h); int64(i/keyGroup) < from || int64(i/keyGroup) >= to {
			t.Fatalf("entry %d is in group %d, guessed %d to %d", i, i/keyGroup, from, to)
		}
	}
}

// TestKeyTableRefuses: what a caller must not do.
func TestKeyTableRefuses(t *testing.T) {
	for _, e := range []Entry{{5, 1}, {5, 0}, {4, 9}} {
		if err := WriteTable(io.Discard, 2, each([]Entry{{5, 1}, e})); err == nil {
			t.Errorf("entry %v after {5 1} was taken", e)
		}
	}
	if err := WriteTable(io.Discard, 2, each([]Entry{{5, 1}})); err == nil {
		t.Error("a table that lacks an entry was written")
	}
	if err := WriteTable(io.Discard, 1, each([]Entry{{5, 1}, {6, 0}})); err == nil {
		t.Error("a table with an entry too many was written")
	}
	err := WriteTable(io.Discard, 1, func(yield func(Entry, error) bool) { yield(Entry{}, io.ErrNoProgress) })
	if !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("%v, want the error of the entries", err)
	}
}

// TestKeyTableDamage: cut, flipped and hostile tables.
func TestKeyTableDamage(t *testing.T) {
	const n = 1100
	entries := keyEntries(n)
	raw := keyTable(t, entries)
	for cut := range raw {
		if _, err := decodeKeys(raw[:cut], n); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("the first %d bytes: %v", cut, err)
		}
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1 << (i % 8)
		if _, err := decodeKeys(bad, n); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("bit flipped in byte %d: %v", i, err)
		}
	}
	for _, wrong := range []uint64{0, 1, n - 1, n + 1, 1 << 16, 1 << 32} {
		if _, err := decodeKeys(raw, wrong); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("read as a table of %d entries: %v", wrong, err)
		}
	}
	header := func(edit func(h []byte)) []byte {
		bad := bytes.Clone(raw)
		edit(bad)
		binary.LittleEndian.PutUint32(bad[HeaderLen-4:], codec.Checksum(bad[:HeaderLen-4]))
		return bad
	}
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"major":   {header(func(h []byte) { h[8] = 2 }), format.ErrVersion},
		"minor":   {header(func(h []byte) { h[10] = 2 }), nil},
		"width":   {header(func(h []byte) { h[12] = 1 }), format.ErrCorrupt},
		"entries": {header(func(h []byte) { h[16]++ }), format.ErrCorrupt},
		"group":   {header(func(h []byte) { h[24]++ }), format.ErrCorrupt},
	} {
		if _, err := decodeKeys(c.raw, n); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	k := Table{n}
	at := HeaderLen
	group := func(edit func(g []byte)) []byte {
		bad := bytes.Clone(raw)
		g := bad[at : at+int(k.groupLen())]
		edit(g)
		binary.LittleEndian.PutUint32(g[len(g)-4:], codec.Checksum(g[:len(g)-4]))
		return bad
	}
	for name, bad := range map[string][]byte{
		"number of no sample": group(func(g []byte) { g[8], g[9] = 0xff, 0xff }),
		"not in order":        group(func(g []byte) { g[0] = 0xff }),
		"twice":               group(func(g []byte) { copy(g[10:20], g[:10]) }),
		"last of the group":   group(func(g []byte) { copy(g[1023*10:], bytes.Repeat([]byte{0xff}, 8)) }),
	} {
		if _, err := decodeKeys(bad, n); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n1 := allocated.Bytes(func() {
		if _, err := (Table{1 << 50}).Decode(nil, raw, 0, 1<<40); err == nil {
			t.Error("a table of 2^50 entries was read from a few bytes")
		}
	})
	if n1 > 64<<10 {
		t.Errorf("%d bytes allocated", n1)
	}
}

// FuzzKeyTable decodes any bytes as the groups of a keys table.
func FuzzKeyTable(f *testing.F) {
	for _, n := range []int{0, 1, 5, 300, 1030} {
		f.Add(uint64(n), keyTable(f, keyEntries(n)), false)
		f.Add(uint64(n), keyTable(f, keyEntries(n)), true)
	}
	f.Fuzz(func(t *testing.T, entries uint64, raw []byte, mended bool) {
		if entries %= 1 << 57; len(raw) < HeaderLen {
			return
		}
		k := Table{entries}
		if mended {
			raw = bytes.Clone(raw)
			binary.LittleEndian.PutUint32(raw[HeaderLen-4:], codec.Checksum(raw[:HeaderLen-4]))
			for g := raw[HeaderLen:]; len(g) > 4; {
				n := int(min(k.groupLen(), int64(len(g))))
				binary.LittleEndian.PutUint32(g[n-4:], codec.Checksum(g[:n-4]))
				g = g[n:]
			}
		}
		got, err := decodeKeys(raw, entries)
		if err != nil {
			if !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if uint64(len(got)) != entries || !slices.IsSortedFunc(got, Entry.Compare) {
			t.Fatalf("%d entries of %d", len(got), entries)
		}
		if again := keyTable(t, got); !bytes.Equal(again[HeaderLen:], raw[HeaderLen:]) {
			t.Fatal("written again it differs")
		}
	})
}

// keyEntries are n sorted entries, some hashes there several times.
func keyEntries(n int) []Entry {
	e := make([]Entry, n)
	for i := range e {
		e[i] = Entry{Hash(fmt.Sprintf("key %d", i-i%7%2)), uint64(i)}
	}
	slices.SortFunc(e, Entry.Compare)
	return e
}

func keyTable(t testing.TB, entries []Entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteTable(&buf, uint64(len(entries)), each(entries)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func each(entries []Entry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i := 0; i < len(entries) && yield(entries[i], nil); i++ {
		}
	}
}
