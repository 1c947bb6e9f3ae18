package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/fused"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/sys/extsort"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// FilesOptions selects the files that become samples.
type FilesOptions struct {
	// Include, if not empty, selects the files that match one of these globs; Exclude then removes
	// files. A glob without a slash is matched against the base name, one with a slash against the
	// path below its folder; ** crosses slashes. Names that begin with a dot are included only if
	// they match a glob of Include that begins with a dot itself.
	Include, Exclude []string
	// ClassField, if not empty, adds a field of that name to every sample: the number, in decimal
	// digits, of its first folder among all first folders sorted by name. It also adds a label
	// attribute "class" with the folder's name.
	ClassField string
	// Classes fixes the numbers of the first classes, to append to a data set that has them.
	Classes []string
	// Shuffle orders samples randomly by Seed, so that neighbours in storage are unrelated. It
	// costs a sort of the names.
	Shuffle bool
	Seed    uint64
	// Memory bounds the memory for sorting names in bytes. The default is 64 MiB; above it, names
	// are written to a temporary file in TempDir.
	Memory  int64
	TempDir string
	// KeyPrefix has the keys of each folder or store begin with its name, a/000000 for the sample
	// 000000 of a, because they begin again in each. As many folders precede the name as it takes to
	// tell them apart. The name of a zip archive is without its extension.
	KeyPrefix bool
	// LastDot divides names at the last dot of the base name instead. The dots before it, which no key
	// has, become hyphens.
	LastDot bool
	// LeaveUnsafe leaves out the names of a store that cannot be opened, such as a//b.jpg. Otherwise
	// they are an error.
	LeaveUnsafe bool
	// Found, if not nil, is called from time to time with the number of files listed.
	Found func(files int64)
}

// Tally counts the names that a source lists, and what became of them.
type Tally = tally.Tally

// Rule is why a name was left out. Its text is for people and for programs.
type Rule = tally.Rule

// The rules.
const (
	Fork     = tally.Fork     // what macOS adds to archives
	Hidden   = tally.Hidden   // it begins with a dot; among tables also with an underscore
	Filtered = tally.Filtered // by the globs of the user
	Side     = tally.Side     // it describes the files that are packed
	Unnamed  = tally.Unnamed  // the rows name other files
	Unsafe   = tally.Unsafe   // it cannot be an object
	Null     = tally.Null     // a row without a value, which is left out
)

// Fused counts files and samples, and shows files of one sample that look like samples of their
// own.
type Fused = fused.Watch

// Files are the files of folders, or the objects of stores, as samples: files that share the path
// up to the first dot of the base name form one sample. Samples are in the order of the folders
// given, then of keys, or shuffled over all of them.
type Files struct {
	writer.Splitter
	// Hidden and Filtered count what was left out: files and folders that begin with a dot, and
	// files that did not match Include, or matched Exclude.
	Hidden, Filtered int64
	// Tally accounts for all names that were listed, of all parts. A folder that is left out counts as
	// one name.
	Tally Tally
	// Fused says how many files became samples, of all parts, and shows files that the rule of the
	// first dot fused.
	Fused Fused
}

// fileSource reads the files.
type fileSource struct {
	opt   FilesOptions
	roots *roots

	tally tally.Tally
	watch fused.Watch

	list    *extsort.Sorter
	samples int64
	bytes   int64
	sum     format.Hash
	classes []string
	classNo map[string]int // the number of each class

	next func() (listed, error, bool)
	stop func()
	peek *listed
	at   int64 // samples returned, including those before begin
	// begin and end are the samples of the current part.
	begin, end int64
}

var _ writer.Splitter = (*fileSource)(nil)

// NewFiles lists folders. Links are followed inside their folder only. A link that leads out of it,
// a link to a folder, and anything but a regular file make Next return a *writer.SampleError. The
// caller must Close the Files.
func NewFiles(ctx context.Context, folders []string, opt FilesOptions) (*Files, error) {
	r, err := openRoots(folders)
	if err != nil {
		return nil, err
	}
	return newFiles(ctx, r, opt)
}

// newFiles lists r and owns it from then on.
func newFiles(ctx context.Context, r *roots, opt FilesOptions) (*Files, error) {
	f := &fileSource{opt: opt, roots: r, list: extsort.New(opt.TempDir, cmp.Or(opt.Memory, 64<<20))}
	err := format.CheckField(opt.ClassField)
	if err == nil && opt.KeyPrefix {
		err = r.setPrefixes()
	}
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
	return &Files{f, f.tally.Left(tally.Hidden), f.tally.Left(tally.Filtered), f.tally, f.watch}, nil
}

// listed is a record of the sorted list.
type listed struct {
	root       int
	key, field string
	name       string // base name on disk
	size       int64
	mtime      int64 // nanoseconds; for an object its version
	problem    string
}

// encode appends a record. It begins with the sort key: shuffle hash (if any), folder number, key,
// NUL, field, NUL. The rest does not affect the order.
func (f *fileSource) encode(dst []byte, l *listed) []byte {
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

// errDamaged means that the temporary file of the list was changed.
var errDamaged = errors.New("list of files is damaged")

func (f *fileSource) decode(rec []byte) (l listed, err error) {
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

// survey reads the sorted list once to compute totals, classes and fingerprint.
func (f *fileSource) survey(ctx context.Context) error {
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
			f.watch.Sample()
		}
		f.watch.File(l.key, l.field)
		if class := classOf(l.key); class != "" {
			seen[class] = true
		}
		prev = l
	}
	if f.opt.ClassField != "" {
		f.classes = slices.Clone(f.opt.Classes)
		for _, c := range slices.Sorted(maps.Keys(seen)) {
			if !slices.Contains(f.opt.Classes, c) {
				f.classes = append(f.classes, c)
			}
		}
		f.classNo = make(map[string]int, len(f.classes))
		for i, c := range f.classes {
			f.classNo[c] = i
		}
		fmt.Fprintf(h, "%q %q", f.opt.ClassField, f.classes)
	}
	for i := range f.roots.list {
		if before := f.roots.list[i].before; before != "" {
			fmt.Fprintf(h, "%q", before)
		}
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

// Next implements writer.Source.
func (f *fileSource) Next(ctx context.Context) (writer.Sample, error) {
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
	origin, key := f.path(first), f.roots.list[first.root].before+first.key
	fail := func(err error) (writer.Sample, error) {
		return writer.Sample{}, &writer.SampleError{Origin: origin, Key: key, Err: err}
	}
	s := writer.Sample{Key: key, Origin: origin, Fields: make([]writer.Field, 0, len(group)+1)}
	for i := range group {
		l := &group[i]
		switch {
		case l.problem != "":
			origin = f.path(l)
			return fail(errors.New(l.problem))
		case f.opt.LastDot && fused.Meet(first.name, l.name) != nil:
			origin = f.path(l)
			return fail(fused.Meet(first.name, l.name))
		case fused.Cut(l.name, l.field) != nil:
			origin = f.path(l)
			return fail(fused.Cut(l.name, l.field))
		}
		s.Fields = append(s.Fields, writer.Field{Name: l.field, Size: l.size, Payload: f.payload(l)})
	}
	if f.opt.ClassField != "" {
		class := classOf(first.key)
		if class == "" {
			return fail(fmt.Errorf("no class: the file lies in %s itself, and its class is the name of a folder below it: move it, or exclude it", f.roots.list[first.root].path))
		}
		s.Fields = append(s.Fields,
			writer.Field{Name: f.opt.ClassField, Data: strconv.AppendInt(nil, int64(f.classNo[class]), 10)})
		s.Attrs = []format.AttrValue{{Attribute: format.Attribute{Name: "class", Kind: format.AttrLabel}, Label: class}}
	}
	return s, nil
}

// dirOf returns the folder part of a key, with its slash.
func dirOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// group returns the files of the next sample.
func (f *fileSource) group() ([]listed, error) {
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

func (f *fileSource) payload(l *listed) writer.Payload {
	if s := f.roots.list[l.root].store; s != nil {
		return &object{s, *l}
	}
	return &file{roots: f.roots, listed: *l}
}

func (f *fileSource) path(l *listed) string {
	if r := &f.roots.list[l.root]; r.store != nil {
		return r.path + "/" + dirOf(l.key) + l.name
	}
	return filepath.Join(f.roots.list[l.root].path, filepath.FromSlash(dirOf(l.key)), l.name)
}

// Cursor returns the number of samples returned, and of samples in the parts before.
func (f *fileSource) Cursor() string { return strconv.FormatInt(f.at, 10) }

// Seek moves to a cursor by reading the list forward. It opens no file.
func (f *fileSource) Seek(ctx context.Context, cursor string) error {
	to, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || to < f.begin || to > f.end {
		return fmt.Errorf("cursor %q is not one of samples %d to %d", cursor, f.begin, f.end)
	}
	if f.stop == nil || to < f.at {
		if f.stop != nil {
			f.stop()
		}
		f.at, f.peek = 0, nil
		f.next, f.stop = iter.Pull2(f.all())
	}
	for ; f.at < to; f.at++ {
		if _, err := f.group(); err != nil {
			return fmt.Errorf("seeking sample %d of %d: %w", to, f.samples, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fileSource) all() iter.Seq2[listed, error] {
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

// Fingerprint covers the names, sizes and modification times of all files, their order, and the
// class numbers.
func (f *fileSource) Fingerprint() string { return "files:" + f.sum.String() }

// Meta names the classes, if there is a class field, and states the kinds of fields by their names.
func (f *fileSource) Meta() format.Metadata {
	of := kinds.OfFiles()
	if f.opt.ClassField == "" {
		return of.Meta()
	}
	of[f.opt.ClassField] = "int"
	meta := fields.Classes(f.classes)
	maps.Copy(meta, of.Meta())
	return meta
}

// Split limits the source to part of parts, counted from 0, and moves to its beginning. Part i
// begins at sample ⌊samples × i ÷ parts⌋ and ends before the first of the next part.
func (f *fileSource) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("there is no part %d of %d: parts count from 0", part, parts)
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

// Total returns the number of samples and the bytes of their files, of the current part after
// Split.
func (f *fileSource) Total() (samples, size int64) { return f.end - f.begin, f.bytes }

// Close releases the list and the folders. Payloads cannot be read afterwards.
func (f *fileSource) Close() error {
	if f.stop != nil {
		f.stop()
	}
	return errors.Join(f.list.Close(), f.roots.close())
}
