package lines

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/shardtool/shardtool/format"
)

// cutter cuts the bytes of a file into chunks of whole rows. It is not safe for concurrent use.
type cutter struct {
	in    io.Reader
	comma byte
	plain bool // quotes in cells are text
	limit int  // maximum size of a row
	// stored, if not nil, returns how many bytes of a compressed file there are, or were read. A row
	// that they do not justify is too long: a line of a GiB takes 40 KB.
	stored func() int64
	most   int // of limit
	size   int // size of a chunk
	buf    []byte
	lo     int // buf[lo:] has been read and not yet cut
	eof    bool
	err    error // error after the bytes in buf
	at     place // place of buf[lo]
	// Rows that begin before from, or at or after stop, are dropped.
	from, stop int64
	scanned    int64 // bytes scanned for quotes without finding the end of a row
	list       listState
	shard      *shardCut // of MDS
}

func newCutter(in io.Reader, comma byte, limit int64, at place) *cutter {
	u := &cutter{in: in, comma: comma, limit: int(min(limit, math.MaxInt32)), most: int(min(limit, math.MaxInt32)),
		size: chunkSize, at: at, stop: math.MaxInt64}
	if at.row > 0 {
		u.list = listNext
	}
	return u
}

// next fills a chunk with copies of the next rows, or returns io.EOF.
func (u *cutter) next(c *chunk) error {
	cut := u.lines
	switch u.comma {
	case 0, textLine:
	case tfRecord:
		cut = u.records
	case jsonList:
		cut = u.elements
	case mdsShard:
		cut = u.samples
	default:
		cut = u.rows
	}
	for {
		c.reset()
		if u.at.off >= u.stop {
			return io.EOF
		}
		for want := u.size; ; want = u.more() {
			if err := u.fill(want); err != nil {
				return err
			}
			if u.lo == len(u.buf) {
				if u.comma == jsonList && u.list != listOver {
					return u.unclosed(u.at.row)
				}
				if u.shard != nil {
					return u.shardEnd()
				}
				return io.EOF
			}
			c.limit = u.limit
			if done, err := cut(c); err != nil {
				return err
			} else if done {
				break
			}
		}
		if len(c.buf) > 0 || c.long {
			return nil
		}
	}
}

// more is the size to which the buffer grows: twice what it has, but hardly more than the longest
// row.
func (u *cutter) more() int {
	have := max(u.size, len(u.buf)-u.lo)
	return max(min(2*have, u.limit+u.size), have+1)
}

// plausible is the size of a row that is believed whatever the stored size. Beyond, it may be 1,024
// times as large.
const plausible = 64 << 20

// fill reads until want bytes are buffered. The buffer grows with the bytes that arrive.
func (u *cutter) fill(want int) error {
	if u.err != nil {
		return u.err
	}
	if u.stored != nil {
		u.limit = int(min(int64(u.most), max(plausible, 1024*u.stored())))
	}
	begin := u.at.off == 0 && u.comma != tfRecord && u.shard == nil
	if u.lo > 0 && (len(u.buf)-u.lo < want) {
		u.buf = append(u.buf[:0], u.buf[u.lo:]...)
		u.lo = 0
		if cap(u.buf) > 8<<20 && len(u.buf) < u.size { // after a long row
			u.buf = append(make([]byte, 0, 2*u.size), u.buf...)
		}
	}
	for !u.eof && u.err == nil && len(u.buf)-u.lo < want {
		if len(u.buf) == cap(u.buf) {
			u.buf = append(make([]byte, 0, max(u.more(), want)), u.buf...)
		}
		n, err := u.in.Read(u.buf[len(u.buf):cap(u.buf)])
		u.buf = u.buf[:len(u.buf)+n]
		switch {
		case err == io.EOF:
			u.eof = true
		case err != nil && len(u.buf) > u.lo: // return the rows before it first
			u.err = err
		case err != nil:
			return err
		}
	}
	if !begin {
		return nil
	}
	switch {
	case bytes.HasPrefix(u.buf, []byte("\xef\xbb\xbf")):
		u.take(nil, 3)
	case bytes.HasPrefix(u.buf, []byte("\xff\xfe")), bytes.HasPrefix(u.buf, []byte("\xfe\xff")):
		return fmt.Errorf("%w: it is UTF-16: convert it with `iconv -f utf-16 -t utf-8`", format.ErrCorrupt)
	}
	return nil
}

// take moves n bytes to the chunk, or drops them if c is nil.
func (u *cutter) take(c *chunk, n int) {
	if c != nil {
		c.buf = append(c.buf, u.buf[u.lo:u.lo+n]...)
	}
	u.lo += n
	u.at.off += int64(n)
}

// takeLines is take for whole lines, which it counts.
func (u *cutter) takeLines(c *chunk, n int) {
	lines := int64(bytes.Count(u.buf[u.lo:u.lo+n], newline))
	u.take(c, n)
	u.at.line, u.at.row = u.at.line+lines, u.at.row+lines
}

// lines cuts after the last line of JSON that fits. It returns false if it needs more bytes.
func (u *cutter) lines(c *chunk) (bool, error) {
	w := u.buf[u.lo:]
	first := min(len(w), u.size)
	end := bytes.LastIndexByte(w[:first], '\n') + 1
	if end == 0 {
		if k := bytes.IndexByte(w[first:], '\n'); k >= 0 {
			end = first + k + 1
		}
	}
	switch {
	case end == 0 && len(w) > u.limit:
		return true, u.tooLong(c)
	case end == 0 && u.eof:
		end = len(w)
	case end == 0:
		return false, nil
	}
	// Drop what begins before from: the first line to keep begins after the line end at from-1 or
	// later.
	if before := u.from - u.at.off - 1; before >= 0 {
		drop := end
		if before < int64(end) {
			if k := bytes.IndexByte(w[before:end], '\n'); k >= 0 {
				drop = int(before) + k + 1
			}
		}
		u.takeLines(nil, drop)
		w, end = w[drop:], end-drop
	}
	if over := u.at.off + int64(end) - u.stop; over > 0 { // the last line to keep begins before stop
		last := u.stop - u.at.off - 1
		if last < 0 {
			end = 0
		} else if k := bytes.IndexByte(w[last:end], '\n'); k >= 0 {
			end = int(last) + k + 1
		}
	}
	c.place = u.at
	u.takeLines(c, end)
	return true, nil
}

// tooLong makes the next line a chunk of one bad row.
func (u *cutter) tooLong(c *chunk) error {
	c.place, c.long = u.at, u.at.off >= u.from
	for {
		end := lineEnd(u.buf[u.lo:])
		whole := end > 0 || u.eof
		if end == 0 {
			end = len(u.buf) - u.lo
		}
		if u.take(nil, end); whole {
			u.at.line, u.at.row = u.at.line+1, u.at.row+1
			c.after = u.at
			return nil
		}
		if err := u.fill(u.size); err != nil {
			return err
		}
	}
}

// rows cuts whole CSV rows. It returns false if there is none yet.
func (u *cutter) rows(c *chunk) (bool, error) {
	c.place = u.at
	w := u.buf[u.lo:]
	at, pos, quote := u.at, 0, -1
	for pos < min(len(w), u.size) && at.off < u.stop {
		if u.plain {
			quote = len(w)
		}
		if quote < pos { // find the next quote
			if quote = bytes.IndexByte(w[pos:], '"'); quote < 0 {
				quote = len(w) - pos
			}
			quote += pos
		}
		s, err := u.row(w[pos:], quote-pos, at)
		if err != nil {
			return false, err
		}
		if s.end == 0 && pos == 0 {
			if s.bad != nil {
				return true, u.tooLong(c)
			}
			return false, nil
		}
		if s.end == 0 {
			break
		}
		s.begin, s.end = pos, pos+s.end
		blank := len(trimEnd(w[s.begin:s.end])) == 0
		if !blank && at.off >= u.from {
			c.spans = append(c.spans, s)
		}
		at.off, at.line = at.off+int64(s.end-pos), at.line+s.lines
		if pos = s.end; !blank {
			at.row++
		}
	}
	return u.took(c, pos, at), nil
}

// row finds the end of the row at the beginning of b, whose first quote is at quote. s.end is 0 if
// the end is missing; s.bad is set as well if even the line is too long. A bad row ends with its
// first line, so that it does not take other rows with it.
func (u *cutter) row(b []byte, quote int, at place) (s span, err error) {
	s = span{line: at.line, row: at.row, lines: 1}
	line := lineEnd(b)
	if line == 0 && u.eof {
		line = len(b)
	}
	if line > 0 && line <= quote { // no quotes in the row
		if s.end = line; line > u.limit {
			s.bad = tooLongError(u.limit)
		}
		return s, nil
	}
	if u.plain { // the end of the line is missing
		if len(b) > u.limit {
			s.bad = tooLongError(u.limit)
		}
		return s, nil
	}
	end, wrong, state := scanRow(b, u.comma, u.eof)
	switch {
	case state == rowWhole && end <= u.limit:
		s.end = end
		s.lines = max(1, int64(bytes.Count(b[:end], newline)))
		return s, nil
	case state == rowCut && len(b) <= u.limit, line == 0 && len(b) <= u.limit:
		return s, nil
	case state == rowQuoted, state == rowOpen:
		s.bad = quoteError(b, wrong, end, at.line, state)
	default:
		s.bad = tooLongError(u.limit)
		end = len(b)
	}
	s.end = line
	// The bytes scanned for a bad row are scanned again for the next ones.
	if u.scanned += int64(end); u.scanned > 8*(at.off+int64(len(b)))+4*int64(u.limit) {
		return s, fmt.Errorf("line %d: %w: too many quotes are not closed to find the ends of rows: double the quotes inside cells", at.line, format.ErrCorrupt)
	}
	return s, nil
}

// records cuts whole records. It returns false if there is none yet. What follows a damaged length
// cannot be found.
func (u *cutter) records(c *chunk) (bool, error) {
	c.place = u.at
	w, at, pos := u.buf[u.lo:], u.at, 0
	for pos < len(w) && pos < max(u.size, 1) {
		rest := w[pos:]
		size := uint64(0)
		if len(rest) >= recordHead {
			if maskedCRC(rest[:8]) != binary.LittleEndian.Uint32(rest[8:]) {
				return false, corruptf("record %d: its length does not match its checksum", at.row)
			}
			if size = binary.LittleEndian.Uint64(rest); size > uint64(u.limit) {
				return false, fmt.Errorf("record %d: %w", at.row, tooLongError(u.limit))
			}
		}
		if uint64(len(rest)) < recordHead+recordTail+size {
			if u.eof {
				return false, corruptf("record %d is cut off: the file ends in it", at.row)
			}
			break
		}
		end := pos + recordHead + recordTail + int(size)
		c.spans = append(c.spans, span{begin: pos, end: end, line: at.line, row: at.row, lines: 1})
		at.off, at.line, at.row, pos = at.off+int64(end-pos), at.line+1, at.row+1, end
	}
	return u.took(c, pos, at), nil
}

// elements cuts whole elements of a list. It returns false if there is none yet. Where the brackets
// or quotes of an element are not closed, what follows it cannot be found.
func (u *cutter) elements(c *chunk) (bool, error) {
	c.place = u.at
	w, at, pos := u.buf[u.lo:], u.at, 0
	for pos < max(u.size, 1) {
		i := skipSpace(w, pos)
		if i == len(w) {
			break
		}
		state, b := u.list, w[i]
		switch {
		case state == listOver:
			return false, corruptf("line %d: %q follows the end of the list", at.line+count(w[pos:i]), b)
		case state == listBefore && b == '[':
			u.list = listFirst
			i++
		case state == listBefore:
			return false, corruptf("line %d: it begins with %q, and a .json file is one list of objects, or lines of them", at.line+count(w[pos:i]), b)
		case b == ']':
			u.list = listOver
			i++
		case state == listNext && b != ',':
			return false, corruptf("line %d: %q follows element %d, where a comma or ] is expected",
				at.line+count(w[pos:i]), b, at.row-1)
		default:
			if state == listNext {
				i = skipSpace(w, i+1)
			}
			line := at.line + count(w[pos:i])
			n, whole := elementEnd(w[i:], u.eof)
			if n > u.limit {
				return false, fmt.Errorf("line %d: element %d: %w", line, at.row, tooLongError(u.limit))
			}
			if !whole && u.eof {
				return false, corruptf("line %d: element %d is not closed: the file is cut off, or has a quote or bracket too few", line, at.row)
			}
			if !whole {
				return u.took(c, pos, at), nil
			}
			if n == 0 {
				return false, corruptf("line %d: %q found where element %d is expected", line, w[i], at.row)
			}
			s := span{begin: i, end: i + n, line: line, row: at.row, lines: count(w[i : i+n])}
			c.spans = append(c.spans, s)
			u.list = listNext
			at.row++
			i += n
		}
		at.line += count(w[pos:i])
		at.off += int64(i - pos)
		pos = i
	}
	if u.eof && u.list != listOver && skipSpace(w, pos) == len(w) {
		return false, u.unclosed(at.row)
	}
	if pos == 0 && u.eof { // spaces
		pos = len(w)
	}
	return u.took(c, pos, at), nil
}

// unclosed is the error of a list without an end, after that many elements.
func (u *cutter) unclosed(rows int64) error {
	if u.list == listBefore {
		return corruptf("it is empty: a .json file is one list of objects, or lines of them")
	}
	if rows == 0 {
		return corruptf("the list is not closed: the file is cut off before its first element")
	}
	return corruptf("the list is not closed: the file is cut off after element %d", rows-1)
}

// took moves the bytes before at, of which there are pos, to the chunk, or drops them if it has no
// row. It returns false if there are none.
func (u *cutter) took(c *chunk, pos int, at place) bool {
	if pos == 0 {
		return false
	}
	if len(c.spans) == 0 {
		c = nil
	}
	u.take(c, pos)
	u.at = at
	return true
}
