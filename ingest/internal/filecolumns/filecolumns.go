// Package filecolumns adds the bytes of files to the rows that name them, whatever files the rows
// are from.
package filecolumns

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/internal/input/pinned"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

// Column is a column of paths.
type Column struct {
	// Field gets the bytes. The extension of the path is added, unless the name has one.
	Field string
	// From are the possible names of the field that the column becomes, and Drop removes it.
	From []string
	Name string
	Drop bool
}

// Root is a folder that paths are relative to.
type Root struct {
	Store objstore.Store
	// Dir is its place in the store, empty or ending in a slash, and Shown is how errors write it.
	// An absolute path is taken if it begins with one of Prefixes.
	Dir, Shown string
	Prefixes   []string
	// Archive reports that the store is an archive. What fails in the archive itself is no error of a
	// row.
	Archive bool
}

const (
	// ahead is how many rows are read ahead, with their files; small is the size up to which a file is
	// held in memory. Rows are read ahead up to mostAhead bytes.
	ahead     = 64
	small     = objstore.Front
	mostAhead = 64 << 20
)

// Source reads the rows of another source. It implements writer.Splitter where that does.
type Source struct {
	src     writer.Source
	columns []Column
	root    func(file string) (*Root, error)

	queue   []*row
	waiting int64           // bytes of the rows in the queue
	end     error           // of the rows, after the queue
	left    writer.RowsLeft // before src was moved back
	ctx     context.Context
	cancel  context.CancelFunc
	group   sync.WaitGroup
}

// row is a row whose files are being read.
type row struct {
	sample writer.Sample
	err    error
	cursor string          // before it
	left   writer.RowsLeft // before it
	size   int64
	done   chan struct{}
	files  []writer.Field
	bad    error
}

// New returns a source that owns src. root returns the folder of a file of rows.
func New(src writer.Source, columns []Column, root func(file string) (*Root, error)) *Source {
	return &Source{src: src, columns: columns, root: root}
}

// Next implements writer.Source.
func (s *Source) Next(ctx context.Context) (writer.Sample, error) {
	for s.end == nil && len(s.queue) < ahead && (s.waiting < mostAhead || len(s.queue) == 0) {
		if err := s.ask(ctx); err != nil {
			return writer.Sample{}, err
		}
	}
	if len(s.queue) == 0 {
		err := s.end
		if !errors.Is(err, io.EOF) {
			s.end = nil // the store may recover
		}
		return writer.Sample{}, err
	}
	r := s.queue[0]
	select {
	case <-r.done:
	case <-ctx.Done():
		return writer.Sample{}, ctx.Err()
	}
	if r.bad != nil && !ofRow(r.bad) {
		s.reset(ctx)
		return writer.Sample{}, cmp.Or(ctx.Err(), r.fail(r.bad))
	}
	s.queue = slices.Delete(s.queue, 0, 1)
	s.waiting -= r.size
	switch {
	case r.err != nil:
		return writer.Sample{}, r.err
	case r.bad != nil:
		return writer.Sample{}, r.fail(r.bad)
	}
	r.sample.Fields = append(r.sample.Fields, r.files...)
	return r.sample, nil
}

// badPath is an error of a row and not of the store.
type badPath struct{ error }

func (b badPath) Unwrap() error { return b.error }

func ofRow(err error) bool {
	_, ok := errors.AsType[badPath](err)
	return ok
}

// fail returns an error with the row.
func (r *row) fail(err error) error {
	p := &r.sample
	if !ofRow(err) {
		return fmt.Errorf("%s: %w", p.Origin, err)
	}
	return &writer.SampleError{Origin: p.Origin, Key: p.Key, Source: p.Source, Row: p.Row, Err: err}
}

// ask reads a row and begins to read its files.
func (s *Source) ask(ctx context.Context) error {
	r := &row{cursor: s.src.Cursor(), done: make(chan struct{})}
	r.left, _ = writer.LeftOut(s.src)
	p, err := s.src.Next(ctx)
	if _, ok := errors.AsType[*writer.SampleError](err); ok {
		r.err = err
		close(r.done)
		s.queue = append(s.queue, r)
		return nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.end = err
		return nil
	}
	if s.cancel == nil {
		s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	paths := make([]string, len(s.columns))
	p.Fields, p.Attrs = slices.Clone(p.Fields), slices.Clone(p.Attrs)
	r.bad = s.paths(&p, paths)
	for i := range p.Fields { // which are valid until the next row only
		p.Fields[i].Data = append(make([]byte, 0, len(p.Fields[i].Data)), p.Fields[i].Data...)
		r.size += int64(len(p.Fields[i].Data))
	}
	r.sample = p
	s.queue, s.waiting = append(s.queue, r), s.waiting+r.size
	if r.bad != nil {
		close(r.done)
		return nil
	}
	readCtx := s.ctx
	s.group.Go(func() {
		defer close(r.done)
		for i, c := range s.columns {
			f, err := s.read(readCtx, &c, p.Source, paths[i])
			if err != nil {
				r.bad = fmt.Errorf("column %s: %w", c.Name, err)
				return
			}
			r.files = append(r.files, f)
		}
	})
	return nil
}

// paths takes the paths from the fields of a row.
func (s *Source) paths(p *writer.Sample, paths []string) error {
	var drop []string
	for i, c := range s.columns {
		at := slices.IndexFunc(p.Fields, func(f writer.Field) bool { return slices.Contains(c.From, f.Name) })
		if at < 0 || p.Fields[at].Payload != nil {
			return badPath{hint.With(fmt.Errorf("column %s has no path, or it is not text: leave such rows out by the condition '%s is not null'", c.Name, c.Name),
				hint.Option("where"))}
		}
		if paths[i] = string(p.Fields[at].Data); c.Drop {
			drop = append(drop, p.Fields[at].Name)
		}
	}
	p.Fields = slices.DeleteFunc(p.Fields, func(f writer.Field) bool { return slices.Contains(drop, f.Name) })
	return nil
}

// Named reads the rows of src to the end and calls f with the objects that they name, some of them
// several times. Rows that cannot be read, and paths that lead nowhere, it passes.
func Named(ctx context.Context, src writer.Source, columns []Column, root func(file string) (*Root, error),
	f func(*Root, string)) error {
	s := New(src, columns, root)
	paths := make([]string, len(columns))
	for {
		p, err := src.Next(ctx)
		if _, ok := errors.AsType[*writer.SampleError](err); ok {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if s.paths(&p, paths) != nil {
			continue
		}
		for _, name := range paths {
			r, err := root(p.Source)
			if err != nil {
				return err
			}
			if object, err := r.object(name); err == nil {
				f(r, object)
			}
		}
	}
}

// read reads a file, or describes it if it is large.
func (s *Source) read(ctx context.Context, c *Column, file, name string) (f writer.Field, err error) {
	root, err := s.root(file)
	if err != nil {
		return f, err
	}
	object, err := root.object(name)
	if err != nil {
		return f, err
	}
	f, err = c.read(ctx, root.Store, object)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		err = badPath{fmt.Errorf("there is no file %q in %s: %w", name, root.Shown, fs.ErrNotExist)}
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, objstore.ErrName),
		root.Archive && (errors.Is(err, format.ErrCorrupt) || errors.Is(err, errors.ErrUnsupported)),
		// a disk has no errors that pass
		!root.Archive && (!objstore.TraitsOf(root.Store).Remote() || errors.Is(err, fs.ErrPermission)):
		err = badPath{fmt.Errorf("the file %q in %s: %w", name, root.Shown, err)}
	}
	return f, err
}

// read reads a file of a store.
func (c *Column) read(ctx context.Context, store objstore.Store, name string) (f writer.Field, err error) {
	data, info, err := objstore.ReadAll(ctx, store, name, small)
	if err == nil && !objstore.TraitsOf(store).Remote() { // which opens one version
		var obj objstore.Object
		if obj, err = pinned.Reopen(ctx, store, name, info); err == nil {
			obj.Close()
		}
	}
	if !errors.Is(err, objstore.ErrTooLarge) {
		return writer.Field{Name: fieldName(c.Field, name, data), Data: data}, err
	}
	obj, info, err := pinned.Open(ctx, store, name)
	if err != nil {
		return f, err
	}
	defer obj.Close()
	head := make([]byte, min(512, info.Size))
	err = obj.ReadAt(ctx, head, 0)
	return writer.Field{Name: fieldName(c.Field, name, head), Size: info.Size,
		Payload: &stream.Payload{Store: store, Name: name, Info: info, Size: info.Size, Place: name}}, err
}

// object returns the name of the object that a path stands for.
func (r *Root) object(name string) (string, error) {
	rest := name
	for _, prefix := range r.Prefixes {
		if cut, ok := strings.CutPrefix(name, prefix); ok {
			rest = cut
			break
		}
	}
	clean := path.Clean(rest)
	switch {
	case name == "":
		return "", badPath{errors.New("the path is empty")}
	case path.IsAbs(rest) || strings.Contains(rest, "://") || clean == ".." || strings.HasPrefix(clean, "../"):
		return "", badPath{hint.With(fmt.Errorf("the path %q leads out of %s", name, r.Shown),
			hint.Hint{Option: "file-root", Does: "gives another folder"})}
	case clean == "." || strings.HasSuffix(rest, "/"):
		return "", badPath{fmt.Errorf("the path %q is a folder", name)}
	}
	return r.Dir + clean, nil
}

// types are the extensions of files whose names have none, by their first bytes.
var types = map[string]string{"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp",
	"image/bmp":  "bmp",
	"audio/wave": "wav", "audio/mpeg": "mp3", "application/ogg": "ogg", "video/mp4": "mp4", "video/webm": "webm",
	"application/pdf": "pdf"}

// fieldName returns the name of the field for a file.
func fieldName(field, name string, head []byte) string {
	ext := strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))
	if ext == "" || len(ext) > 5 || strings.Trim(ext, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		if ext = types[http.DetectContentType(head)]; ext == "" {
			ext = "bin"
		}
	}
	if strings.Contains(field, ".") || field == ext {
		return field
	}
	return field + "." + ext
}

// Cursor implements writer.Source.
func (s *Source) Cursor() string {
	if len(s.queue) > 0 {
		return s.queue[0].cursor
	}
	return s.src.Cursor()
}

// LeftOut counts the rows that src left out, see writer.LeftOut.
func (s *Source) LeftOut() (before, behind writer.RowsLeft) {
	before, behind = writer.LeftOut(s.src)
	if len(s.queue) > 0 {
		before, behind = s.queue[0].left, writer.RowsLeft{}
	}
	return before.Plus(s.left), behind
}

// Seek implements writer.Source.
func (s *Source) Seek(ctx context.Context, cursor string) error {
	s.stop()
	s.left = writer.RowsLeft{}
	return s.src.Seek(ctx, cursor)
}

// reset moves back to the first row of the queue.
func (s *Source) reset(ctx context.Context) {
	at := s.Cursor()
	s.left, _ = s.LeftOut()
	s.stop()
	if err := s.src.Seek(ctx, at); err != nil {
		s.end = err
	}
}

// stop drops the queue.
func (s *Source) stop() {
	if s.cancel != nil {
		s.cancel()
		s.group.Wait()
		s.cancel = nil
	}
	s.queue, s.waiting, s.end = nil, 0, nil
}

// Split implements writer.Splitter.
func (s *Source) Split(part, parts int) error {
	whole, ok := s.src.(writer.Splitter)
	if !ok {
		return errors.New("its rows cannot be divided")
	}
	s.stop()
	s.left = writer.RowsLeft{}
	return whole.Split(part, parts)
}

// Fingerprint implements writer.Source. It covers the rows and not the files: which they are is
// known only when the rows are read.
func (s *Source) Fingerprint() string {
	h := sha256.New()
	for _, c := range s.columns {
		fmt.Fprintf(h, "%q %q %t\n", c.Field, c.Name, c.Drop)
	}
	return fmt.Sprintf("%s files:%x", s.src.Fingerprint(), h.Sum(nil)[:8])
}

// Meta implements writer.Source.
func (s *Source) Meta() format.Metadata { return s.state(s.src.Meta()) }

// Learned returns what the rows have brought.
func (s *Source) Learned() format.Metadata {
	if l, ok := s.src.(interface{ Learned() format.Metadata }); ok {
		return s.state(l.Learned())
	}
	return nil
}

// state adds the kinds of files to the kinds of rows.
func (s *Source) state(meta format.Metadata) format.Metadata {
	of, err := kinds.Parse(meta, kinds.Key)
	if err != nil {
		return meta
	}
	all := kinds.Kinds{}
	for _, c := range s.columns {
		for ext, word := range kinds.OfFiles() {
			if name := c.Field + ext; !strings.Contains(c.Field, ".") {
				all[name] = word
			} else if path.Ext(c.Field) == ext {
				all[c.Field] = word
			}
		}
	}
	maps.Copy(all, of)
	out := maps.Clone(meta)
	if out == nil {
		out = format.Metadata{}
	}
	maps.Copy(out, all.Meta())
	return out
}

// Total implements writer.Source: the bytes of the files are not known.
func (s *Source) Total() (samples, bytes int64) {
	samples, _ = s.src.Total()
	return samples, 0
}

// Close implements writer.Source.
func (s *Source) Close() error {
	s.stop()
	return s.src.Close()
}
