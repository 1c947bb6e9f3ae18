package parquet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// Rows are the rows of Parquet files as samples, file by file in the order given. A sample is valid
// until the next call of Next.
type Rows struct {
	writer.Splitter
	// Even reports whether all fields are lists of numbers that have one length, as far as the
	// footers tell: in each row group a whole number of values for each row, the same in all of
	// them. Rows of other lengths can still have that mean.
	Even bool
	// Widened are the columns that Options.Widen has read as floats.
	Widened []string
	// Passed are the files that are not read, because Options.Where excludes their folders.
	Passed []string

	of *rowSource
}

// LeftOut counts the rows before the cursor for which Options.Where does not hold.
func (r *Rows) LeftOut() (before, behind writer.RowsLeft) { return r.of.left, writer.RowsLeft{} }

// rowSource reads the rows of files.
type rowSource struct {
	files []*parquetFile
	plan  *plan
	sum   format.Hash

	begin, at, end place
	left           writer.RowsLeft // before at
	open           *openedFile
	group          *group
	stored         []byte // compressed page, shared by all columns
	pageMemory     int64
}

var _ writer.Splitter = (*rowSource)(nil)

// openedFile is the file being read.
type openedFile struct {
	of     *parquetFile
	at     *readerAt
	reader *file.Reader
	arrow  *arrowReader // in place of reader
	// uncounted is the number of bytes that the lengths of column chunks may lack.
	uncounted int64
}

// place is a row, by file, row group and row in the group.
type place struct {
	file, group int
	row         int64
}

// New reads the footers of all files and checks the options against them. Errors in the options
// wrap writer.ErrOptions, errors in a file format.ErrCorrupt; each names the file. Files with
// different columns are combined if columns of the same name have the same type; a column that a
// file lacks is null. The caller must close the source, and closes the stores afterwards.
func New(ctx context.Context, in []source.Input, opt Options) (*Rows, error) {
	if len(in) == 0 {
		return nil, writer.Optionf("inputs", "there are none")
	}
	choice := opt.choice()
	if err := choice.Check(); err != nil {
		return nil, err
	}
	files := inputs.Files(in)
	if err := inputs.SetStems(files, append([]string{".parquet", ".parq", ".pq"}, arrowEndings...)...); err != nil {
		return nil, writer.Optionf("inputs", "%w", err)
	}
	files, passed, err := inputs.Hive(files, opt.Where)
	if err != nil {
		return nil, err
	}
	p := &rowSource{files: make([]*parquetFile, len(files)), pageMemory: cmp.Or(opt.PageMemory, defaultPageMemory)}
	const together = 8 // requests in flight, and footers in memory
	err = inputs.Survey(ctx, len(files), together, func(ctx context.Context, i int) error {
		f := &parquetFile{File: files[i]}
		p.files[i] = f
		if err := f.survey(ctx); err != nil {
			return hint.At(f.Path, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.share()
	if p.plan, err = newPlan(p.files, &opt); err != nil {
		return nil, err
	}
	if err := p.measure(ctx, &opt); err != nil {
		return nil, err
	}
	p.end = place{file: len(p.files)}
	rows := &Rows{Splitter: p, Even: p.even(), Passed: passed, of: p}
	for _, c := range p.plan.columns {
		if c.wide && c.Wanted {
			rows.Widened = append(rows.Widened, c.Name)
		}
	}
	return rows, nil
}

// share makes files with the same schema share it.
func (p *rowSource) share() {
	seen := map[string]*parquetFile{}
	for _, f := range p.files {
		key := f.schema + strings.Join(f.features, "\n") + "\n" + f.forms
		if first := seen[key]; first != nil {
			f.schema, f.columns, f.byName, f.labels, f.features = first.schema, first.columns, first.byName,
				first.labels, first.features
			continue
		}
		seen[key] = f
	}
}

// measure computes the fingerprint.
func (p *rowSource) measure(ctx context.Context, opt *Options) error {
	h, err := inputs.Fingerprint(opt)
	if err != nil {
		return err
	}
	if p.plan.forms() {
		fmt.Fprintln(h, "forms 2")
	}
	for _, f := range p.files {
		fmt.Fprintf(h, "%q %d %q %v %s\n", f.Stem, f.Info.Size, f.Version(f.Info), f.rows, f.schema)
		for _, c := range f.Constants {
			fmt.Fprintf(h, "%q %t %q\n", c.Name, c.Null, c.Text)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	h.Sum(p.sum[:0])
	return nil
}

// Next implements writer.Source.
func (p *rowSource) Next(ctx context.Context) (writer.Sample, error) {
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
		if failed := p.open.at.err; failed != nil { // an error of the store, which may be temporary
			p.drop()
			return writer.Sample{}, fmt.Errorf("%s: %w", p.files[p.at.file].Path, failed)
		}
		p.at.row = p.group.row
		if ok || err != nil {
			return s, err
		}
		p.left.Where++
	}
}

// ready opens the row group of the current place and ensures that it has a row there. It returns
// false at the end.
func (p *rowSource) ready(ctx context.Context) (bool, error) {
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
		if p.at.file >= p.end.file && (p.at.file > p.end.file || p.at.group >= p.end.group) ||
			p.at.file == len(p.files) {
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

// openGroup opens the row group of the current place, and its file if it is not open.
func (p *rowSource) openGroup(ctx context.Context) error {
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
		p.group = &group{plan: p.plan, of: f, no: p.at.group, rows: f.rows[p.at.group]}
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
	if errors.Is(err, errNever) {
		p.left.Where += p.group.rows - p.at.row
	}
	return nil
}

// openFile reads the footer of the next file again, because the footers of all files would take too
// much memory.
func (p *rowSource) openFile(ctx context.Context, f *parquetFile) error {
	obj, err := f.Reopen(ctx)
	if err != nil {
		return err
	}
	p.open = &openedFile{of: f, at: &readerAt{ctx: ctx, obj: obj}}
	if f.messages != nil {
		p.open.arrow = &arrowReader{list: f.messages, at: p.open.at, remote: f.Remote, limit: 2 * p.pageMemory}
		return nil
	}
	meta, err := readFooter(p.open.at, f.Info.Size)
	if err != nil {
		return err
	}
	p.open.uncounted = uncounted(meta)
	p.open.reader, err = file.NewParquetReader(io.NewSectionReader(p.open.at, 0, f.Info.Size), file.WithMetadata(meta))
	return err
}

// drop closes the row group and the file after an error of the store, and keeps the place.
func (p *rowSource) drop() {
	p.closeGroup()
	_ = p.closeFile() // the earlier error is reported
}

func (p *rowSource) closeGroup() {
	if p.group != nil {
		p.group.close()
		p.group = nil
	}
}

func (p *rowSource) closeFile() error {
	if p.open == nil {
		return nil
	}
	obj := p.open.at.obj
	if p.open.arrow != nil {
		p.open.arrow.close()
	}
	p.open = nil
	return obj.Close()
}

// Cursor returns the file, the row group and the row of the next sample, counted from 0 and
// separated by slashes.
func (p *rowSource) Cursor() string { return fmt.Sprintf("%d/%d/%d", p.at.file, p.at.group, p.at.row) }

// Seek moves to a cursor. It decodes the earlier rows of the same row group, and no others.
func (p *rowSource) Seek(ctx context.Context, cursor string) error {
	var to place
	n, err := fmt.Sscanf(cursor, "%d/%d/%d", &to.file, &to.group, &to.row)
	valid := err == nil && n == 3 && to.file >= 0 && to.group >= 0 && to.row >= 0 && to.file <= len(p.files)
	if valid && to.file < len(p.files) {
		rows := p.files[to.file].rows
		valid = to.group <= len(rows) && (to.group < len(rows) && to.row <= rows[to.group] || to.row == 0)
	}
	if !valid || to.file == len(p.files) && (to.group > 0 || to.row > 0) {
		return fmt.Errorf("cursor %q is not a place in these %d files", cursor, len(p.files))
	}
	p.closeGroup()
	p.at, p.left = to, writer.RowsLeft{}
	return ctx.Err()
}

// Fingerprint covers the options, and the names, sizes, versions and schemas of all files in order.
// The version of a local file is its modification time, of an object its ETag.
func (p *rowSource) Fingerprint() string { return "parquet:" + p.sum.String() }

// Meta names the classes, if exactly one column that is read has class labels, and states the kinds
// and features of fields by the columns' types.
func (p *rowSource) Meta() format.Metadata {
	meta := p.plan.kinds().Meta()
	p.plan.features().Put(meta)
	if p.plan.classes != nil {
		maps.Copy(meta, fields.Classes(p.plan.classes))
	}
	return meta
}

// Close closes the current file. It does not close the stores.
func (p *rowSource) Close() error {
	p.closeGroup()
	return p.closeFile()
}

// unit is a row group, the smallest part of a source. file and group count from 0, bytes is the
// decoded size of all columns.
type unit struct {
	place
	rows, bytes int64
}

// units returns the row groups that hold rows, in order, of the current part after Split.
func (p *rowSource) units() []unit {
	var out []unit
	for i, f := range p.files {
		for k, rows := range f.rows {
			before := i < p.begin.file || i == p.begin.file && k < p.begin.group
			behind := i > p.end.file || i == p.end.file && k >= p.end.group
			if rows > 0 && !before && !behind {
				out = append(out, unit{place{file: i, group: k}, rows, f.bytes[k]})
			}
		}
	}
	return out
}

// Split limits the source to part of parts, counted from 0, and moves to its beginning. Parts are
// runs of row groups: a row group belongs to part ⌊first row × parts ÷ rows⌋, with rows counted
// over all files. A part may be empty. The fingerprint does not change.
func (p *rowSource) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("there is no part %d of %d: parts count from 0", part, parts)
	}
	p.closeGroup()
	p.left = writer.RowsLeft{}
	p.begin, p.end = place{}, place{file: len(p.files)}
	units := p.units()
	first, last := inputs.Run(len(units), func(i int) int64 { return units[i].rows }, part, parts)
	if last < len(units) && first < last {
		p.end = units[last].place
	}
	if p.begin = p.end; first < last {
		p.begin = units[first].place
	}
	p.at = p.begin
	return nil
}

// Total returns the number of rows and the decoded bytes of their columns, of the current part
// after Split. It includes the rows that Where drops.
func (p *rowSource) Total() (samples, bytes int64) {
	for _, u := range p.units() {
		samples += u.rows
		bytes += u.bytes
	}
	return samples, bytes
}
