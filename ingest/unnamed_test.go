package ingest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/input/tally"
)

// TestUnnamedSum: each file of a random folder holds rows, is named by one, or is counted as left
// out, whatever parts of the rows a run packs.
func TestUnnamedSum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		dir := t.TempDir()
		put := func(name, text string) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		rowFiles, named, unnamed, hidden := 0, 0, 0, 0
		for _, folder := range []string{"", "a/", "a/b/"}[:1+r.IntN(3)] {
			rows := "file_name,second\n"
			for i := range 1 + r.IntN(6) {
				name := fmt.Sprintf("%d.jpg", i)
				put(folder+name, "x")
				if r.IntN(3) == 0 && i > 0 {
					unnamed++
					continue
				}
				named++
				rows += fmt.Sprintf("%s,./%s\n", name, name) + strings.Repeat(name+","+name+"\n", r.IntN(2))
			}
			put(folder+"metadata.csv", rows+"none.jpg,none.jpg\n../../../out,x\n")
			rowFiles++
			if r.IntN(2) == 0 {
				put(folder+".hidden", "")
				hidden++
			}
			if r.IntN(2) == 0 {
				put(folder+"README.md", "")
				unnamed++
			}
		}
		f, err := Open(t.Context(), []string{dir}, Options{Rows: Rows{Files: []FileColumn{{"image", "file_name"}, {"again", "second"}}}})
		if err != nil {
			t.Fatal(seed, err)
		}
		n := f.Names()
		if n.Listed != int64(rowFiles+named+unnamed+hidden) || n.Left(tally.Unnamed) != int64(unnamed) || n.Total() != int64(unnamed+hidden) {
			t.Errorf("%d: listed %d, left out %s; want %d files of rows, %d named, %d not, %d hidden", seed, n.Listed, n, rowFiles, named, unnamed, hidden)
		}
		f.Close()
	}
}
