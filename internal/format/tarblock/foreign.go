package tarblock

import (
	"bytes"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// MaxForeignHeaders is the most bytes of header records that a member of a foreign archive may
// have, with its long names and extended headers.
const MaxForeignHeaders = 1 << 20

// ForeignEntry is an entry of an archive of another tool: a regular file or any other entry.
type ForeignEntry struct {
	// Member is the entry. Offsets count from its first header record. Size is 0 unless the entry
	// is a regular file.
	Member
	// Type is '0' for a regular file, the header's type for another entry, and 0 for the end of the
	// archive.
	Type byte
}

// TypeNames describe the types of entries that are neither files nor folders, as far as they have a
// name.
var TypeNames = map[byte]string{
	'1': "a hard link", '2': "a symbolic link", '3': "a device or pipe", '4': "a device or pipe",
	'6': "a device or pipe",
}

// ReadForeignEntry reads the header records of an entry at the beginning of p. If p is too short it
// returns in need how many bytes it takes, and no error. Names have no leading "./".
func ReadForeignEntry(p []byte) (e ForeignEntry, need int, err error) {
	w := Walker{Foreign: true}
	for {
		at := int(w.Off)
		if len(p) < at+RecordLen {
			return e, at + RecordLen, nil
		}
		h := p[at : at+RecordLen : at+RecordLen]
		if string(h[257:262]) != "ustar" {
			switch {
			case !damage.AllZero(h) && checkHeaderSum(h) == nil:
				err = fmt.Errorf("%w: a tar of before POSIX (V7), which an index does not describe: pack it, or write it again with `tar --format=ustar`", format.ErrVersion)
			case !damage.AllZero(h):
				err = damage.Errorf("no tar header")
			case w.ext:
				err = damage.Errorf("long name or extended header without a member")
			}
			return e, 0, format.At(w.Off, err)
		}
		kind, size, err := w.header(h)
		if err != nil {
			return e, 0, format.At(w.Off, err)
		}
		w.Off += RecordLen
		switch kind {
		case 'L', 'x', 'K', 'g':
			if size > MaxForeignHeaders-w.Off {
				return e, 0, format.At(w.Off-RecordLen,
					damage.Errorf("%d bytes of long name or extended header, at most %d are read", size,
						MaxForeignHeaders))
			}
			end := w.Off + size + Padding(size)
			if int64(len(p)) < end {
				return e, int(end), nil
			}
			if err := w.extension(kind, p[w.Off:w.Off+size]); err != nil {
				return e, 0, format.At(w.Off-RecordLen, err)
			}
			w.Off = end
		default:
			e.Member = Member{Name: w.memberName(h), Payload: w.Off}
			if e.Type = kind; kind == '0' {
				e.Size = size
			}
			return e, 0, nil
		}
	}
}

// extension reads a record that belongs to the next member.
func (w *Walker) extension(kind byte, rec []byte) error {
	switch kind {
	case 'L':
		name, rest, _ := bytes.Cut(rec, []byte{0})
		if !w.Foreign && (len(rest) > 0 || w.ext || len(name) != len(rec)-1) {
			return damage.Errorf("long name record")
		}
		w.long, w.ext = append([]byte{}, name...), true
	case 'x':
		w.ext = true
		return w.readPax(rec)
	case 'g':
		return checkGlobal(rec)
	}
	return nil
}

// checkGlobal refuses a header for all members that follow which sets their names or sizes: some
// programs take these and some do not.
func checkGlobal(rec []byte) error {
	var of Walker
	if of.readPax(rec) == nil && (of.long != nil || of.sized) {
		return fmt.Errorf("%w: a global header sets the name or the size of all members, which programs read differently: write the archive again", format.ErrVersion)
	}
	return nil
}

// CheckForeignEnd checks what follows the last regular file of a foreign archive: entries that are
// not regular files, then at least two records of zeros and nothing else.
func CheckForeignEnd(p []byte) error {
	for len(p) >= RecordLen && string(p[257:262]) == "ustar" {
		e, need, err := ReadForeignEntry(p)
		switch {
		case err != nil:
			return err
		case need > 0:
			return damage.Errorf("the archive ends inside a header")
		case e.Type == '0':
			return damage.Errorf("a regular file stands behind the last block")
		case e.Type == 0:
			return damage.Errorf("long name or extended header without a member")
		}
		p = p[e.Payload:]
	}
	switch {
	case !damage.AllZero(p):
		return damage.Errorf("data after the end of the archive: archives were joined, or this one is damaged")
	case len(p) < EndLen:
		return damage.Errorf("the archive has no end: it was cut between two members")
	}
	return nil
}
