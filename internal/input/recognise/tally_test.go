package recognise

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/writer/source"
)

// named is a place whose files have names alone. On a disk, folders that begin with a dot are
// listed and not the files in them.
type named struct {
	names []string
	disk  bool
}

func (p named) Input(string) (source.Input, error) { return source.Input{}, errors.New("no bytes") }

func (p named) Names(context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		apart := map[string]bool{}
		for _, name := range p.names {
			at, hidden := 0, false
			for element := range strings.SplitAfterSeq(name, "/") {
				at += len(element)
				if folder := strings.HasSuffix(element, "/"); folder && strings.ContainsAny(element[:1], "._") && !hidden {
					hidden = p.disk && element[0] == '.'
					if !apart[name[:at]] && !yield(name[:at], nil) {
						return
					}
					apart[name[:at]] = true
				}
			}
			if !hidden && !yield(name, nil) {
				return
			}
		}
	}
}

// TestTallySum: all names of random folders of tables are listed, and each is of the kind or left
// out by a rule.
func TestTallySum(t *testing.T) {
	elements := []string{"a", "b.parquet", ".hidden", "._fork.parquet", "__MACOSX", "_x", "c\\d.parquet", "..", "README.md", "_metadata", "_y=1", "e.parquet", "f.parquet._COPYING_"}
	tables := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := named{names: []string{"one.parquet"}, disk: r.IntN(2) == 0}
		for range r.IntN(30) {
			var name []string
			for range 1 + r.IntN(3) {
				name = append(name, elements[r.IntN(len(elements))])
			}
			if p.disk && slices.Contains(name, "..") { // which lists none
				continue
			}
			p.names = append(p.names, strings.Join(name, "/"))
		}
		slices.Sort(p.names)
		p.names = slices.Compact(p.names)
		opt := Options{LeaveUnsafe: true}
		if r.IntN(2) == 0 {
			opt.Choice = globs.Choice{Exclude: []string{"e.*"}}
		}
		a, err := Folder(t.Context(), p, opt)
		if mixed := (*MixedError)(nil); errors.As(err, &mixed) {
			continue
		}
		if err != nil {
			t.Fatal(seed, err)
		}
		if a.Kind != Parquet {
			continue
		}
		tables++
		want, folders := int64(len(p.names)), map[string]bool{}
		for _, name := range p.names {
			if at := strings.Index("/"+name, "/."); p.disk && at >= 0 && strings.Contains(name[at:], "/") {
				folder, _, _ := strings.Cut(name[at:], "/")
				if want--; !folders[name[:at]+folder] {
					folders[name[:at]+folder] = true
					want++
				}
			}
		}
		if n := &a.Tally; n.Listed != want || n.Listed != int64(len(a.Names))+n.Total() {
			t.Errorf("%d: %q (disk %v): listed %d, packed %q, left out %s; want %d", seed, p.names, p.disk, n.Listed, a.Names, n, want)
		}
		opt.LeaveUnsafe = false
		if _, err := Folder(t.Context(), p, opt); (err != nil) != (a.Tally.Left(tally.Unsafe) > 0) {
			t.Errorf("%d: %q: %v", seed, p.names, err)
		}
	}
	if tables < 200 {
		t.Errorf("%d tables", tables)
	}
}

// TestAllBins: more files of ids than those whose bytes are read.
func TestAllBins(t *testing.T) {
	p := named{names: []string{"train_0.bin", "train_1.bin", "train_2.bin", "train_3.bin", "train_4.bin", "train_5.bin"}}
	a, err := Folder(t.Context(), p, Options{})
	if err != nil || a.Kind != Tokens || !slices.Equal(a.Names, p.names) || a.Tally.Listed != 6 || a.Tally.Total() != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}
