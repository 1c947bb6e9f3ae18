package source_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// order is the keys in the order a source yields them.
func order(t *testing.T, src *source.Files) (keys []string) {
	t.Helper()
	if err := src.Seek(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	for {
		s, err := src.Next(t.Context())
		if err != nil {
			return keys
		}
		keys = append(keys, fmt.Sprint(s.Origin[:len(s.Origin)-len(s.Key)-4], ":", s.Key))
	}
}

// numbered makes n small files of two fields, without content, in folders of 100.
func numbered(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if i%100 == 0 {
			if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("d%03d", i/100)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{"aaa", "bbb"} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("d%03d/%06d.%s", i/100, i, f)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestShuffle: a permutation, the same for a seed and another for another, in which neighbours have
// nothing to do with each other.
func TestShuffle(t *testing.T) {
	const n = 1200
	dir := numbered(t, n)
	shuffled := func(seed uint64) []string {
		return order(t, open(t, source.FilesOptions{Shuffle: true, Seed: seed}, dir))
	}
	plain := order(t, open(t, source.FilesOptions{}, dir))
	if len(plain) != n || !slices.IsSorted(plain) {
		t.Fatal("not in order without Shuffle")
	}
	place := map[string]int{}
	for i, k := range plain {
		place[k] = i
	}
	var orders [][]string
	for _, seed := range []uint64{0, 1, 2, math.MaxUint64} {
		got := shuffled(seed)
		if !slices.Equal(got, shuffled(seed)) {
			t.Fatal("the same seed gave another order")
		}
		if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, plain) {
			t.Fatal("no permutation")
		}
		// Neighbours in a random permutation lie n/3 apart on average, with a deviation of the mean
		// of n/sqrt(18·n); those of the same folder of 100 are neighbours in one of 12 cases.
		dist, folder := 0.0, 0
		for i := range n - 1 {
			a, b := place[got[i]], place[got[i+1]]
			dist += math.Abs(float64(a - b))
			if a/100 == b/100 {
				folder++
			}
		}
		if mean := dist / (n - 1); math.Abs(mean-n/3.0) > 6*n/math.Sqrt(18*n) {
			t.Fatalf("seed %d: neighbours are %.0f apart, %d expected", seed, mean, n/3)
		}
		if math.Abs(float64(folder)-100) > 6*math.Sqrt(100) {
			t.Fatalf("seed %d: %d neighbours of one folder, 100 expected", seed, folder)
		}
		for _, other := range orders {
			same := 0
			for i := range got {
				if got[i] == other[i] {
					same++
				}
			}
			if same > 8 { // 1 expected
				t.Fatalf("two seeds agree in %d places", same)
			}
		}
		orders = append(orders, got)
	}
}

// TestShuffleSpilled: names that do not fit in memory are sorted through a file; the order is the
// same, with and without Shuffle, and over two folders.
func TestShuffleSpilled(t *testing.T) {
	dir, other := numbered(t, 100), t.TempDir()
	for i := range 2400 { // each takes some 450 bytes: above the least limit of 1 MiB
		put(t, other, fmt.Sprintf("%0200d.txt", i*7919%2400), "")
	}
	temp := t.TempDir()
	for _, shuffle := range []bool{false, true} {
		opt := source.FilesOptions{Shuffle: shuffle, Seed: 5, Memory: 1 << 30, TempDir: temp + "/missing"}
		inMemory := open(t, opt, dir, other)
		opt.Memory = 1
		if _, err := source.NewFiles(t.Context(), []string{dir, other}, opt); !os.IsNotExist(rootCause(err)) {
			t.Fatalf("it was to spill: %v", err)
		}
		opt.TempDir = temp
		spilled := open(t, opt, dir, other)
		a, b := order(t, inMemory), order(t, spilled)
		if !slices.Equal(a, b) || len(a) != 2500 {
			t.Fatalf("%d and %d samples", len(a), len(b))
		}
		if inMemory.Fingerprint() != spilled.Fingerprint() {
			t.Fatal("other fingerprints")
		}
		_, size := spilled.Total()
		if n, _ := inMemory.Total(); n != 2500 || size != 0 {
			t.Fatal(n, size)
		}
	}
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Fatalf("%v left behind", left)
	}
}

func rootCause(err error) error {
	for err != nil && !os.IsNotExist(err) {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
	return err
}

// TestShuffledPack interrupts a shuffled pack with a class field and continues with a new source.
func TestShuffledPack(t *testing.T) {
	dir := t.TempDir()
	for i := range 120 {
		put(t, dir, fmt.Sprintf("c%d/%03d.txt", i%5, i), fmt.Sprint(i, string(make([]byte, 2000+i))))
	}
	opt := source.FilesOptions{Shuffle: true, Seed: 3, ClassField: "cls"}
	clean := mem.New()
	want, err := writer.Pack(t.Context(), clean, open(t, opt, dir), packOptions())
	if err != nil {
		t.Fatal(err)
	}
	st := mem.New()
	limited := packOptions()
	limited.Workers = 1
	src := &stopAfter{Files: open(t, opt, dir), left: 90}
	limited.Progress = func(p writer.Progress) { src.shards.Store(p.Shards) }
	if _, err := writer.Pack(t.Context(), st, src, limited); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	again := packOptions()
	again.Resume = true
	res, err := writer.Pack(t.Context(), st, open(t, opt, dir), again)
	if err != nil || res.Digest != want.Digest || res.Adopted == 0 {
		t.Fatalf("%+v %v", res, err)
	}
}
