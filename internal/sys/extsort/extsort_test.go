package extsort

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSortAgainstMemory(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000, 60_000} {
		dir := t.TempDir()
		s := New(dir, 1<<20) // 60,000 records of about 30 bytes spill several times
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		var want [][]byte
		for range n {
			rec := make([]byte, rng.IntN(60))
			for i := range rec {
				rec[i] = byte(rng.IntN(4)) // few values: many equal prefixes and whole duplicates
			}
			want = append(want, rec)
			if err := s.Add(rec); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, bytes.Compare)
		if n == 60_000 && s.Spilled() == 0 {
			t.Fatal("the test was to spill and did not")
		}
		for pass := range 2 {
			i := 0
			for rec, err := range s.All() {
				if err != nil {
					t.Fatal(err)
				}
				if i >= len(want) || !bytes.Equal(rec, want[i]) {
					t.Fatalf("n=%d pass %d: record %d is %x", n, pass, i, rec)
				}
				i++
			}
			if i != n || s.Len() != int64(n) {
				t.Fatalf("n=%d: %d records came back, Len says %d", n, i, s.Len())
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

func TestSpillWithoutRoom(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "missing"), 1<<20)
	defer s.Close()
	var err error
	for range 1 << 16 {
		if err = s.Add(make([]byte, 64)); err != nil {
			break
		}
	}
	if !os.IsNotExist(unwrapAll(err)) {
		t.Fatalf("spilling into a missing folder: %v", err)
	}
	for _, err2 := range s.All() {
		if err2 == nil {
			t.Fatal("a sorter that failed gave records")
		}
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || u.Unwrap() == nil {
			return err
		}
		if os.IsNotExist(err) {
			return err
		}
		err = u.Unwrap()
	}
}
