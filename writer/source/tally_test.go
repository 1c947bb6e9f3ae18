package source

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// oddStore lists any names.
type oddStore struct {
	objstore.Store
	names []string
}

func (s *oddStore) Traits() objstore.Traits {
	return objstore.Traits{ListAll: func(context.Context, string) iter.Seq2[objstore.Info, error] {
		return func(yield func(objstore.Info, error) bool) {
			for _, name := range s.names {
				if !yield(objstore.Info{Name: name, ETag: "1"}, nil) {
					return
				}
			}
		}
	}}
}

// oddElements make names of which some are no objects.
var oddElements = []string{"a", "b.jpg", ".hidden", "._fork", "__MACOSX", "_x", "c\\d", "", ".", "..", "e\nf", "g\x00h", "\xff.txt", strings.Repeat("n", 200), "x.1.jpg", "_y=1"}

func oddNames(r *rand.Rand) (names []string) {
	for range r.IntN(40) {
		var elements []string
		for range 1 + r.IntN(6) {
			elements = append(elements, oddElements[r.IntN(len(oddElements))])
		}
		if name := strings.Join(elements, "/"); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestTallySum: all names of random stores and folders are listed, and each was packed or left out
// by a rule.
func TestTallySum(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		opt := FilesOptions{LeaveUnsafe: true}
		if r.IntN(2) == 0 {
			opt.Exclude = []string{"*.jpg"}
		}
		if r.IntN(4) == 0 {
			opt.Include = []string{"**/.hidden/**", "*.txt", "._*"}
		}
		names := oddNames(r)
		files, want := &Files{}, int64(0)
		for _, name := range names {
			if !strings.HasSuffix(name, "/") {
				want++
			}
		}
		check := func(what string, err error) {
			if err != nil {
				t.Fatal(what, err)
			}
			defer files.Close()
			if n := &files.Tally; n.Listed != want || n.Listed != files.Fused.Files+n.Total() {
				t.Errorf("%s %d: %q: listed %d, packed %d, left out %s, want %d", what, seed, names, n.Listed, files.Fused.Files, n, want)
			}
		}
		var err error
		files, err = NewObjects(t.Context(), []objstore.Store{&oddStore{mem.New(), names}}, opt)
		check("store", err)
		if i := slices.IndexFunc(names, func(name string) bool {
			return !strings.HasSuffix(name, "/") && objstore.CheckName(name) != nil && (&walker{f: &fileSource{opt: opt}}).choice().Leaves(name) == ""
		}); i >= 0 {
			refuse := opt
			refuse.LeaveUnsafe = false
			if _, err := NewObjects(t.Context(), []objstore.Store{&oddStore{mem.New(), names}}, refuse); err == nil || !strings.Contains(err.Error(), "invalid object name") {
				t.Errorf("%q is not refused: %v", names[i], err)
			}
		}

		dir := t.TempDir()
		var made []string
		for i, name := range names {
			flat := fmt.Sprintf("%d/%s", i, strings.NewReplacer("\x00", "", "..", "", "//", "/").Replace(name))
			if !filepath.IsLocal(flat) || strings.HasSuffix(flat, "/") {
				continue
			}
			if os.MkdirAll(filepath.Dir(filepath.Join(dir, flat)), 0o777) == nil && os.WriteFile(filepath.Join(dir, flat), nil, 0o666) == nil {
				made = append(made, flat)
			}
		}
		opt.Include = nil
		names, want = made, 0
		hidden := map[string]bool{} // the topmost folders or files that are hidden
		for _, name := range made {
			at, top := 0, ""
			for element := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
				at += len(element) + 1
				folder := at < len(filepath.Clean(name))
				if strings.HasPrefix(element, ".") || element == "__MACOSX" && folder {
					top = filepath.Clean(name)[:at-1]
					break
				}
			}
			if top == "" {
				want++
			} else if !hidden[top] {
				hidden[top] = true
				want++
			}
		}
		files, err = NewFiles(t.Context(), []string{dir}, opt)
		check("folder", err)
	}
}
