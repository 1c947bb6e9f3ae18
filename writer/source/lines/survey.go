package lines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// survey determines the kind of a file and reads the header of CSV and the columns of MDS.
func (f *textFile) survey(ctx context.Context, opt *Options, known *indexes) (err error) {
	f.comma, f.coding, _, _ = opt.kindOfInput(&f.File)
	if f.cells() && opt.Delimiter != "" {
		f.comma = opt.Delimiter[0]
	}
	f.first.line, f.plain = 1, opt.Unquoted
	if f.comma == textLine {
		f.header = []string{"txt"}
	}
	obj, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer obj.Close()
	if f.comma == jsonList {
		list, err := f.isList(ctx, obj)
		if err != nil {
			return err
		}
		if !list {
			f.comma = 0
		}
	}
	if f.comma == mdsShard {
		return f.surveyShard(ctx, obj, known)
	}
	if !f.cells() {
		return nil
	}
	u, done, err := f.cutter(ctx, obj, false, f.first, opt.MaxLine, 32<<10)
	if err != nil {
		return err
	}
	defer done()
	var c chunk
	if err := u.next(&c); err != nil {
		if err == io.EOF && opt.Header == HeaderNo {
			f.header = append([]string{}, opt.ColumnsAre...)
			return nil
		}
		if err == io.EOF {
			return fmt.Errorf("%w: it is empty: its first line has to name the columns", format.ErrCorrupt)
		}
		return err
	}
	if c.long {
		return fmt.Errorf("line 1: %w", tooLongError(u.limit))
	}
	h := c.spans[0]
	if h.bad != nil {
		return fmt.Errorf("line %d: %w", h.line, h.bad)
	}
	row := c.buf[h.begin:h.end]
	switch {
	case opt.Header == HeaderNo:
		return f.nameColumns(row, h.line, opt)
	case opt.Header == HeaderAuto && f.isData(row):
		return hint.At(fmt.Sprintf("line %d", h.line), writer.Optionf("header", "%w", hint.With(
			fmt.Errorf("the first line, %s, has numbers as data have, and would name the columns",
				quoted(string(trimEnd(row)))),
			hint.Set("header", "no", "makes it a sample"), hint.Hint{Option: "columns-are",
				Does: "does and names the columns"}, hint.Set("header", "yes", "takes it as the header"))))
	}
	f.first = place{off: c.off + int64(h.end), line: h.line + h.lines}
	if err := f.readHeader(row, h.line); err != nil {
		return err
	}
	if at := strings.IndexAny(f.header[0], ";\t|,"); at >= 0 && len(f.header) == 1 && opt.Delimiter == "" {
		return hint.At(fmt.Sprintf("line %d, the header", h.line), writer.Optionf("delimiter",
			"it names one column, %s, and cells are divided by %q; if by %q, say so, or say the first",
			quoted(f.header[0]), f.comma, f.header[0][at]))
	}
	return nil
}

// cutter opens the file at a place and cuts chunks of size bytes. Prefetching pays only if more
// than the first chunk is read. The caller must call done.
func (f *textFile) cutter(ctx context.Context, obj objstore.Object, prefetch bool, at place, limit int64,
	size int) (u *cutter, done func(), err error) {
	in, err := stream.Open(ctx, obj, f.Info.Size, prefetch, f.coding, at.off)
	if err != nil {
		return nil, nil, err
	}
	u = newCutter(in, f.comma, limit, at)
	u.plain = f.plain
	switch {
	case f.coding == stream.Plain:
	case f.Once():
		u.stored = in.Stored
	default:
		u.stored = func() int64 { return f.Info.Size }
	}
	u.size = size
	if f.shard != nil {
		f.cutShard(u)
	}
	return u, in.Close, nil
}

// readHeader parses the names of columns, which must be unique.
func (f *textFile) readHeader(b []byte, line int64) error {
	bad := func(msg string, args ...any) error {
		return fmt.Errorf("line %d, the header: %w", line, corruptf(msg, args...))
	}
	if !utf8.Valid(b) {
		return bad("it is not UTF-8: convert the file, such as with `iconv -f latin1 -t utf-8`")
	}
	seen := map[string]int{}
	var side []byte
	row := f.row(b)
	for !row.over {
		cell, _, grown := row.next(side)
		side = grown
		name := string(cell)
		n := len(f.header) + 1
		if first, twice := seen[name]; twice && name != "" {
			return bad("columns %d and %d are both called %q: rename one of them", first, n, name)
		}
		if strings.ContainsRune(name, '\r') {
			return bad("lines end with CR alone: convert the file, such as with `tr '\\r' '\\n'`")
		}
		if n > maxColumns {
			return bad("it has more than %d columns", maxColumns)
		}
		seen[name] = n
		f.header = append(f.header, name)
	}
	return nil
}

// isData reports whether all cells of a row are numbers, one of them negative or a fraction.
func (f *textFile) isData(b []byte) bool {
	row, data := f.row(b), false
	for !row.over {
		cell, _, _ := row.next(nil)
		if _, ok := (&rows.Cell{Kind: rows.Word, B: cell}).Float(); !ok {
			return false
		}
		data = data || !digitsOnly(cell) || cell[0] == '-'
	}
	return data
}

// nameColumns names the columns of a file without a header, whose first row is b.
func (f *textFile) nameColumns(b []byte, line int64, opt *Options) error {
	f.bare = true
	n := 0
	for row := f.row(b); !row.over; n++ {
		row.next(nil)
	}
	switch {
	case n > maxColumns:
		return fmt.Errorf("line %d: %w", line, corruptf("it has more than %d cells", maxColumns))
	case opt.ColumnsAre == nil:
		for i := range n {
			f.header = append(f.header, fmt.Sprintf("column%d", i+1))
		}
		return nil
	case n != len(opt.ColumnsAre):
		return hint.At(fmt.Sprintf("line %d", line),
			writer.Optionf("columns-are", "the row has %d cells, and there are %d names: %s", n, len(opt.ColumnsAre),
				strings.Join(opt.ColumnsAre, ", ")))
	}
	f.header = opt.ColumnsAre
	return nil
}

// isList reports whether the decoded content of a .json file begins as a list: many such files are
// JSON Lines.
func (f *textFile) isList(ctx context.Context, obj objstore.Object) (bool, error) {
	in, err := stream.Open(ctx, obj, f.Info.Size, false, f.coding, 0)
	if err != nil {
		return false, err
	}
	defer in.Close()
	head := make([]byte, 4096)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	head = bytes.TrimPrefix(head[:n], []byte("\xef\xbb\xbf"))
	i := skipSpace(head, 0)
	return i == len(head) || head[i] != '{', nil
}
