package keysort

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// entries makes n entries. The hashes have this many random low bits, so few bits give equal hashes
// and long common prefixes. The numbers are in no order.
func entries(n int, bits uint) []samplekey.Entry {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(bits)))
	all := make([]samplekey.Entry, n)
	for i := range all {
		all[i] = samplekey.Entry{Hash: rng.Uint64() >> (64 - bits), Number: rng.Uint64N(uint64(n))<<20 | uint64(i)}
	}
	return all
}

func sorted(all []samplekey.Entry) []samplekey.Entry {
	want := slices.Clone(all)
	slices.SortFunc(want, samplekey.Entry.Compare)
	return want
}

func TestSortAgainstMemory(t *testing.T) {
	for _, n := range []int{0, 1, 2, fewEntries + 1, leastRoom, leastRoom + 1, 3 * leastRoom, 20_000} {
		for _, bits := range []uint{0, 1, 9, 40, 64} {
			dir := t.TempDir()
			s := New[samplekey.Entry](dir, 1)
			all := entries(n, bits)
			for _, e := range all {
				if err := s.Add(e); err != nil {
					t.Fatal(err)
				}
			}
			if spilled := len(s.runs) > 0; spilled != (n > leastRoom) {
				t.Fatalf("n=%d: spilled is %v", n, spilled)
			}
			want := sorted(all)
			for pass := range 2 {
				var got []samplekey.Entry
				for e, err := range s.All() {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("n=%d bits=%d pass %d: %d entries, want %d, or another order", n, bits, pass, len(got), len(want))
				}
			}
			for range s.All() { // a reader may stop
				break
			}
			if err := s.Add(samplekey.Entry{}); err == nil {
				t.Fatal("took an entry after All")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
				t.Fatalf("left behind: %v", left)
			}
		}
	}
}

// TestChecked: longer records come back in order too, through memory and through the file.
func TestChecked(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, leastRoom - 1, leastRoom, leastRoom + 1, 50_000} {
		s := New[Checked](t.TempDir(), 1)
		var want, got []Checked
		for range n {
			r := Checked{rng.Uint64N(50), rng.Uint64N(50), rng.Uint64N(50)}
			want = append(want, r)
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, func(a, b Checked) int {
			return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Value, b.Value))
		})
		for r, err := range s.All() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d records: %d came, or in another order", n, len(got))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSpillWithoutRoom(t *testing.T) {
	s := New[samplekey.Entry](filepath.Join(t.TempDir(), "missing"), 1)
	defer s.Close()
	var err error
	for range 2 * leastRoom {
		if err = s.Add(samplekey.Entry{}); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("spilling into a missing folder: %v", err)
	}
	for _, err2 := range s.All() {
		if !errors.Is(err2, os.ErrNotExist) {
			t.Fatalf("a sorter that failed: %v", err2)
		}
	}
}

// TestFailedSpill: the goroutine that spills cannot write. Add or All returns its error.
func TestFailedSpill(t *testing.T) {
	s := New[samplekey.Entry](t.TempDir(), 1)
	defer s.Close()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	s.file = f
	for i := range leastRoom + 1 {
		if err := s.Add(samplekey.Entry{Number: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	var last error
	for _, err := range s.All() {
		last = err
	}
	if !errors.Is(last, os.ErrClosed) {
		t.Fatalf("entries that were not written: %v", last)
	}
}

// TestCutFile: the temporary file lost its end. That is an error, not fewer entries.
func TestCutFile(t *testing.T) {
	for _, cut := range []int64{1, 16, 160} {
		s := New[samplekey.Entry](t.TempDir(), 1)
		for _, e := range entries(leastRoom+1, 64) {
			if err := s.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		s.All()
		if err := s.file.Truncate(s.entries()*16 - cut); err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range s.All() {
			last = err
		}
		if !errors.Is(last, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes less: %v", cut, last)
		}
		s.Close()
	}
}

// TestClosed: a Sorter that is closed gives an error, and holds no file.
func TestClosed(t *testing.T) {
	s := New[samplekey.Entry](t.TempDir(), 1)
	for _, e := range entries(leastRoom+1, 64) {
		if err := s.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	file := s.file
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	if s.Add(samplekey.Entry{}) == nil {
		t.Fatal("took an entry")
	}
	for _, err := range s.All() {
		if err == nil {
			t.Fatal("gave an entry")
		}
	}
}

func BenchmarkSort(b *testing.B) {
	all := entries(1<<20, 64)
	run, scratch := make([]samplekey.Entry, len(all)), make([]samplekey.Entry, len(all))
	for b.Loop() {
		copy(run, all)
		sortEntries(run, scratch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/entry")
}
