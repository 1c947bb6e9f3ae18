package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sizes of the tar format (POSIX.1-2017, pax, "ustar Interchange Format").
const (
	tarBlock   = 512
	endOfTar   = 2 * tarBlock // two zero records end an archive
	tarNameLen = 100
	tarPreLen  = 155
	// maxOctalSize is the largest size of 11 octal digits; larger ones are written in GNU's base-256.
	maxOctalSize = 1<<33 - 1
	// paxName names every extended header we write: tools show it nowhere, and a constant keeps bytes a function of content.
	paxName = "PaxHeaders/shardtool"
)

// headerTemplate has every byte of a member's header that does not depend on its name, size or type.
var headerTemplate = func() (h [tarBlock]byte) {
	copy(h[100:], "0000444\x00")     // mode
	copy(h[108:], "0000000\x00")     // uid
	copy(h[116:], "0000000\x00")     // gid
	copy(h[136:], "00000000000\x00") // mtime
	copy(h[257:], "ustar\x0000")
	copy(h[329:], "0000000\x00")
	copy(h[337:], "0000000\x00")
	return h
}()

// padding is the number of zero bytes after a payload of n bytes.
func padding(n int64) int64 { return -n & (tarBlock - 1) }

// HeaderLen is how many bytes stand before the payload of a member of that name: 512, or more when the name needs an
// extended header.
func HeaderLen(name string) int64 {
	if _, _, ok := ustarName(name); ok {
		return tarBlock
	}
	n := int64(len(paxRecords(name)))
	return tarBlock + n + padding(n) + tarBlock
}

// MemberLen is the whole length of a member in the archive: header, payload of size bytes, padding.
func MemberLen(name string, size int64) int64 { return HeaderLen(name) + size + padding(size) }

// AppendHeader appends the header of a regular file of that name and size (SPEC 2.2). The payload and its padding to 512
// bytes are the caller's. The name must have passed CheckKey and CheckField.
func AppendHeader(dst []byte, name string, size int64) []byte {
	prefix, base, ok := ustarName(name)
	if !ok {
		rec := paxRecords(name)
		dst = appendUstar(dst, "", paxName, int64(len(rec)), 'x')
		dst = append(dst, rec...)
		dst = append(dst, make([]byte, padding(int64(len(rec))))...)
		prefix, base = "", fallbackName(name)
	}
	return appendUstar(dst, prefix, base, size, '0')
}

func appendUstar(dst []byte, prefix, name string, size int64, typeflag byte) []byte {
	at := len(dst)
	dst = append(dst, headerTemplate[:]...)
	h := dst[at : at+tarBlock]
	copy(h[:tarNameLen], name)
	copy(h[345:345+tarPreLen], prefix)
	h[156] = typeflag
	if size <= maxOctalSize {
		putOctal(h[124:135], uint64(size))
	} else {
		h[124] = 0x80
		binary.BigEndian.PutUint64(h[128:136], uint64(size))
	}
	// The checksum is the sum of all bytes, its own field counted as spaces.
	sum := templateSum + sumBytes(h[124:136]) + uint64(typeflag)
	for _, c := range []byte(name) {
		sum += uint64(c)
	}
	for _, c := range []byte(prefix) {
		sum += uint64(c)
	}
	putOctal(h[148:154], sum)
	h[154], h[155] = 0, ' '
	return dst
}

// templateSum is the checksum of headerTemplate without the size field.
var templateSum = sumBytes(headerTemplate[:124]) + sumBytes(headerTemplate[136:]) + 8*' '

func sumBytes(p []byte) (sum uint64) {
	for _, c := range p {
		sum += uint64(c)
	}
	return sum
}

func putOctal(dst []byte, v uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = '0' + byte(v&7)
		v >>= 3
	}
}

// ustarName fits a name into the header's fields: whole in 100 bytes, or divided at a slash into a prefix of at most 155
// and a name of at most 100. It fails for names that are too long or not UTF-8; those need an extended header.
func ustarName(name string) (prefix, base string, ok bool) {
	if !utf8.ValidString(name) {
		return "", "", false
	}
	if len(name) <= tarNameLen {
		return "", name, true
	}
	if len(name) > tarPreLen+1+tarNameLen {
		return "", "", false
	}
	// The first slash that leaves at most 100 bytes behind it gives the shortest prefix.
	from := len(name) - tarNameLen - 1
	i := strings.IndexByte(name[from:], '/')
	if i < 0 || from+i == 0 || from+i > tarPreLen {
		return "", "", false
	}
	return name[:from+i], name[from+i+1:], true
}

// paxRecords are the extended header's records for a name.
func paxRecords(name string) string {
	rec := paxRecord("path", name)
	if !utf8.ValidString(name) {
		return paxRecord("hdrcharset", "BINARY") + rec
	}
	return rec
}

// paxRecord is "LEN key=value\n", where LEN counts itself.
func paxRecord(key, value string) string {
	n := len(key) + len(value) + 3
	size := n + len(strconv.Itoa(n))
	if s := n + len(strconv.Itoa(size)); s != size {
		size = s
	}
	return strconv.Itoa(size) + " " + key + "=" + value + "\n"
}

// fallbackName is what the plain header says where the extended one has the name: printable ASCII, cut at 100 bytes.
func fallbackName(name string) string {
	b := []byte(name[:min(len(name), tarNameLen)])
	for i, c := range b {
		if c < 0x20 || c >= 0x7f {
			b[i] = '_'
		}
	}
	return string(b)
}

// Member is a regular file in a block. Name is valid as long as the bytes it was found in.
type Member struct {
	Name []byte
	// Header is the offset of the first header record, Payload that of the content.
	Header, Payload int64
	Size            int64
}

// End is the offset of the next member.
func (m *Member) End() int64 { return m.Payload + m.Size + padding(m.Size) }

// Walker finds the members of decoded tar bytes. Set Buf, then call Next. It allocates only for names of more than 100
// bytes, or that are not UTF-8.
type Walker struct {
	// Buf is a block's decoded bytes, or its beginning: see Need.
	Buf []byte
	// Off is where the next header is looked for.
	Off int64
	// Foreign accepts what other tools write: directories, links and devices are passed over, and so are global headers.
	// Otherwise anything but regular files and the extended headers of SPEC 2.2 is corrupt.
	Foreign bool
	// Partial lets a member's payload end beyond Buf: used where a block is read a frame at a time.
	Partial bool

	long []byte // name from an extended or GNU header, for the next member
	prev []byte // joined prefix and name
}

// Next finds the next member. It returns false with a nil error at the end of Buf.
func (w *Walker) Next(m *Member) (bool, error) {
	m.Header = w.Off
	for {
		if w.Off == int64(len(w.Buf)) {
			if w.long != nil {
				return false, At(w.Off, corruptf("extended header without a member"))
			}
			return false, nil
		}
		if int64(len(w.Buf))-w.Off < tarBlock {
			return false, At(w.Off, corruptf("%d bytes where a tar header should be", int64(len(w.Buf))-w.Off))
		}
		h := w.Buf[w.Off : w.Off+tarBlock : w.Off+tarBlock]
		if string(h[257:262]) != "ustar" {
			if w.Foreign && allZero(h) {
				w.Off = int64(len(w.Buf))
				continue
			}
			return false, At(w.Off, corruptf("no tar header"))
		}
		size, err := parseSize(h[124:136])
		if err != nil {
			return false, At(w.Off, err)
		}
		payload := w.Off + tarBlock
		end := payload + size + padding(size)
		if size < 0 || end < payload {
			return false, At(w.Off, corruptf("member of %d bytes", size))
		}
		regular := h[156] == '0' || (w.Foreign && (h[156] == 0 || h[156] == '7'))
		if end > int64(len(w.Buf)) && !(regular && w.Partial) {
			return false, At(w.Off, corruptf("member of %d bytes ends beyond its block", size))
		}
		switch {
		case regular:
			m.Payload, m.Size = payload, size
			m.Name = w.memberName(h)
			w.long = nil
			w.Off = end
			return true, nil
		case h[156] == 'x':
			if err := w.readPax(w.Buf[payload : payload+size]); err != nil {
				return false, At(w.Off, err)
			}
		case h[156] == 'L' && w.Foreign:
			name, _, _ := bytes.Cut(w.Buf[payload:payload+size], []byte{0})
			w.long = append([]byte{}, name...)
		case w.Foreign:
			w.long = nil
			w.Off = end
			m.Header = end
			continue
		default:
			return false, At(w.Off, corruptf("member of type %q", h[156]))
		}
		w.Off = end
	}
}

func (w *Walker) memberName(h []byte) []byte {
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
	// A fresh slice: Name stays valid with the block, whatever Next does later.
	w.prev = make([]byte, 0, len(prefix)+1+len(name))
	w.prev = append(append(append(w.prev, prefix...), '/'), name...)
	return w.prev
}

// readPax takes the path out of an extended header's records.
func (w *Walker) readPax(rec []byte) error {
	for len(rec) > 0 {
		sp := bytes.IndexByte(rec, ' ')
		if sp <= 0 || sp > 10 {
			return corruptf("extended header record without a length")
		}
		n, err := strconv.ParseUint(string(rec[:sp]), 10, 31)
		if err != nil || int(n) > len(rec) || int(n) < sp+3 || rec[n-1] != '\n' {
			return corruptf("extended header record of length %q", rec[:sp])
		}
		key, value, ok := bytes.Cut(rec[sp+1:n-1], []byte{'='})
		if !ok {
			return corruptf("extended header record without '='")
		}
		switch string(key) {
		case "path":
			w.long = append([]byte{}, value...)
		case "size":
			return fmt.Errorf("%w: extended header gives a size: index this archive after repacking it with ustar sizes", ErrCorrupt)
		}
		rec = rec[n:]
	}
	return nil
}

// parseSize reads the size field: octal digits, or GNU's base-256.
func parseSize(f []byte) (int64, error) {
	if f[0] == 0x80 {
		for _, c := range f[1:4] {
			if c != 0 {
				return 0, corruptf("member size above 2^63")
			}
		}
		v := binary.BigEndian.Uint64(f[4:12])
		if v >= 1<<62 {
			return 0, corruptf("member size above 2^62")
		}
		return int64(v), nil
	}
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
		return 0, corruptf("member size is no octal number")
	}
	if digits == 0 {
		return 0, corruptf("member without a size")
	}
	return int64(v), nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
