package tarblock

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// Member is a regular file in a block. Name is valid as long as the bytes it was found in.
type Member struct {
	Name []byte
	// Key is the length of the sample's key in Name, see SplitName.
	Key int
	// Header is the offset of the first header record, Payload the offset of the content.
	Header, Payload int64
	Size            int64
}

// End returns the offset of the next member.
func (m *Member) End() int64 { return m.Payload + m.Size + Padding(m.Size) }

// split is SplitName of the name.
func (m *Member) split() (key, field []byte) {
	return m.Name[:m.Key], m.Name[min(m.Key+1, len(m.Name)):]
}

// Walker finds the members of decoded tar bytes, and checks their names with CheckMember. Set Buf,
// then call Next. It allocates only for names of more than 100 bytes.
type Walker struct {
	// Buf is a block's decoded bytes or, with Partial, their beginning.
	Buf []byte
	// Off is the offset of the next header.
	Off int64
	// Foreign accepts what other tools write: ustar, GNU and PAX headers. It skips directories,
	// links, devices and the end-of-archive; names have no leading "./". Header checksums are
	// compared, because nothing else guards the headers. Without Foreign anything but regular files
	// and the long names of SPEC 2.2 is corrupt.
	Foreign bool
	// Partial allows a member's payload to end beyond Buf, for a block that is read frame by frame.
	Partial bool
	// Ended reports that Next met the end-of-archive of a foreign archive. An archive without it
	// was truncated.
	Ended bool

	long  []byte // name from a long name record or extended header, for the next member
	sized bool   // size is the size of the next member, from an extended header
	size  int64
	ext   bool // a record that belongs to the next member was read

	// The folder of the last name, with its slash: CheckMember accepts what is in it. A copy,
	// because Buf may change.
	dir    [64]byte
	dirLen int
}

// Next finds the next member. At the end of Buf it returns false and no error.
func (w *Walker) Next(m *Member) (bool, error) {
	if !w.Foreign && !w.ext && w.usual(m) {
		return true, nil
	}
	m.Header = w.Off
	for {
		if w.Off == int64(len(w.Buf)) {
			if w.ext {
				return false, format.At(w.Off, damage.Errorf("long name or extended header without a member"))
			}
			return false, nil
		}
		if int64(len(w.Buf))-w.Off < RecordLen {
			return false, format.At(w.Off, damage.Errorf("%d bytes where a tar header should be",
				int64(len(w.Buf))-w.Off))
		}
		h := w.Buf[w.Off : w.Off+RecordLen : w.Off+RecordLen]
		if string(h[257:262]) != "ustar" {
			if w.Foreign && damage.AllZero(h) {
				// Other tools stop here and lose what follows, as in joined archives. This is an
				// error.
				if rest := w.Buf[w.Off:]; !damage.AllZero(rest) {
					return false, format.At(w.Off,
						damage.Errorf("data after the end of the archive: archives were joined, or this one is damaged"))
				}
				w.Off, w.Ended = int64(len(w.Buf)), true
				continue
			}
			return false, format.At(w.Off, damage.Errorf("no tar header"))
		}
		kind, size, err := w.header(h)
		if err != nil {
			return false, format.At(w.Off, err)
		}
		payload := w.Off + RecordLen
		end := payload + size + Padding(size)
		regular := kind == '0'
		if end < payload || (end > int64(len(w.Buf)) && !(regular && w.Partial)) {
			return false, format.At(w.Off, damage.Errorf("member of %d bytes ends beyond its block", size))
		}
		switch {
		case regular:
			m.Payload, m.Size, m.Name = payload, size, w.memberName(h)
			if err := format.CheckMember(m.Name); err != nil {
				return false, format.At(m.Header, err)
			}
			key, _ := format.SplitName(m.Name)
			m.Key = len(key)
			w.dirLen = bytes.LastIndexByte(key, '/') + 1
			if copy(w.dir[:], key[:w.dirLen]) < w.dirLen {
				w.dirLen = 0
			}
			w.forget()
			w.Off = end
			return true, nil
		case kind == 'L' || w.Foreign && kind == 'x':
			if err := w.extension(kind, w.Buf[payload:payload+size]); err != nil {
				return false, format.At(w.Off, err)
			}
		case w.Foreign && (kind == 'K' || kind == 'g'):
		case w.Foreign:
			w.forget()
			m.Header = end
		default:
			return false, format.At(w.Off, damage.Errorf("member of type %q", kind))
		}
		w.Off = end
	}
}

// usual is Next for what nearly all members of our shards are: a regular file of less than 8 GiB
// whose name is in the header, in the folder of the member before it. It returns false where
// anything is otherwise, and for the first member of a folder.
func (w *Walker) usual(m *Member) bool {
	if int64(len(w.Buf))-w.Off < RecordLen {
		return false
	}
	h := w.Buf[w.Off : w.Off+RecordLen : w.Off+RecordLen]
	if string(h[257:263]) != "ustar\x00" || h[156] != '0' || h[345] != 0 || h[135] != 0 {
		return false
	}
	size, ok := elevenDigits(h[124:135])
	if !ok {
		return false
	}
	payload := w.Off + RecordLen
	end := payload + size + Padding(size)
	if end > int64(len(w.Buf)) {
		return false
	}
	length := bytes.IndexByte(h[:tarNameLen], 0)
	if length <= w.dirLen || string(h[:w.dirLen]) != string(w.dir[:w.dirLen]) {
		return false
	}
	base := h[w.dirLen:length]
	if base[0] == '.' || bytes.IndexByte(base, '/') >= 0 {
		return false
	}
	key := length
	if dot := bytes.IndexByte(base, '.'); dot >= 0 {
		key = w.dirLen + dot
	}
	// One by one: a struct made first and then copied waits for its own writes.
	m.Name, m.Key, m.Header, m.Payload, m.Size = h[:length], key, w.Off, payload, size
	w.Off = end
	return true
}

// elevenDigits reads the octal digits of a size: eight at a time, the last first.
func elevenDigits(f []byte) (size int64, ok bool) {
	const zeros, ones = 0x3030303030303030, 0x0707070707070707
	high := uint64(f[0])<<16 | uint64(f[1])<<8 | uint64(f[2])
	high, low := high^zeros&0xffffff, binary.BigEndian.Uint64(f[3:11])^zeros
	if (high|low)&^ones != 0 {
		return 0, false
	}
	low = low&0x0007000700070007 | low>>5&0x0038003800380038 // pairs of digits, in 16 bits each
	low = low&0x0000003f0000003f | low>>10&0x00000fc000000fc0
	low = low&0xfff | low>>20&0xfff000
	high = high&7 | high>>5&0x38 | high>>10&0x1c0
	return int64(high<<24 | low), true
}

func (w *Walker) forget() { w.long, w.sized, w.ext = nil, false, false }

// header reads a header's type and size. It returns '0' for every type of regular file.
func (w *Walker) header(h []byte) (kind byte, size int64, err error) {
	kind = h[156]
	if !w.Foreign {
		size, err = ParseSize(h[124:136])
		return kind, size, err
	}
	if err := checkHeaderSum(h); err != nil {
		return kind, 0, err
	}
	switch kind {
	case 0, '7':
		kind = '0'
		if h[156] == 0 && bytes.HasSuffix(w.storedName(h), []byte{'/'}) {
			return '5', 0, nil // a directory, in archives older than POSIX
		}
	case '1', '2', '3', '4', '5', '6':
		return kind, 0, nil // links, devices, directories and pipes have no payload, whatever their size
	case 'S':
		return kind, 0, damage.Errorf("sparse file: pack this archive again without sparse files")
	}
	if w.sized && kind == '0' {
		return kind, w.size, nil
	}
	size, err = ParseSize(h[124:136])
	return kind, size, err
}

// checkHeaderSum compares a header's checksum: the sum of its bytes, unsigned as in POSIX or signed
// as in some old tools, with spaces in place of the checksum field.
func checkHeaderSum(h []byte) error {
	unsigned, signed := int64(8*' '), int64(8*' ')
	for i, c := range h {
		if i < 148 || i >= 156 {
			unsigned += int64(c)
			signed += int64(int8(c))
		}
	}
	want, err := parseOctal(h[148:156])
	if err != nil || (want != unsigned && want != signed) {
		return damage.Errorf("checksum mismatch in a tar header")
	}
	return nil
}

func (w *Walker) memberName(h []byte) []byte {
	name := w.storedName(h)
	for w.Foreign && len(name) > 2 && name[0] == '.' && name[1] == '/' {
		if name = bytes.TrimLeft(name[2:], "/"); len(name) == 0 {
			break
		}
	}
	return name
}

// storedName is the name as the archive has it.
func (w *Walker) storedName(h []byte) []byte {
	if w.long != nil {
		return w.long
	}
	name := h[:tarNameLen]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	if h[345] == 0 || string(h[257:263]) != "ustar\x00" { // GNU's own format has other fields in place of the prefix
		return name
	}
	prefix := h[345 : 345+tarPreLen]
	if i := bytes.IndexByte(prefix, 0); i >= 0 {
		prefix = prefix[:i]
	}
	// A new slice: Name is valid as long as the block.
	joined := make([]byte, 0, len(prefix)+1+len(name))
	return append(append(append(joined, prefix...), '/'), name...)
}

// readPax reads path and size from the records of an extended header.
func (w *Walker) readPax(rec []byte) error {
	for len(rec) > 0 {
		sp := bytes.IndexByte(rec, ' ')
		if sp <= 0 || sp > 10 {
			return damage.Errorf("extended header record without a length")
		}
		n, err := strconv.ParseUint(string(rec[:sp]), 10, 31)
		if err != nil || int(n) > len(rec) || int(n) < sp+3 || rec[n-1] != '\n' {
			return damage.Errorf("extended header record of length %q", rec[:sp])
		}
		key, value, ok := bytes.Cut(rec[sp+1:n-1], []byte{'='})
		if !ok {
			return damage.Errorf("extended header record without '='")
		}
		switch {
		case string(key) == "path" && len(value) > 0:
			w.long = append([]byte{}, value...)
		case string(key) == "size":
			size, err := strconv.ParseUint(string(value), 10, 62)
			if err != nil {
				return damage.Errorf("extended header gives a size of %q", value)
			}
			w.size, w.sized = int64(size), true
		case bytes.HasPrefix(key, []byte("GNU.sparse.")):
			return damage.Errorf("sparse file: pack this archive again without sparse files")
		}
		rec = rec[n:]
	}
	return nil
}

// ParseSize reads the size field: octal digits, or GNU's base-256.
func ParseSize(f []byte) (int64, error) {
	if f[0] == 0x80 {
		for _, c := range f[1:4] {
			if c != 0 {
				return 0, damage.Errorf("member size above 2^63")
			}
		}
		v := binary.BigEndian.Uint64(f[4:12])
		if v >= 1<<62 {
			return 0, damage.Errorf("member size above 2^62")
		}
		return int64(v), nil
	}
	return parseOctal(f)
}

func parseOctal(f []byte) (int64, error) {
	v := uint64(0)
	digits := 0
	for _, c := range f {
		if d := c - '0'; d < 8 {
			v = v<<3 | uint64(d)
			digits++
			continue
		}
		if c == 0 || (c == ' ' && digits > 0) {
			break
		}
		if c == ' ' {
			continue
		}
		return 0, damage.Errorf("a tar header has a number that is not octal")
	}
	if digits == 0 {
		return 0, damage.Errorf("empty number in a tar header")
	}
	return int64(v), nil
}
