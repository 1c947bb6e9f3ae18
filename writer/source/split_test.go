package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// keysOf reads a source to its end, and goes back to every cursor on the way.
func keysOf(t testing.TB, src writer.Source) (keys []string) {
	t.Helper()
	cursors := []string{src.Cursor()}
	for {
		s, err := src.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, s.Key)
		cursors = append(cursors, src.Cursor())
	}
	for i, c := range cursors {
		if err := src.Seek(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		s, err := src.Next(context.Background())
		if i == len(keys) != errors.Is(err, io.EOF) || (i < len(keys) && s.Key != keys[i]) {
			t.Fatalf("cursor %s: %q %v", c, s.Key, err)
		}
	}
	return keys
}

// TestSplit: parts of any number are the samples of the whole in its order, shuffled or not, and
// never halves of samples.
func TestSplit(t *testing.T) {
	dir, second := t.TempDir(), t.TempDir()
	for i := range 23 {
		put(t, dir, fmt.Sprintf("c%d/%02d.txt", i%3, i), fmt.Sprint(i))
		put(t, dir, fmt.Sprintf("c%d/%02d.seg.png", i%3, i), "image")
	}
	put(t, second, "c0/00.json", "another sample of that key")
	for _, shuffle := range []bool{false, true} {
		opt := source.FilesOptions{Shuffle: shuffle, Seed: 7, ClassField: "cls"}
		whole := open(t, opt, dir, second)
		print, meta := whole.Fingerprint(), whole.Meta()["classes"]
		_, size := whole.Total()
		want := keysOf(t, whole)
		for _, parts := range []int{1, 2, 3, 7, 24, 25, 1000} {
			var got []string
			sum := int64(0)
			for part := range parts {
				if parts == 1000 && part%41 != 0 && part > 100 {
					continue // most are empty
				}
				src, err := source.NewFiles(t.Context(), []string{dir, second}, opt)
				if err != nil {
					t.Fatal(err)
				}
				if err := src.Split(part, parts); err != nil {
					t.Fatal(err)
				}
				n, bytes := src.Total()
				keys := keysOf(t, src)
				if int64(len(keys)) != n || src.Fingerprint() != print || src.Meta()["classes"] != meta {
					t.Fatalf("part %d of %d: %d samples of %d", part, parts, len(keys), n)
				}
				if n > int64(len(want)/parts+1) {
					t.Errorf("part %d of %d has %d samples of %d", part, parts, n, len(want))
				}
				if err := src.Seek(t.Context(), "24"); part < parts-1 && err == nil {
					t.Error("went to the end of another part")
				}
				got, sum = append(got, keys...), sum+bytes
				if err := src.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if parts < 1000 && (!slices.Equal(got, want) || sum != size) {
				t.Errorf("%d parts, shuffled %v: %d samples and %d bytes, want %d and %d", parts, shuffle, len(got), sum, len(want), size)
			}
		}
		for _, c := range [][2]int{{3, 3}, {-1, 3}, {0, 0}} {
			if whole.Split(c[0], c[1]) == nil {
				t.Errorf("part %d of %d", c[0], c[1])
			}
		}
	}
}
