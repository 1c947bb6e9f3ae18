package parquet

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// Parquet is the rows of Parquet files as samples, file by file in the order they are given. It is a writer.Source, for one
// goroutine; a sample is valid until the next call.
type Parquet struct {
	files []*parquetFile
	plan  *plan
	sum   format.Hash

	begin, at, end place
	open           *openedFile
	group          *group
	stored         []byte // compressed pages, of all columns in turn
	pageMemory     int64
}

var _ writer.Splitter = (*Parquet)(nil)

// parquetFile is what stays in memory of a file: its row groups' sizes, and its columns, which files of one schema share.
type parquetFile struct {
	Input
	stem    string
	info    objstore.Info
	rows    []int64
	bytes   []int64 // of the columns that are read, decoded
	schema  string
	columns []*node
	byName  map[string]*node
	labels  map[string][]string
}

func (f *parquetFile) column(name string) *node { return f.byName[name] }

// openedFile is the file being read.
type openedFile struct {
	of     *parquetFile
	at     *readerAt
	reader *file.Reader
	remote bool
	// uncounted is how many bytes the lengths of column chunks may lack.
	uncounted int64
}

// place is a row, by file, row group and row in it.
type place struct {
	file, group int
	row         int64
}

// New reads the footers of all files and fits the options to them. Errors that wrap ErrOption are the caller's, those that wrap
// format.ErrCorrupt a file's; each names the file. Files whose columns differ are taken together where the types of columns of
// one name agree; what a file lacks is null. The stores stay open, and are the caller's to close.
func New(ctx context.Context, inputs []Input, opt Options) (*Parquet, error) {
	if len(inputs) == 0 {
		return nil, optionf("inputs: there are none")
	}
	inputs = source.Named(inputs)
	begins, err := source.Stems(inputs, suffixes...)
	if err != nil {
		return nil, optionf("inputs: %w", err)
	}
	if opt.PageMemory == 0 {
		opt.PageMemory = defaultPageMemory
	}
	p := &Parquet{files: make([]*parquetFile, len(inputs)), pageMemory: opt.PageMemory}
	const together = 8 // requests in flight, and footers in memory
	err = source.Survey(ctx, len(inputs), together, func(ctx context.Context, i int) error {
		f := &parquetFile{Input: inputs[i], stem: begins[i]}
		p.files[i] = f
		if err := f.survey(ctx); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.share()
	if p.plan, err = newPlan(p.files, &opt); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	if err := p.measure(ctx, &opt); err != nil {
		return nil, err
	}
	p.end = place{file: len(p.files)}
	return p, nil
}

// survey reads a file's footer.
func (f *parquetFile) survey(ctx context.Context) error {
	obj, err := f.Store.Open(ctx, f.Name)
	if err != nil {
		return err
	}
	defer obj.Close()
	if f.info, err = obj.Info(ctx); err != nil {
		return err
	}
	meta, err := readFooter(&readerAt{ctx: ctx, obj: obj}, f.info.Size)
	if err != nil {
		return err
	}
	return protect(func() error {
		f.columns = columns(meta.Schema)
		var text strings.Builder
		for _, c := range f.columns {
			fmt.Fprintf(&text, "%q %v %d-%d, ", c.name, c, c.first, c.last)
		}
		if value := meta.KeyValueMetadata().FindValue("huggingface"); value != nil {
			f.labels = classLabels(*value)
			for _, name := range slices.Sorted(maps.Keys(f.labels)) {
				fmt.Fprintf(&text, "%q %q, ", name, f.labels[name])
			}
		}
		// Two files are of one schema when their leaves are the same, too.
		for i := range meta.Schema.NumColumns() {
			c := meta.Schema.Column(i)
			fmt.Fprintf(&text, "%s %v %d %d %d, ", c.Path(), c.PhysicalType(), c.TypeLength(), c.MaxDefinitionLevel(), c.MaxRepetitionLevel())
		}
		f.schema = text.String()
		f.byName = make(map[string]*node, len(f.columns))
		for _, c := range f.columns {
			f.byName[c.name] = c
		}
		f.rows = make([]int64, len(meta.RowGroups))
		f.bytes = make([]int64, len(meta.RowGroups))
		for i, g := range meta.RowGroups {
			f.rows[i], f.bytes[i] = g.GetNumRows(), max(0, g.GetTotalByteSize())
		}
		return nil
	})
}

// share lets files of one schema have it once.
func (p *Parquet) share() {
	seen := map[string]*parquetFile{}
	for _, f := range p.files {
		if first := seen[f.schema]; first != nil {
			f.schema, f.columns, f.byName, f.labels = first.schema, first.columns, first.byName, first.labels
			continue
		}
		seen[f.schema] = f
	}
}

// measure makes the fingerprint.
func (p *Parquet) measure(ctx context.Context, opt *Options) error {
	h := sha256.New()
	options, err := json.Marshal(opt) // maps in order of keys
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s\n", options)
	for _, f := range p.files {
		version := f.info.ETag
		if !objstore.TraitsOf(f.Store).Remote() {
			version = fmt.Sprint(f.info.ModTime.UnixNano()) // a copy of a file is the same file
		}
		fmt.Fprintf(h, "%q %d %q %v %s\n", f.stem, f.info.Size, version, f.rows, f.schema)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	h.Sum(p.sum[:0])
	return nil
}

// Next is writer.Source's.
func (p *Parquet) Next(ctx context.Context) (writer.Sample, error) {
	for {
		if err := ctx.Err(); err != nil {
			return writer.Sample{}, err
		}
		ok, err := p.ready(ctx)
		if err != nil {
			return writer.Sample{}, err
		}
		if !ok {
			return writer.Sample{}, io.EOF
		}
		p.open.at.ctx = ctx
		s, ok, err := p.group.next()
		if failed := p.open.at.err; failed != nil { // the store's, not the row's: it may well be there
			p.drop()
			return writer.Sample{}, fmt.Errorf("%s: %w", p.files[p.at.file].Path, failed)
		}
		p.at.row = p.group.row
		if ok || err != nil {
			return s, err
		}
	}
}

// ready sees to it that the row group of the place is open and has a row there; false at the end.
func (p *Parquet) ready(ctx context.Context) (bool, error) {
	for {
		if p.group != nil && p.group.row < p.group.rows {
			return true, nil
		}
		if p.group != nil {
			p.closeGroup()
			p.at.group, p.at.row = p.at.group+1, 0
		}
		for p.at.file < len(p.files) && p.at.group >= len(p.files[p.at.file].rows) {
			p.at = place{file: p.at.file + 1}
		}
		if p.at.file >= p.end.file && (p.at.file > p.end.file || p.at.group >= p.end.group) || p.at.file == len(p.files) {
			return false, p.closeFile()
		}
		if p.files[p.at.file].rows[p.at.group] <= p.at.row {
			p.at.group, p.at.row = p.at.group+1, 0
			continue
		}
		if err := p.openGroup(ctx); err != nil {
			return false, fmt.Errorf("%s: %w", p.files[p.at.file].Path, err)
		}
	}
}

// openGroup opens the row group of the place, and its file where that is another one.
func (p *Parquet) openGroup(ctx context.Context) error {
	f := p.files[p.at.file]
	if p.open == nil || p.open.of != f {
		if err := p.closeFile(); err != nil {
			return err
		}
		if err := p.openFile(ctx, f); err != nil {
			p.drop()
			return err
		}
	}
	p.open.at.ctx = ctx
	err := protect(func() (err error) {
		p.group, err = p.open.openGroup(p, p.at.group)
		return err
	})
	if failed := p.open.at.err; failed != nil {
		p.drop()
		return failed
	}
	if p.group == nil {
		p.group = &group{plan: p.plan, path: f.Path, no: p.at.group, rows: f.rows[p.at.group]}
	}
	switch {
	case errors.Is(err, errNever):
		p.group.row = p.group.rows
	case err != nil:
		p.group.bad = err
	}
	p.group.skip(p.at.row)
	if failed := p.open.at.err; failed != nil {
		p.drop()
		return failed
	}
	return nil
}

// openFile reads the footer of the next file again: those of all files would take too much memory.
func (p *Parquet) openFile(ctx context.Context, f *parquetFile) error {
	obj, err := f.Store.Open(ctx, f.Name)
	if err != nil {
		return err
	}
	p.open = &openedFile{of: f, at: &readerAt{ctx: ctx, obj: obj}, remote: objstore.TraitsOf(f.Store).Remote()}
	info, err := obj.Info(ctx)
	if err != nil {
		return err
	}
	if info.Size != f.info.Size || info.ETag != f.info.ETag {
		return fmt.Errorf("%w since packing began: pack again when nothing writes to it", objstore.ErrChanged)
	}
	meta, err := readFooter(p.open.at, info.Size)
	if err != nil {
		return err
	}
	p.open.uncounted = uncounted(meta)
	p.open.reader, err = openFile(p.open.at, info.Size, meta)
	return err
}

// drop closes what a store's error has made useless; the place stays.
func (p *Parquet) drop() {
	p.closeGroup()
	_ = p.closeFile() // the error before is the one to tell
}

func (p *Parquet) closeGroup() {
	if p.group != nil {
		p.group.close()
		p.group = nil
	}
}

func (p *Parquet) closeFile() error {
	if p.open == nil {
		return nil
	}
	obj := p.open.at.obj
	p.open = nil
	return obj.Close()
}

// Cursor is the file, the row group and the row that come next, as numbers from 0 with slashes between them.
func (p *Parquet) Cursor() string { return fmt.Sprintf("%d/%d/%d", p.at.file, p.at.group, p.at.row) }

// Seek goes to a cursor. Of the row group that it leads into the rows before it are decoded, no others.
func (p *Parquet) Seek(ctx context.Context, cursor string) error {
	var to place
	n, err := fmt.Sscanf(cursor, "%d/%d/%d", &to.file, &to.group, &to.row)
	valid := err == nil && n == 3 && to.file >= 0 && to.group >= 0 && to.row >= 0 && to.file <= len(p.files)
	if valid && to.file < len(p.files) {
		rows := p.files[to.file].rows
		valid = to.group <= len(rows) && (to.group < len(rows) && to.row <= rows[to.group] || to.row == 0)
	}
	if !valid || to.file == len(p.files) && (to.group > 0 || to.row > 0) {
		return fmt.Errorf("parquet: cursor %q is no place in these %d files", cursor, len(p.files))
	}
	p.closeGroup()
	p.at = to
	return ctx.Err()
}

// Fingerprint covers options, and names, sizes, versions and schemas of all files in their order. The version of a local file
// is its modification time, that of an object its tag.
func (p *Parquet) Fingerprint() string { return "parquet:" + p.sum.String() }

// Meta names the classes where one column that is read has class labels.
func (p *Parquet) Meta() format.Metadata {
	if p.plan.classes == nil {
		return nil
	}
	b, err := json.Marshal(p.plan.classes)
	if err != nil {
		panic("parquet: classes: " + err.Error()) // strings
	}
	return format.Metadata{"classes": string(b)}
}

// Close frees the file being read. The stores are the caller's.
func (p *Parquet) Close() error {
	p.closeGroup()
	return p.closeFile()
}
