package tar

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSplit: parts are runs of whole archives, cut where their bytes are, together all samples in
// order.
func TestSplit(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 9 {
		var entries []entry
		for k := range 1 + i*3 {
			entries = append(entries, entry{name: fmt.Sprintf("a%d/%03d.txt", i, k), data: noise(byte(i), 100*k)})
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.tar", i))
		if err := os.WriteFile(path, archiveOf(t, entries), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	whole := open(t, Options{}, paths...)
	print := whole.Fingerprint()
	_, size := whole.Total()
	want, _, err := rest(t, whole)
	if err != nil {
		t.Fatal(err)
	}
	largest := int64(0)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	for _, parts := range []int{1, 2, 3, 5, 9, 40} {
		var all []string
		sum := int64(0)
		for part := range parts {
			src := open(t, Options{}, paths...)
			if err := src.Split(part, parts); err != nil {
				t.Fatal(err)
			}
			begin := src.Cursor()
			_, n := src.Total()
			some, _, err := rest(t, src)
			if err != nil || src.Fingerprint() != print || n > size/int64(parts)+largest {
				t.Fatalf("part %d of %d: %d bytes, %v", part, parts, n, err)
			}
			end := src.Cursor()
			if err := src.Seek(t.Context(), begin); err != nil {
				t.Fatal(err)
			}
			if again, _, err := rest(t, src); err != nil || !slices.Equal(again, some) {
				t.Fatalf("part %d of %d read again: %d samples, %v", part, parts, len(again), err)
			}
			if err := src.Seek(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			if _, err := src.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Fatalf("part %d of %d goes on behind its end: %v", part, parts, err)
			}
			for _, other := range []string{fmt.Sprintf("%d:0", src.from-1), fmt.Sprintf("%d:0", src.to+1)} {
				if src.Seek(t.Context(), other) == nil {
					t.Errorf("part %d of %d went to %s", part, parts, other)
				}
			}
			all, sum = append(all, some...), sum+n
		}
		if !slices.Equal(all, want) || sum != size {
			t.Errorf("%d parts: %d samples, %d bytes; want %d, %d", parts, len(all), sum, len(want), size)
		}
	}
	if whole.Split(3, 3) == nil || whole.Split(-1, 3) == nil || whole.Split(0, 0) == nil {
		t.Error("a part that is none")
	}
}
