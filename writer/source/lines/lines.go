package lines

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

var _ writer.Splitter = (*lineSource)(nil)

// New returns the rows of files as samples, file by file in the order given. A sample is valid
// until the next call of Next. New reads the headers and checks the options against them. Errors in
// the options wrap writer.ErrOptions, errors in a file format.ErrCorrupt; each names the file. CSV
// files with different columns, and JSON Lines next to them, are combined: a column that a row
// lacks is null. The caller must close the source, and closes the stores afterwards.
func New(ctx context.Context, in []source.Input, opt Options) (writer.Splitter, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return nil, writer.Optionf("inputs", "there are none")
	}
	files := inputs.Files(in)
	if err := opt.setStems(files); err != nil {
		return nil, err
	}
	files, passed, err := inputs.Hive(files, opt.Where)
	if err != nil {
		return nil, err
	}
	s := &lineSource{files: make([]*textFile, len(files)), passed: passed, whole: true}
	var known indexes
	const together = 8 // requests in flight
	err = inputs.Survey(ctx, len(files), together, func(ctx context.Context, i int) error {
		f := &textFile{File: files[i]}
		s.files[i] = f
		if err := f.survey(ctx, &opt, &known); err != nil {
			return hint.At(f.Path, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.share()
	s.end = place{file: len(s.files)}
	s.at = s.begin(0)
	if s.plan, err = newPlan(s.files, &opt); err == nil {
		err = s.chooseKinds(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, s.measure(&opt)
}

// share makes neighbouring files with the same header share it.
func (s *lineSource) share() {
	for i, f := range s.files[1:] {
		if last := s.files[i]; slices.Equal(last.header, f.header) {
			f.header = last.header
		}
	}
}

// measure computes the fingerprint.
func (s *lineSource) measure(opt *Options) error {
	h, err := inputs.Fingerprint(opt)
	if err != nil {
		return err
	}
	for _, f := range s.files {
		fmt.Fprintf(h, "%q %d %q %d %d\n", f.Stem, f.Info.Size, f.Version(f.Info), f.comma, f.coding)
		for _, c := range f.Constants {
			fmt.Fprintf(h, "%q %t %q\n", c.Name, c.Null, c.Text)
		}
	}
	h.Sum(s.sum[:0])
	return nil
}

// Next implements writer.Source.
func (s *lineSource) Next(ctx context.Context) (writer.Sample, error) {
	for {
		if err := ctx.Err(); err != nil {
			return writer.Sample{}, err
		}
		if s.over {
			return writer.Sample{}, io.EOF
		}
		ok, err := s.ready(ctx)
		if err != nil {
			return writer.Sample{}, err
		}
		if !ok {
			s.over = true
			behind := s.behind
			s.halt()
			s.behind = behind
			continue
		}
		c := s.cur
		if s.next == len(c.rows) {
			s.behind.Where += c.dropped
			s.cur = nil
			s.run.release(c)
			continue
		}
		r, from := &c.rows[s.next], &row{}
		if s.next > 0 {
			from = &c.rows[s.next-1]
		}
		for ; s.lesson < len(c.lessons) && c.lessons[s.lesson].row <= s.next; s.lesson++ {
			s.learned.add(c.lessons[s.lesson].name, c.lessons[s.lesson].word)
		}
		s.next++
		s.left = s.left.Plus(s.behind)
		s.left.Where += r.dropped
		s.behind = writer.RowsLeft{}
		s.at = r.after
		s.at.file = c.file
		out := writer.Sample{Key: c.keys[from.key:r.key], Origin: c.of.Path + ": line " + strconv.FormatInt(r.line, 10),
			Source: c.of.Path, Row: r.line}
		if r.err != nil {
			return writer.Sample{}, s.plan.Refused(out, r.err)
		}
		out.Fields, out.Attrs = c.Fields[from.field:r.field:r.field], c.Attrs[from.attr:r.attr:r.attr]
		return out, nil
	}
}

// ready waits for the next chunk if there is none. It returns false at the end.
func (s *lineSource) ready(ctx context.Context) (bool, error) {
	if s.run == nil {
		s.run = s.start(s.at)
	}
	if s.cur == nil {
		select {
		case c, ok := <-s.run.order:
			if !ok {
				return false, nil
			}
			s.cur, s.next, s.lesson, s.isParsed = c, 0, 0, false
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if !s.isParsed {
		select {
		case <-s.cur.ready:
			s.isParsed = true
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if err := s.cur.err; err != nil { // an error of the store, which may be temporary
		s.halt()
		return false, err
	}
	return true, nil
}

// Passed returns the files that are not read, because Options.Where excludes their folders.
func (s *lineSource) Passed() []string { return s.passed }

// Unmet has an error for each column that the options name and no row had so far, and a warning for
// each attribute whose values are numbers and text.
func (s *lineSource) Unmet() []*hint.OptionError { return append(s.plan.Unmet(), s.mixed...) }

// LeftOut counts the rows for which Options.Where does not hold: up to the cursor, and after the
// end also behind it.
func (s *lineSource) LeftOut() (before, behind writer.RowsLeft) { return s.left, s.behind }

// halt stops the background goroutines and keeps the place.
func (s *lineSource) halt() {
	s.behind = writer.RowsLeft{}
	if s.run != nil {
		s.run.stop()
		s.run, s.cur = nil, nil
	}
}

// Cursor returns the file, the offset in its decoded bytes, the line and the row of the next
// sample, separated by slashes, and the kinds of the fields before it.
func (s *lineSource) Cursor() string {
	return fmt.Sprintf("%d/%d/%d/%d%v", s.at.file, s.at.off, s.at.line, s.at.row, &s.learned)
}

// Seek moves to a cursor. It reads nothing before the cursor in a plain file, and everything in a
// compressed one.
func (s *lineSource) Seek(ctx context.Context, cursor string) error {
	var to place
	at, _, _ := strings.Cut(cursor, "{")
	n, err := fmt.Sscanf(at, "%d/%d/%d/%d", &to.file, &to.off, &to.line, &to.row)
	if err == nil {
		err = s.learned.parse(cursor[len(at):])
	}
	valid := err == nil && n == 4 && to.file >= 0 && to.off >= 0 && to.line >= 0 && to.row >= 0 &&
		to.file <= len(s.files)
	if valid && to.file < len(s.files) && s.files[to.file].coding == stream.Plain {
		valid = to.off <= s.files[to.file].Info.Size
	}
	if !valid || to.file == len(s.files) && to.off > 0 {
		return fmt.Errorf("cursor %q is not a place in these %d files", cursor, len(s.files))
	}
	s.halt()
	s.at, s.over, s.left = to, false, writer.RowsLeft{}
	return ctx.Err()
}

// Fingerprint covers the options, and the names, sizes and versions of all files in order. The
// version of a local file is its modification time, of an object its ETag.
func (s *lineSource) Fingerprint() string { return "lines:" + s.sum.String() }

// Meta returns nil: rows may differ, so that Learned has the kinds of fields.
func (s *lineSource) Meta() format.Metadata { return nil }

// Learned returns the kinds of the fields of the rows up to the cursor.
func (s *lineSource) Learned() format.Metadata {
	if s.learned.kinds == nil {
		return nil
	}
	return s.learned.kinds.Meta()
}

// Close stops the background goroutines. It does not close the stores.
func (s *lineSource) Close() error {
	s.halt()
	s.over = true
	return nil
}

// Split limits the source to part of parts, counted from 0, and moves to its beginning. It divides
// the concatenation of the stored files into parts of equal bytes. A row belongs to the part in
// which it begins, a whole compressed file to the part in which the file begins. In a plain file
// that begins in an earlier part, the earlier rows are counted, so that keys and messages are as
// for the whole.
func (s *lineSource) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("there is no part %d of %d: parts count from 0", part, parts)
	}
	s.halt()
	s.learned, s.left = learned{}, writer.RowsLeft{}
	total := int64(0)
	for _, f := range s.files {
		total += f.Info.Size
	}
	bound := func(part int) int64 { return inputs.MulDiv(total, int64(part), int64(parts)) }
	s.whole, s.part = false, [2]int64{bound(part), bound(part + 1)}
	s.at, s.end = s.locate(s.part[0]), s.locate(s.part[1])
	if part == 0 {
		s.at = s.begin(0)
	}
	if part == parts-1 { // empty files at the end would belong to no part otherwise
		s.end = place{file: len(s.files)}
	}
	s.over = false
	return nil
}

// locate returns the place of the first row that begins at or after a byte of the concatenated
// files.
func (s *lineSource) locate(at int64) place {
	before := int64(0)
	for i, f := range s.files {
		off := at - before
		before += f.Info.Size
		switch {
		case off <= 0:
			return s.begin(i)
		case off < f.Info.Size && !f.whole():
			return place{file: i, off: off}
		}
	}
	return place{file: len(s.files)}
}

// Total returns the bytes of the files, of the current part after Split, or 0 if some are
// compressed. The number of rows is not known.
func (s *lineSource) Total() (samples, bytes int64) {
	for _, f := range s.files {
		if f.coding != stream.Plain {
			return 0, 0
		}
		bytes += f.Info.Size
	}
	if !s.whole {
		bytes = s.part[1] - s.part[0]
	}
	return 0, bytes
}
