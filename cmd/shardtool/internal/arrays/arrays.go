// Package arrays reads the rows of .npy files of numbers as samples: each row is an .npy file of its
// own, of the same type. It is for layers whose row i is sample i.
package arrays

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// Rows is the rows of files, one file after the other. It is a writer.Source.
type Rows struct {
	// Shape and Descr describe a row.
	Shape []int64
	Descr string

	field string
	files []file
	rows  int64 // of all files
	head  []byte
	size  int64 // of a row, in bytes
	sum   string

	at   int64 // number of the next row
	buf  []byte
	from int64 // the row at the beginning of buf
}

type file struct {
	obj         objstore.Object
	path        string
	data        int64 // offset of the first row
	first, rows int64
}

// ahead is how many bytes are read at once, unless one row is longer.
const ahead = 4 << 20

// Open reads the headers of the files, whose rows must be of one type and shape. The field is the
// name of the first file.
func Open(ctx context.Context, files []source.Input) (*Rows, error) {
	r := &Rows{field: path.Base(files[0].Name)}
	h := sha256.New()
	for _, in := range files {
		if err := r.add(ctx, in, h); err != nil {
			r.Close()
			return nil, fmt.Errorf("%s: %w", in.Path, err)
		}
	}
	r.sum = fmt.Sprintf("arrays:%x", h.Sum(nil))
	return r, nil
}

func (r *Rows) add(ctx context.Context, in source.Input, sum io.Writer) error {
	obj, err := in.Store.Open(ctx, in.Name)
	if err != nil {
		return err
	}
	f := file{obj: obj, path: in.Path, first: r.rows}
	r.files = append(r.files, f)
	info, err := obj.Info(ctx)
	if err != nil {
		return err
	}
	first := make([]byte, min(npy.Lead, info.Size))
	if err := obj.ReadAt(ctx, first, 0); err != nil {
		return err
	}
	n, err := npy.HeaderLen(first)
	if err == nil && n > info.Size {
		err = fmt.Errorf("its header of %d bytes is truncated: the file has %d", n, info.Size)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	first = make([]byte, n) // at most 64 KiB
	if err := obj.ReadAt(ctx, first, 0); err != nil {
		return err
	}
	h, err := npy.Parse(first)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	case h.Kind == 0 || h.Kind == 'O' || h.Size == 0:
		return fmt.Errorf("its elements are of type %s: save an array of numbers", h.Descr)
	case h.Fortran && len(h.Shape) > 1:
		return fmt.Errorf("its rows are not contiguous (Fortran order): save np.ascontiguousarray(array)")
	case len(h.Shape) == 0:
		return fmt.Errorf("it is a single number: save an array with a row for each sample")
	}
	row := int64(h.Size)
	for _, d := range h.Shape[1:] {
		if row *= d; d > format.MaxFrame || row > 1<<30 {
			return fmt.Errorf("%w: rows of shape %v", format.ErrTooLarge, h.Shape[1:])
		}
	}
	f.data, f.rows = n, h.Shape[0]
	if row == 0 || f.rows > info.Size || n+f.rows*row != info.Size {
		return fmt.Errorf("%w: an array of shape %v has not the %d bytes that follow its header: it is truncated, or bytes follow it", format.ErrCorrupt, h.Shape, info.Size-n)
	}
	head := npy.AppendHeader(nil, h.Descr, h.Shape[1:]...)
	if len(r.files) == 1 {
		r.Shape, r.Descr, r.head, r.size = h.Shape[1:], h.Descr, head, row
	} else if string(head) != string(r.head) {
		return fmt.Errorf("its rows are %s %v, those before are %s %v: save them in one type and shape", h.Descr, h.Shape[1:], r.Descr, r.Shape)
	}
	r.rows += f.rows
	r.files[len(r.files)-1] = f
	_, err = fmt.Fprintf(sum, "%q %d %q %s\n", in.Path, info.Size, info.ETag, first)
	return err
}

// Next implements writer.Source. The row is valid until the next call.
func (r *Rows) Next(ctx context.Context) (writer.Sample, error) {
	if r.at == r.rows {
		return writer.Sample{}, io.EOF
	}
	i := 0
	for r.at >= r.files[i].first+r.files[i].rows {
		i++
	}
	f := &r.files[i]
	off := (r.at - r.from) * r.size
	if len(r.buf) == 0 || off < 0 || off >= int64(len(r.buf)) {
		n := min(max(ahead/r.size, 1), f.first+f.rows-r.at) * r.size
		r.buf = append(r.buf[:0], make([]byte, n)...)
		if err := f.obj.ReadAt(ctx, r.buf, f.data+(r.at-f.first)*r.size); err != nil {
			r.buf = nil
			return writer.Sample{}, err
		}
		r.from, off = r.at, 0
	}
	r.at++
	row := r.at - f.first
	return writer.Sample{
		Key: strconv.FormatInt(r.at-1, 10), Origin: fmt.Sprintf("%s: row %d", f.path, row), Source: f.path, Row: row,
		Fields: []writer.Field{{Name: r.field, Data: append(r.head[:len(r.head):len(r.head)], r.buf[off:off+r.size]...)}},
	}, nil
}

// Cursor and Seek implement writer.Source: a place is the number of a row.
func (r *Rows) Cursor() string { return strconv.FormatInt(r.at, 10) }

// Seek moves to a place.
func (r *Rows) Seek(ctx context.Context, cursor string) error {
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || n < 0 || n > r.rows {
		return fmt.Errorf("arrays: cursor %q is not one of %d rows", cursor, r.rows)
	}
	r.at = n
	return ctx.Err()
}

// Fingerprint covers names, sizes, versions and headers of the files.
func (r *Rows) Fingerprint() string { return r.sum }

// Meta implements writer.Source.
func (r *Rows) Meta() format.Metadata { return nil }

// Total implements writer.Source.
func (r *Rows) Total() (samples, bytes int64) { return r.rows, r.rows * (r.size + int64(len(r.head))) }

// Close implements writer.Source.
func (r *Rows) Close() error {
	for _, f := range r.files {
		_ = f.obj.Close() // read only: nothing is lost
	}
	return nil
}

// Is reports whether a name is the name of an .npy file.
func Is(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".npy") }
