package zipdir

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// members makes an archive of empty members.
func members(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range n {
		if _, err := w.CreateRaw(&zip.FileHeader{Name: fmt.Sprintf("%06d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// end makes the record at the end of an archive.
func end(n, list int, offset int64) []byte {
	b := binary.LittleEndian.AppendUint16([]byte("PK\x05\x06\x00\x00\x00\x00\x00\x00"), uint16(n))
	return append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(list)), uint32(offset)), 0, 0)
}

// read counts the bytes that are read of an archive, which begins with zeros.
type read struct {
	tail  []byte
	zeros int64
	n     int64
}

func (r *read) ReadAt(p []byte, off int64) (int, error) {
	r.n += int64(len(p))
	zeros := int(max(0, min(int64(len(p)), r.zeros-off)))
	clear(p[:zeros])
	n, err := bytes.NewReader(r.tail).ReadAt(p[zeros:], max(0, off-r.zeros))
	return zeros + n, err
}

func (r *read) size() int64 { return r.zeros + int64(len(r.tail)) }

// TestBounds: no more of a list is read than the limits, and what the archive states of it, allow.
func TestBounds(t *testing.T) {
	t.Parallel()
	many := members(t, 65_540)
	at := int64(bytes.Index(many, []byte("PK\x01\x02")))
	few := members(t, 300)
	zip64 := binary.LittleEndian.AppendUint64(append([]byte("PK\x06\x06"), make([]byte, 28)...), 1<<30)
	zip64 = append(binary.LittleEndian.AppendUint64(zip64, 46<<30), make([]byte, 8)...)
	zip64 = binary.LittleEndian.AppendUint64(append(zip64, "PK\x06\x07\x00\x00\x00\x00"...), 1<<36)
	zip64 = append(zip64, 1, 0, 0, 0)
	zip64 = append(zip64, end(0xffff, -1, -1)...)
	for what, c := range map[string]struct {
		r    read
		most int64 // bytes that are read
		want string
		is   error
	}{
		"too many":         {read{tail: few}, endings, "it holds 300 members, more than 256", format.ErrTooLarge},
		"a long list":      {read{tail: append(many[:len(many):len(many)], end(4, 5<<20, at)...)}, endings, "takes 5242880 bytes, more than 4194304", format.ErrTooLarge},
		"billions":         {read{tail: zip64, zeros: 1 << 36}, endings + 100, "it holds 1073741824 members", format.ErrTooLarge},
		"more than fit":    {read{tail: end(200, 1000, 0), zeros: 2000}, endings, "it states 200 members in a list of 1000 bytes", format.ErrCorrupt},
		"longer than said": {read{tail: append(many[:len(many):len(many)], end(4, 4*52, at)...)}, endings + 4*52 + beside, "its list of members is longer", format.ErrCorrupt},
		"modulo 65,536":    {read{tail: append(many[:len(many):len(many)], end(4, len(many)-int(at), at)...)}, 1 << 23, "it holds 65540 members, more than 256", format.ErrTooLarge},
	} {
		_, err := Open(&c.r, c.r.size(), 256, 4<<20)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.is) {
			t.Errorf("%s: %v", what, err)
		}
		if c.r.n > c.most {
			t.Errorf("%s: %d bytes are read", what, c.r.n)
		}
	}
	if z, err := Open(bytes.NewReader(many), int64(len(many)), 70_000, 8<<20); err != nil || len(z.File) != 65_540 {
		t.Error(err)
	}
}

// TestSizes: members, and folders too, need no more bytes than the archive has.
func TestSizes(t *testing.T) {
	t.Parallel()
	for name, sizes := range map[string][2]uint64{"a/": {1<<64 - 60, 0}, "a": {1<<64 - 60, 0}, "b": {4000, 0}, "d/": {1, 3000}} {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		_, err := w.CreateRaw(&zip.FileHeader{Name: name, CompressedSize64: sizes[0], UncompressedSize64: sizes[1]})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()), 10, 1<<20); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "zip bomb") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// failing is an archive whose store fails.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// TestErrors: an error of the store is returned as it is.
func TestErrors(t *testing.T) {
	t.Parallel()
	if _, err := Open(failing{io.ErrClosedPipe}, 1000, 10, 1000); err != io.ErrClosedPipe { //nolint:errorlint // it is the one
		t.Error(err)
	}
	if _, err := Open(failing{io.EOF}, 1000, 10, 1000); !errors.Is(err, format.ErrCorrupt) {
		t.Error(err)
	}
}

// FuzzOpen: no archive causes a panic, or gives members that need more bytes than it has.
func FuzzOpen(f *testing.F) {
	f.Add(members(f, 3))
	f.Add(members(f, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &read{tail: b}
		z, err := Open(r, r.size(), 100, 1<<16)
		if r.n > endings*3+beside+1<<16 {
			t.Fatalf("%d bytes are read", r.n)
		}
		if err != nil {
			return
		}
		sum := uint64(0)
		for _, m := range z.File {
			sum += m.CompressedSize64 + local
		}
		if sum > uint64(len(b)) {
			t.Fatalf("%d bytes of members in %d", sum, len(b))
		}
	})
}
