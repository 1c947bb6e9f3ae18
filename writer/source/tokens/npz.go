package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/zips"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	columns "github.com/shardtool/shardtool/writer/source/internal/rows"
)

// archive is a .npz file: a zip file, whose members are .npy files of as many rows. Its members are
// read from front to back, side by side, so that their checksums are checked.
type archive struct {
	of      *array
	members []*member
	open    bool
	cancel  context.CancelFunc
	at      int64 // next row
}

// member is an array of an archive.
type member struct {
	field string
	rows
	count int64 // of rows

	of  *zips.Member
	in  io.ReadCloser // after the header
	buf []byte
}

const (
	// maxMembers bounds the members that are read side by side.
	maxMembers = 256
	// maxAhead are so many that all of them are read ahead from a remote store.
	maxAhead = 4
)

func (a *array) membersOf() []*member {
	if a.npz == nil {
		return nil
	}
	return a.npz.members
}

// surveyArchive reads the directory and the headers of the members.
func (a *array) surveyArchive(ctx context.Context) error {
	dir, err := zips.New(ctx, a.Store, a.Name, a.Path)
	if err != nil {
		return err
	}
	z := &archive{of: a}
	for info, err := range dir.List(ctx, "") {
		if len(z.members) == maxMembers {
			return fmt.Errorf("%w: it holds more than %d arrays", format.ErrTooLarge, maxMembers)
		}
		m := &member{field: info.Name}
		if err == nil {
			err = m.survey(ctx, dir)
		}
		if err != nil {
			return fmt.Errorf("array %.100q: %w", info.Name, err)
		}
		z.members = append(z.members, m)
	}
	if len(z.members) == 0 {
		return fmt.Errorf("it holds no array")
	}
	a.npz, a.row = z, []int64{}
	return nil
}

// survey reads the header of a member.
func (m *member) survey(ctx context.Context, dir *zips.Store) error {
	if !strings.HasSuffix(m.field, ".npy") {
		return fmt.Errorf("it is not an .npy file, as all members of a .npz file are")
	}
	obj, err := dir.Open(ctx, m.field)
	if err != nil {
		return err
	}
	m.of = obj.(*zips.Member)
	h, n, err := m.begin(ctx, false, 4<<10)
	if err != nil {
		return err
	}
	m.close()
	if m.rows, err = rowsOf(&h, m.decoded()-n); err == nil {
		m.count = h.Shape[0]
	}
	return err
}

// begin opens the member after its header, which takes n bytes.
func (m *member) begin(ctx context.Context, ahead bool, buffer int) (h npy.Header, n int64, err error) {
	if m.in, err = m.of.Stream(ctx, ahead, buffer); err != nil {
		m.in = nil
		return h, 0, err
	}
	return readHeader(m.in, m.decoded())
}

// decoded is the size of the member.
func (m *member) decoded() int64 { return int64(m.of.File().UncompressedSize64) }

func (m *member) close() {
	if m.in != nil {
		m.in.Close()
		m.in = nil
	}
}

// choose takes the columns of the plan, whose arrays must be of one length, and names their fields.
func (z *archive) choose(p *columns.Plan) error {
	z.members = slices.DeleteFunc(z.members, func(m *member) bool { return !p.Field(m.field) })
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
		m.field = named(p, m.field)
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
	if !z.open || z.at > number {
		if err := z.begin(ctx); err != nil {
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
			if _, err = m.in.Read(nil); errors.Is(err, io.EOF) {
				err = nil // the length and the checksum are right
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("array %q, row %d: %w", m.field, number+1, err)
		}
		swapBytes(m.buf[len(m.head):], m.swap)
		out = append(out, writer.Field{Name: m.field, Data: m.buf})
	}
	z.at = number + 1
	return out, nil
}

// begin opens the members after their headers.
func (z *archive) begin(ctx context.Context) error {
	z.close()
	ctx, z.cancel = context.WithCancel(context.WithoutCancel(ctx))
	z.open, z.at = true, 0
	for _, m := range z.members {
		if _, _, err := m.begin(ctx, len(z.members) <= maxAhead, 256<<10); err != nil {
			return fmt.Errorf("array %q: %w", m.field, err)
		}
	}
	return nil
}

func (z *archive) close() {
	if z.open {
		z.cancel()
	}
	for _, m := range z.members {
		m.close()
	}
	z.open = false
}
