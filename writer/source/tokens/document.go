package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer"
)

// smallDocument is the maximum size of a document that is read into memory. Larger ones are
// streamed.
const smallDocument = 16 << 20

// document is the tokens of one sample of the source.
type document struct {
	key    string
	before mark
	tokens int64
	at     int64 // tokens used
	reader idReader
}

// idReader reads the ids of a document.
type idReader interface {
	// append appends the next n ids, which must exist.
	append(dst []byte, n int64) ([]byte, error)
	// count reads to the end and counts ids. It fails if one does not fit.
	count() (int64, error)
	close()
}

// content is the content of a field.
type content struct {
	ctx     context.Context
	data    []byte         // in memory
	payload writer.Payload // if streamed; nil otherwise
	size    int64
}

// streamed is a payload that is read while its ids are used; in is nil for one in memory.
type streamed struct{ in io.ReadCloser }

func (s *streamed) close() {
	if s.in != nil {
		s.in.Close()
	}
}

// openDocument finds the tokens of a sample. Errors are found before its first token is used, and
// belong to the sample.
func (j *joinSource) openDocument(ctx context.Context, u *upcoming) (*document, error) {
	if err := format.CheckKey(u.sample.Key); err != nil {
		return nil, err
	}
	f := &u.field
	c := &content{ctx: ctx, size: int64(len(f.Data))}
	if f.Payload != nil {
		c.size = f.Size
	}
	var err error
	if f.Payload != nil && f.Size > j.ahead.small {
		c.payload = f.Payload
	} else if c.data, err = j.ahead.bytes(ctx, u); err != nil {
		return nil, err
	}
	d := &document{key: u.sample.Key, before: u.before}
	if d.reader, d.tokens, err = j.openIDs(c); err != nil {
		return nil, fmt.Errorf("field %q: %w", f.Name, err)
	}
	d.tokens += int64(len(j.opt.Separator))
	return d, nil
}

// chooseField returns the field of tokens.
func chooseField(fields []writer.Field, from string) (*writer.Field, error) {
	find := func(is func(name string) bool) (found *writer.Field, n int) {
		for i := range fields {
			if is(fields[i].Name) {
				found = &fields[i]
				n++
			}
		}
		return found, n
	}
	if from != "" {
		for _, suffix := range []string{"", ".npy", ".json"} {
			if f, n := find(func(name string) bool { return name == from+suffix }); n > 0 {
				return f, nil
			}
		}
		return nil, fmt.Errorf("there is no field %q of tokens; there are: %s", from, fieldNames(fields))
	}
	for _, kind := range []string{"npy", "json"} {
		f, n := find(func(name string) bool { return extension(name) == kind })
		if n == 1 {
			return f, nil
		}
		if n > 1 {
			return nil, fmt.Errorf("%w: %d could be the tokens, %s", ErrField, n, fieldNames(fields))
		}
	}
	return nil, fmt.Errorf("no field is an array or a JSON list; there are: %s", fieldNames(fields))
}

// extension returns the part after the last dot, or the whole name.
func extension(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func fieldNames(fields []writer.Field) string {
	var names []string
	for _, f := range fields[:min(len(fields), 8)] {
		names = append(names, strconv.Quote(f.Name))
	}
	if len(fields) > 8 {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// openIDs detects the type of the content, and validates all of it if an id might not fit.
func (j *joinSource) openIDs(c *content) (r idReader, n int64, err error) {
	if c.size == 0 {
		return nil, 0, errors.New("it is empty: an empty array has a header, an empty list brackets")
	}
	first := c.data
	if c.payload != nil {
		in, err := c.payload.Open(c.ctx)
		if err != nil {
			return nil, 0, err
		}
		first = make([]byte, 1)
		_, err = io.ReadFull(in, first)
		in.Close()
		if err != nil {
			return nil, 0, err
		}
	}
	array := first[0] == npy.Magic[0]
	open := func() (idReader, int64, error) {
		if array {
			return j.openArray(c)
		}
		return j.openList(c)
	}
	r, n, err = open()
	if err != nil || n >= 0 {
		return r, n, err
	}
	n, err = r.count()
	r.close()
	if err == nil {
		r, _, err = open()
	}
	return r, n, err
}

// arrayReader reads a .npy file.
type arrayReader struct {
	streamed
	from layout
	to   DType
	data []byte // remaining ids, in memory
	buf  []byte
	left int64 // remaining ids of in
}

// openArray reads the header. n is the number of ids, or -1 if one may not fit.
func (j *joinSource) openArray(c *content) (_ idReader, n int64, err error) {
	r := &j.array
	*r = arrayReader{to: j.opt.DType, buf: r.buf}
	var h npy.Header
	var begin int64
	if c.payload == nil {
		h, begin, err = j.headerOf(c.data)
	} else if r.in, err = c.payload.Open(c.ctx); err == nil {
		h, begin, err = readHeader(r.in, c.size)
	}
	if err == nil {
		r.from, err = layoutOf(&h)
	}
	if err == nil {
		r.left, err = documentLength(&h, c.size-begin)
	}
	if err != nil {
		r.close()
		return nil, 0, err
	}
	if c.payload == nil {
		r.data = c.data[begin:]
	}
	if !r.from.sure(r.to) {
		return r, -1, nil
	}
	return r, r.left, nil
}

// headerOf is readHeader for content in memory. Documents of the same length have the same header,
// which is cached.
func (j *joinSource) headerOf(data []byte) (h npy.Header, begin int64, err error) {
	if n := len(j.known); n > 0 && bytes.HasPrefix(data, j.known) {
		return j.header, int64(n), nil
	}
	h, begin, err = readHeader(bytes.NewReader(data), int64(len(data)))
	if err == nil {
		j.known, j.header = append(j.known[:0], data[:begin]...), h
	}
	return h, begin, err
}

func readHeader(in io.Reader, size int64) (h npy.Header, begin int64, err error) {
	head := make([]byte, min(npy.Lead, size))
	if _, err := io.ReadFull(in, head); err != nil {
		return h, 0, err
	}
	begin, err = npy.HeaderLen(head)
	if err == nil && begin > size {
		err = fmt.Errorf("its header of %d bytes is truncated: the content has %d", begin, size)
	}
	if err != nil {
		return h, 0, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	head = append(head, make([]byte, max(0, begin-npy.Lead))...)
	if _, err := io.ReadFull(in, head[min(npy.Lead, len(head)):]); err != nil {
		return h, 0, err
	}
	if h, err = npy.Parse(head[:begin]); err != nil {
		return h, 0, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	return h, begin, nil
}

// documentLength returns the number of ids in an array of one row. Some tokenizers add dimensions
// of 1.
func documentLength(h *npy.Header, have int64) (int64, error) {
	n, long := int64(1), 0
	for _, d := range h.Shape {
		if d != 1 {
			n, long = d, long+1
		}
	}
	if len(h.Shape) == 0 || long > 1 {
		return 0, fmt.Errorf("an array of shape %s is not a list of tokens: give each row as a document",
			shapeText(h.Shape))
	}
	want, ok := sizeOf([]int64{n}, int64(h.Size))
	if !ok || want != have {
		return 0, fmt.Errorf("%w: %d bytes do not match an array of shape %s", format.ErrCorrupt, have,
			shapeText(h.Shape))
	}
	return n, nil
}

func (r *arrayReader) append(dst []byte, n int64) (out []byte, err error) {
	size := r.from.size()
	if r.in == nil {
		src := r.data[:n*size]
		r.data = r.data[n*size:]
		return convert(dst, src, r.from, r.to)
	}
	for n > 0 {
		some := min(n, (256<<10)/size)
		r.buf = slices.Grow(r.buf[:0], int(some*size))[:some*size]
		if _, err := io.ReadFull(r.in, r.buf); err != nil {
			return dst, err
		}
		if dst, err = convert(dst, r.buf, r.from, r.to); err != nil {
			return dst, err
		}
		r.left -= some
		n -= some
	}
	if r.left == 0 { // a payload reports only at its end whether it has changed
		if n, err := io.ReadFull(r.in, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			return dst, fmt.Errorf("after the array: %w", err)
		}
	}
	return dst, nil
}

func (r *arrayReader) count() (int64, error) {
	n, err := readOver(r, r.left)
	var m *misfit
	if errors.As(err, &m) {
		m.at += n
	}
	return n, err
}

// readOver reads n ids, and returns how many it read without an error.
func readOver(r idReader, n int64) (done int64, err error) {
	var buf []byte
	for done < n {
		some := min(n-done, 32<<10)
		if buf, err = r.append(buf[:0], some); err != nil {
			return done, err
		}
		done += some
	}
	return done, nil
}
