package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// Input is one file that a source reads: an object of a store, the local disk's among them. The store is the caller's to close.
type Input struct {
	Store objstore.Store
	Name  string
	// Path is what errors call the file and keys are made of: slashes, without secrets. Default: Name.
	Path string
}

// LocalInput is a file on this machine. A link is followed: caches of downloads are full of them, and a store does not follow those
// that lead out of it. One that is not there is fs.ErrNotExist.
func LocalInput(path string) (Input, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Input{}, err
	}
	store, err := local.New(filepath.Dir(target), local.Options{})
	return Input{Store: store, Name: filepath.Base(target), Path: filepath.ToSlash(path)}, err
}

// Named returns the inputs with a Path each.
func Named(inputs []Input) []Input {
	named := slices.Clone(inputs)
	for i := range named {
		if named[i].Path == "" {
			named[i].Path = named[i].Name
		}
	}
	return named
}

// Survey calls look for the numbers 0 to n-1, so many at a time, and ends the others' context when one fails. The error is the
// first in the order of the numbers that is not merely what that did to others: not the one that happened to come first.
func Survey(ctx context.Context, n, together int, look func(ctx context.Context, i int) error) error {
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(together)
	failed := make([]error, n)
	for i := range n {
		if workCtx.Err() != nil {
			break
		}
		work.Go(func() error {
			failed[i] = look(workCtx, i)
			return failed[i]
		})
	}
	err := work.Wait()
	for _, first := range failed {
		if first != nil && !errors.Is(first, context.Canceled) {
			return first
		}
	}
	return cmp.Or(err, ctx.Err())
}

// Stems gives each file the beginning of its samples' keys: its name without the first of suffixes that it ends in, and as many
// folders before it as tell the files apart. Where an input comes twice that is impossible, and an error.
func Stems(inputs []Input, suffixes ...string) ([]string, error) {
	parts := make([][]string, len(inputs))
	for i, in := range inputs {
		shown := in.Path
		if shown == "" {
			shown = in.Name
		}
		name := strings.TrimLeft(path.Clean(strings.ReplaceAll(shown, "\\", "/")), "/")
		if _, rest, ok := strings.Cut(name, ":/"); ok { // the scheme of a URL
			name = strings.TrimLeft(rest, "/")
		}
		for _, suffix := range suffixes {
			if rest, ok := strings.CutSuffix(name, suffix); ok && path.Base(rest) != "." && rest != "" {
				name = rest
				break
			}
		}
		for element := range strings.SplitSeq(name, "/") {
			if element != "." && element != ".." && element != "" {
				parts[i] = append(parts[i], element)
			}
		}
	}
	out := make([]string, len(inputs))
	for elements := 1; ; elements++ {
		seen := map[string]int{}
		same, longer := -1, false
		for i, p := range parts {
			out[i] = strings.Join(p[max(0, len(p)-elements):], "/")
			longer = longer || len(p) > elements
			if _, ok := seen[out[i]]; ok && same < 0 {
				same = i
			}
			seen[out[i]] = i
		}
		if same < 0 {
			return out, nil
		}
		if !longer {
			return nil, fmt.Errorf("%s is given twice", inputs[same].Path)
		}
	}
}
