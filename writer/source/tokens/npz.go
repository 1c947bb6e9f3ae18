package tokens

import (
	"archive/zip"
	"bufio"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/stream"
	"github.com/shardtool/shardtool/internal/zipdir"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// archive is a .npz file: a zip file, whose members are .npy files of as many rows. Its members are
// read from front to back, side by side, so that their checksums are checked.
type archive struct {
	of      *array
	members []*member

	obj    objstore.Object // nil if no member is open
	cancel context.CancelFunc
	at     int64 // next row
}

// member is an array of an archive.
type member struct {
	field string
	rows
	count          int64 // of rows
	off, n         int64 // of the stored bytes
	total, skipped int64 // decoded bytes, and bytes of the header
	method         uint16
	crc            uint32

	raw *stream.Stream
	in  io.Reader
	sum hash.Hash32
	buf []byte
}

const (
	// maxMembers bounds the members that are read side by side.
	maxMembers = 256
	// maxAhead are so many that all of them are read ahead from a remote store.
	maxAhead = 4
	// maxDirectory bounds the bytes of their list.
	maxDirectory = 4 << 20
)

func (a *array) membersOf() []*member {
	if a.npz == nil {
		return nil
	}
	return a.npz.members
}

// surveyArchive reads the directory and the headers of the members.
func (a *array) surveyArchive(ctx context.Context, obj objstore.Object) error {
	at := &window{ctx: ctx, obj: obj, size: a.Info.Size, ahead: 128 << 10}
	dir, err := zipdir.Open(at, a.Info.Size, maxMembers, maxDirectory)
	switch {
	case err != nil:
		return err
	case len(dir.File) == 0:
		return fmt.Errorf("it holds no array")
	}
	z := &archive{of: a}
	for _, f := range dir.File {
		m, err := surveyMember(at, f, a.Info.Size)
		if at.err != nil {
			return at.err
		}
		if err != nil {
			return fmt.Errorf("array %.100q: %w", f.Name, err)
		}
		if slices.ContainsFunc(z.members, func(o *member) bool { return o.field == m.field }) {
			return fmt.Errorf("%w: two arrays are called %.100q", format.ErrCorrupt, f.Name)
		}
		z.members = append(z.members, m)
	}
	byPlace := slices.SortedFunc(slices.Values(z.members),
		func(x, y *member) int { return int(min(1, max(-1, x.off-y.off))) })
	for i, m := range byPlace[1:] {
		if before := byPlace[i]; before.off+before.n > m.off {
			return fmt.Errorf("%w: its arrays %.100q and %.100q overlap", format.ErrCorrupt, before.field, m.field)
		}
	}
	slices.SortFunc(z.members, func(x, y *member) int { return strings.Compare(x.field, y.field) })
	a.npz, a.row = z, []int64{}
	return nil
}

// surveyMember reads the header of a member.
func surveyMember(at *window, f *zip.File, size int64) (*member, error) {
	m := &member{field: f.Name, n: int64(f.CompressedSize64), total: int64(f.UncompressedSize64), method: f.Method,
		crc: f.CRC32}
	switch {
	case !strings.HasSuffix(f.Name, ".npy"):
		return nil, fmt.Errorf("it is not an .npy file, as all members of a .npz file are")
	case f.Flags&1 != 0:
		return nil, fmt.Errorf("it is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return nil, fmt.Errorf("its compression is number %d of zip: stored and deflated arrays are read", f.Method)
	}
	off, err := f.DataOffset()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	if m.off = off; m.n < 0 || off < 0 || off > size || m.n > size-off {
		return nil, fmt.Errorf("%w: its %d bytes at %d are not in the file of %d", format.ErrCorrupt, m.n, off, size)
	}
	if m.total < 0 || m.method == zip.Store && m.total != m.n {
		return nil, fmt.Errorf("%w: its %d bytes cannot hold the %d that the directory says", format.ErrCorrupt, m.n,
			m.total)
	}
	h, n, err := readHeader(m.decoder(io.NewSectionReader(at, off, m.n), 4<<10), m.total)
	if err != nil {
		return nil, damaged(err)
	}
	m.skipped = n
	if m.rows, err = rowsOf(&h, m.total-n); err == nil {
		m.count = h.Shape[0]
	}
	return m, err
}

// decoder decodes the stored bytes.
func (m *member) decoder(in io.Reader, buffer int) io.Reader {
	in = bufio.NewReaderSize(in, buffer)
	if m.method == zip.Store {
		return in
	}
	return flate.NewReader(in)
}

// damaged says that an error of decoding is one of the content.
func damaged(err error) error {
	var bad flate.CorruptInputError
	if errors.As(err, &bad) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is cut off or damaged: %w", format.ErrCorrupt, err)
	}
	return err
}

// choose takes the columns of the options, whose arrays must be of one length, and renames them.
func (z *archive) choose(o *Options) error {
	if o.Columns != nil {
		z.members = slices.DeleteFunc(z.members, func(m *member) bool {
			return !slices.ContainsFunc(o.Columns, func(c string) bool { return isField(c, m.field) })
		})
	}
	first, a, sum := z.members[0], z.of, int64(0)
	for _, m := range z.members {
		if m.count != first.count {
			return writer.Optionf("columns",
				"%s: the array %s has %d rows and %s has %d: choose those of one length by their names", a.Path,
				first.field, first.count, m.field, m.count)
		}
		if sum += m.size; sum > maxRow {
			return fmt.Errorf("%s: %w: a row of its arrays has more than %d bytes", a.Path, format.ErrTooLarge,
				int64(maxRow))
		}
	}
	for _, m := range z.members {
		m.field = o.renamed(m.field)
	}
	a.rows, a.samples, a.length = first.count, first.count, max(1, sum)
	return nil
}

// member returns a row of an archive.
func (a *arraySource) member(ctx context.Context, f *array, number int64) (writer.Sample, error) {
	if a.npz != f.npz {
		a.closeArchive()
		a.npz = f.npz
	}
	out := writer.Sample{Key: fields.RowKey(f.Stem, number), Source: f.Path, Row: number + 1, Origin: f.Path +
		": row " + strconv.FormatInt(number+1, 10)}
	var err error
	out.Fields, err = f.npz.row(ctx, number)
	if err != nil {
		f.npz.close()
		return writer.Sample{}, fmt.Errorf("%s: %w", f.Path, err)
	}
	a.at++
	return out, nil
}

// closeArchive closes the archive that is open.
func (a *arraySource) closeArchive() {
	if a.npz != nil {
		a.npz.close()
		a.npz = nil
	}
}

// row returns the fields of a row, valid until the next call. It reads over the rows before it.
func (z *archive) row(ctx context.Context, number int64) (out []writer.Field, err error) {
	if z.obj == nil || z.at > number {
		if err := z.open(ctx); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, z.cancel)()
	for _, m := range z.members {
		_, err := io.CopyN(io.Discard, m.in, (number-z.at)*m.size)
		if err == nil {
			m.buf = append(append(m.buf[:0], m.head...), make([]byte, m.size)...)
			_, err = io.ReadFull(m.in, m.buf[len(m.head):])
		}
		if err == nil && number+1 == m.count {
			err = m.end()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("array %q, row %d: %w", m.field, number+1, damaged(err))
		}
		swapBytes(m.buf[len(m.head):], m.swap)
		out = append(out, writer.Field{Name: m.field, Data: m.buf})
	}
	z.at = number + 1
	return out, nil
}

// end checks that the content ends, and its checksum.
func (m *member) end() error {
	if n, err := io.CopyN(io.Discard, m.in, 1); n > 0 || !errors.Is(err, io.EOF) {
		if n > 0 {
			err = fmt.Errorf("%w: it is longer than the directory says", format.ErrCorrupt)
		}
		return err
	}
	if m.sum.Sum32() != m.crc {
		return fmt.Errorf("%w: the array does not match its checksum", format.ErrCorrupt)
	}
	return nil
}

// open opens the members after their headers.
func (z *archive) open(ctx context.Context) (err error) {
	z.close()
	if z.obj, err = z.of.Reopen(ctx); err != nil {
		z.obj = nil
		return err
	}
	ctx, z.cancel = context.WithCancel(context.WithoutCancel(ctx))
	z.at = 0
	for _, m := range z.members {
		if m.raw, err = stream.Open(ctx, z.obj, m.off+m.n, z.of.Remote && len(z.members) <= maxAhead, stream.Plain,
			m.off); err != nil {
			return err
		}
		m.sum = crc32.NewIEEE()
		m.in = io.TeeReader(m.decoder(m.raw, 256<<10), m.sum)
		if _, err := io.CopyN(io.Discard, m.in, m.skipped); err != nil {
			return damaged(err)
		}
	}
	return nil
}

func (z *archive) close() {
	if z.cancel != nil {
		z.cancel()
	}
	for _, m := range z.members {
		if m.raw != nil {
			m.raw.Close()
			m.raw = nil
		}
	}
	if z.obj != nil {
		_ = z.obj.Close() // read only: nothing is lost
		z.obj = nil
	}
}

// window reads an object through a buffer, because the directory of a zip file is read in small
// parts. It keeps the first error of the store.
type window struct {
	ctx  context.Context
	obj  objstore.Object
	size int64
	buf  []byte
	from int64
	err  error
	// ahead is the least that is read.
	ahead int64
}

// ReadAt implements io.ReaderAt.
func (w *window) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= w.size {
		return 0, io.EOF
	}
	if w.err != nil {
		return 0, w.err
	}
	n := min(int64(len(p)), w.size-off)
	if off < w.from || off+n > w.from+int64(len(w.buf)) {
		w.buf, w.from = make([]byte, min(max(n, w.ahead), w.size-off)), off
		if w.err = w.obj.ReadAt(w.ctx, w.buf, off); w.err != nil {
			w.buf = nil
			return 0, w.err
		}
	}
	copy(p, w.buf[off-w.from:][:n])
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}
