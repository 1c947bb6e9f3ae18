package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/fused"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/tally"
)

// walk lists all folders and stores.
func (f *fileSource) walk(ctx context.Context) error {
	for _, pattern := range slices.Concat(f.opt.Include, f.opt.Exclude) {
		if !doublestar.ValidatePattern(pattern) {
			return fmt.Errorf("glob %q is malformed", pattern)
		}
	}
	for i := range f.roots.list {
		w := &walker{ctx: ctx, f: f, number: i, root: f.roots.list[i]}
		list := func() error { return w.folder(".") }
		if w.root.store != nil {
			list = w.objects
		}
		if err := list(); err != nil {
			return err
		}
	}
	if f.opt.Found != nil {
		f.opt.Found(f.list.Len())
	}
	return nil
}

type walker struct {
	ctx    context.Context
	f      *fileSource
	number int
	root   root
	buf    []byte
}

// folder lists one folder and those below it. It reads 4,096 entries at a time, so that a folder of
// millions need not fit in memory.
func (w *walker) folder(dir string) error {
	h, err := w.root.OpenFile(dir, os.O_RDONLY|openNonblock, 0)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		return nil // removed since its parent was listed
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", path.Join(w.root.path, dir), err)
	}
	defer h.Close()
	var below []string
	for {
		entries, err := h.ReadDir(4096)
		for _, e := range entries {
			rel := path.Join(dir, e.Name())
			part := e.Name() // what its folder is has been decided
			if e.IsDir() {
				part += "/"
			}
			if rule := w.choice().Hides(part, rel); rule != "" {
				w.leave(rule, rel)
				continue
			}
			if e.IsDir() {
				below = append(below, rel)
				continue
			}
			if !w.choice().Takes(rel) {
				w.leave(tally.Filtered, rel)
				continue
			}
			if err := w.file(rel, e); err != nil {
				return err
			}
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if len(entries) == 0 || err != nil {
			if err != nil && err != io.EOF {
				return fmt.Errorf("listing %s: %w", path.Join(w.root.path, dir), err)
			}
			break
		}
		if w.f.opt.Found != nil {
			w.f.opt.Found(w.f.list.Len())
		}
	}
	h.Close()
	for _, rel := range below {
		if err := w.folder(rel); err != nil {
			return err
		}
	}
	return nil
}

// file adds one file to the list.
func (w *walker) file(rel string, e fs.DirEntry) error {
	l := listed{root: w.number, name: e.Name()}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since its folder was listed
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		info, err = w.root.Stat(rel) // follows links inside the folder only
		if err != nil {
			info, err = w.root.blobs.Stat(w.root.Root, rel, rel, err)
		}
		if err == nil && info.IsDir() {
			err = errors.New("a link to a folder is not followed: give that folder as another source, or exclude the link")
		} else if err != nil {
			err = fmt.Errorf("a link that leads out of its source folder, or nowhere, is not followed: copy the file, or exclude the link (%w)", err)
		}
	}
	switch {
	case err != nil:
		l.problem = err.Error()
	case !info.Mode().IsRegular():
		l.problem = "not a regular file: exclude it"
	default:
		l.size, l.mtime = info.Size(), info.ModTime().UnixNano()
	}
	return w.add(rel, &l)
}

// leave counts a file or a folder that is left out.
func (w *walker) leave(rule tally.Rule, rel string) {
	w.f.tally.Listed++
	w.f.tally.Leave(rule, rel)
}

func (w *walker) add(rel string, l *listed) error {
	w.f.tally.Listed++
	if w.f.opt.LastDot {
		l.key, l.field = fused.LastDot(rel)
	} else {
		key, field := format.SplitName([]byte(rel))
		l.key, l.field = string(key), string(field)
	}
	w.buf = w.f.encode(w.buf[:0], l)
	return w.f.list.Add(w.buf)
}

func (w *walker) choice() globs.Choice {
	return globs.Choice{Include: w.f.opt.Include, Exclude: w.f.opt.Exclude}
}
