package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/internal/extsort"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// FilesOptions say which files become samples.
type FilesOptions struct {
	// Include, when not empty, takes only files that one of these globs matches; Exclude then leaves out. A glob without a
	// slash is matched against the base name, one with a slash against the path below its folder; ** crosses slashes. Names
	// that begin with a dot are taken only when a glob of Include that begins with one matches them.
	Include, Exclude []string
	// ClassField, when not empty, adds a field of that name to every sample: the number of its first folder among all first
	// folders in order of names, as decimal digits; and a label attribute "class": the folder's name.
	ClassField string
	// Classes fixes the first classes' numbers, for appending to a data set that has them.
	Classes []string
	// Shuffle puts samples in an order drawn by Seed: samples near each other in storage have nothing to do with each other
	// then. It costs a sort of the names.
	Shuffle bool
	Seed    uint64
	// Memory bounds the sorting of names in bytes, default 64 MiB; above it names go to a temporary file in TempDir.
	Memory  int64
	TempDir string
	// Found, when not nil, is told now and then how many files have been listed.
	Found func(files int64)
}

// Left counts what Files passed over.
type Left struct {
	// Hidden files and folders begin with a dot; Filtered files were not included, or excluded.
	Hidden, Filtered int64
}

// Files is the files of folders, or the objects of stores, as samples: files that share the path up to the first dot of the base name are one sample.
// Samples come in the order of the folders given, then of keys, or shuffled over all of them.
type Files struct {
	opt   FilesOptions
	roots *roots
	left  Left

	list    *extsort.Sorter
	samples int64
	bytes   int64
	sum     format.Hash
	classes []string
	classNo map[string]int // the number of each

	next func() (listed, error, bool)
	stop func()
	peek *listed
	at   int64 // samples given, those before begin included
	// begin and end limit the samples to those of a part.
	begin, end int64
}

var _ writer.Splitter = (*Files)(nil)

// NewFiles lists folders. Links are followed inside their folder only; a link that leads out, a link to a folder, and what
// is no regular file come up from Next as *writer.SampleError.
func NewFiles(ctx context.Context, folders []string, opt FilesOptions) (*Files, error) {
	r, err := openRoots(folders)
	if err != nil {
		return nil, err
	}
	return newFiles(ctx, r, opt)
}

// newFiles takes the roots over.
func newFiles(ctx context.Context, r *roots, opt FilesOptions) (*Files, error) {
	if opt.Memory == 0 {
		opt.Memory = 64 << 20
	}
	f := &Files{opt: opt, roots: r, list: extsort.New(opt.TempDir, opt.Memory)}
	err := format.CheckField(opt.ClassField)
	if err == nil {
		err = f.walk(ctx)
	}
	if err == nil {
		err = f.survey(ctx)
	}
	if err == nil {
		f.end = f.samples
		err = f.Seek(ctx, "0")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// listed is a row of the sorted list.
type listed struct {
	root       int
	key, field string
	name       string // base name as it is on disk
	size       int64
	mtime      int64 // nanoseconds; of an object its version
	problem    string
}

// The sort key comes first: shuffle hash (or nothing), folder number, key, NUL, field, NUL. What follows is not sorted by.
func (f *Files) encode(dst []byte, l *listed) []byte {
	if f.opt.Shuffle {
		h := sha256.New()
		h.Write(binary.LittleEndian.AppendUint64(nil, f.opt.Seed))
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(l.root)))
		h.Write([]byte(l.key))
		dst = append(dst, h.Sum(nil)[:8]...)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(l.root))
	dst = append(append(dst, l.key...), 0)
	dst = append(append(dst, l.field...), 0)
	dst = append(append(dst, l.name...), 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(l.size))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(l.mtime))
	return append(dst, l.problem...)
}

// errDamaged: the temporary file that the list is in gave back something else.
var errDamaged = errors.New("source: list of files is damaged")

func (f *Files) decode(rec []byte) (l listed, err error) {
	head := 4
	if f.opt.Shuffle {
		head += 8
	}
	if len(rec) < head {
		return l, errDamaged
	}
	l.root = int(binary.BigEndian.Uint32(rec[head-4:]))
	rec = rec[head:]
	for _, s := range []*string{&l.key, &l.field, &l.name} {
		i := bytes.IndexByte(rec, 0)
		if i < 0 {
			return l, errDamaged
		}
		*s = string(rec[:i])
		rec = rec[i+1:]
	}
	if len(rec) < 16 {
		return l, errDamaged
	}
	l.size, l.mtime = int64(binary.LittleEndian.Uint64(rec)), int64(binary.LittleEndian.Uint64(rec[8:]))
	l.problem = string(rec[16:])
	return l, nil
}

// survey goes once over the sorted list: totals, classes, fingerprint.
func (f *Files) survey(ctx context.Context) error {
	h := sha256.New()
	seen := map[string]bool{}
	var prev listed
	for rec, err := range f.list.All() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(rec))))
		h.Write(rec)
		l, err := f.decode(rec)
		if err != nil {
			return err
		}
		f.bytes += l.size
		if f.samples == 0 || l.key != prev.key || l.root != prev.root {
			f.samples++
		}
		if class := classOf(l.key); class != "" {
			seen[class] = true
		}
		prev = l
	}
	if f.opt.ClassField != "" {
		f.classes = slices.Clone(f.opt.Classes)
		var more []string
		for c := range seen {
			if !slices.Contains(f.opt.Classes, c) {
				more = append(more, c)
			}
		}
		slices.Sort(more)
		f.classes = append(f.classes, more...)
		f.classNo = make(map[string]int, len(f.classes))
		for i, c := range f.classes {
			f.classNo[c] = i
		}
		fmt.Fprintf(h, "%q %q", f.opt.ClassField, f.classes)
	}
	h.Sum(f.sum[:0])
	return nil
}

func classOf(key string) string {
	class, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return class
}

// Next is writer.Source's.
func (f *Files) Next(ctx context.Context) (writer.Sample, error) {
	if err := ctx.Err(); err != nil {
		return writer.Sample{}, err
	}
	if f.at >= f.end {
		return writer.Sample{}, io.EOF
	}
	group, err := f.group()
	if err != nil {
		return writer.Sample{}, err
	}
	f.at++
	first := &group[0]
	origin := f.path(first)
	fail := func(err error) (writer.Sample, error) {
		return writer.Sample{}, &writer.SampleError{Origin: origin, Key: first.key, Err: err}
	}
	s := writer.Sample{Key: first.key, Origin: origin, Fields: make([]writer.Field, 0, len(group)+1)}
	for i := range group {
		l := &group[i]
		switch {
		case l.problem != "":
			origin = f.path(l)
			return fail(errors.New(l.problem))
		case format.JoinName(l.key, l.field) != dirOf(l.key)+l.name:
			origin = f.path(l)
			return fail(fmt.Errorf("%w: the name ends with a dot, which tar would give back as %q: rename the file",
				format.ErrName, strings.TrimSuffix(l.name, ".")))
		}
		s.Fields = append(s.Fields, writer.Field{Name: l.field, Size: l.size, Payload: f.payload(l)})
	}
	if f.opt.ClassField != "" {
		class := classOf(s.Key)
		if class == "" {
			return fail(fmt.Errorf("no class: the file is in no folder below %s, and a class field is wanted", f.roots.list[first.root].path))
		}
		s.Fields = append(s.Fields, writer.Field{Name: f.opt.ClassField, Data: strconv.AppendInt(nil, int64(f.classNo[class]), 10)})
		s.Attrs = []format.AttrValue{{Attribute: format.Attribute{Name: "class", Kind: format.AttrLabel}, Label: class}}
	}
	return s, nil
}

// dirOf is the folder part of a key, with its slash.
func dirOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// group returns the files of the next sample.
func (f *Files) group() ([]listed, error) {
	var group []listed
	for {
		if f.peek == nil {
			l, err, ok := f.next()
			if ok && err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			f.peek = &l
		}
		if len(group) > 0 && (f.peek.key != group[0].key || f.peek.root != group[0].root) {
			break
		}
		group = append(group, *f.peek)
		f.peek = nil
	}
	if len(group) == 0 {
		return nil, io.EOF
	}
	return group, nil
}

func (f *Files) payload(l *listed) writer.Payload {
	if s := f.roots.list[l.root].store; s != nil {
		return &object{s, *l}
	}
	return &file{roots: f.roots, listed: *l}
}

func (f *Files) path(l *listed) string {
	if r := &f.roots.list[l.root]; r.store != nil {
		return r.path + "/" + dirOf(l.key) + l.name
	}
	return filepath.Join(f.roots.list[l.root].path, filepath.FromSlash(dirOf(l.key)), l.name)
}

// Cursor is the number of samples given, in a part those of the parts before it included.
func (f *Files) Cursor() string { return strconv.FormatInt(f.at, 10) }

// Seek goes to a cursor: forward over the list, without opening a file.
func (f *Files) Seek(ctx context.Context, cursor string) error {
	to, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || to < f.begin || to > f.end {
		return fmt.Errorf("source: cursor %q is none of samples %d to %d", cursor, f.begin, f.end)
	}
	if f.stop == nil || to < f.at {
		if f.stop != nil {
			f.stop()
		}
		f.at, f.peek = 0, nil
		pull, stop := iter.Pull2(f.all())
		f.next = func() (listed, error, bool) { return pull() }
		f.stop = stop
	}
	for ; f.at < to; f.at++ {
		if _, err := f.group(); err != nil {
			return fmt.Errorf("source: seeking sample %d of %d: %w", to, f.samples, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) all() iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		for rec, err := range f.list.All() {
			var l listed
			if err == nil {
				l, err = f.decode(rec)
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// Fingerprint covers names, sizes and modification times of all files, their order, and the numbers of classes.
func (f *Files) Fingerprint() string { return "files:" + f.sum.String() }

// Meta names the classes, when there is a class field.
func (f *Files) Meta() format.Metadata {
	if f.opt.ClassField == "" {
		return nil
	}
	return fields.Classes(f.classes)
}

// Split limits the source to one of so many parts, counted from 0, and goes to its beginning. Part i is the samples from
// ⌊samples × i ÷ parts⌋ on, in the order that they come in, up to the next part's first.
func (f *Files) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("source: there is no part %d of %d: parts count from 0", part, parts)
	}
	share := func(i int) int64 { // without overflow
		n, of := f.samples, int64(parts)
		return n/of*int64(i) + n%of*int64(i)/of
	}
	f.begin, f.end = share(part), share(part+1)
	f.bytes = 0
	n := int64(0)
	var prev listed
	for l, err := range f.all() {
		if err != nil {
			return err
		}
		if n == 0 || l.key != prev.key || l.root != prev.root {
			n++
		}
		if prev = l; n > f.end {
			break
		}
		if n > f.begin {
			f.bytes += l.size
		}
	}
	return f.Seek(context.Background(), strconv.FormatInt(f.begin, 10))
}

// Total counts samples, and bytes of files: those of the part after Split.
func (f *Files) Total() (samples, size int64) { return f.end - f.begin, f.bytes }

// Left counts what was passed over.
func (f *Files) Left() Left { return f.left }

// Close frees the list and the folders. Payloads cannot be read afterwards.
func (f *Files) Close() error {
	if f.stop != nil {
		f.stop()
	}
	return errors.Join(f.list.Close(), f.roots.close())
}
