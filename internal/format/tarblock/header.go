// Package tarblock answers how samples are tar members of a block (SPEC 2): a [Builder] lays them
// out, and a [Walker] or a [SampleIter] finds them in decoded bytes, also in another tool's
// archive. [ReadForeignEntry] reads such an archive entry by entry.
package tarblock

import (
	"encoding/binary"
	"strings"

	"github.com/shardtool/shardtool/format"
)

// Sizes of the tar format (POSIX.1-2017, pax, "ustar Interchange Format").
const (
	RecordLen  = 512           // of a header, and what payloads are padded to
	EndLen     = 2 * RecordLen // two zero records end an archive
	tarNameLen = 100
	tarPreLen  = 155
	// maxOctalSize is the largest size of 11 octal digits; larger ones are written in GNU's
	// base-256.
	maxOctalSize = 1<<33 - 1
	// longName is the name of a record of type 'L', GNU's long name, which holds the name of the
	// next member and a NUL. Every tool accepts it in every locale. An extended header of POSIX is
	// not accepted everywhere: GNU tar warns about the hdrcharset that a name needs which is not
	// UTF-8, and bsdtar fails without it, or for any long UTF-8 name in the C locale.
	longName = "././@LongLink"
)

// headerTemplate has every byte of a member's header that does not depend on its name, size or
// type.
var headerTemplate = func() (h [RecordLen]byte) {
	copy(h[100:], "0000444\x00")     // mode
	copy(h[108:], "0000000\x00")     // uid
	copy(h[116:], "0000000\x00")     // gid
	copy(h[136:], "00000000000\x00") // mtime
	copy(h[257:], "ustar\x0000")
	copy(h[329:], "0000000\x00")
	copy(h[337:], "0000000\x00")
	return h
}()

// Padding is the number of zero bytes after a payload of n bytes.
func Padding(n int64) int64 { return -n & (RecordLen - 1) }

// headerLen is the number of bytes before the payload of a member of that name: 512, or more if the
// name needs a long name record.
func headerLen(name string) int64 {
	if _, _, ok := ustarName(name); ok {
		return RecordLen
	}
	n := int64(len(name)) + 1
	return RecordLen + n + Padding(n) + RecordLen
}

// MemberLen returns the whole length of a member in the archive: header, payload of size bytes,
// padding.
func MemberLen(name string, size int64) int64 { return headerLen(name) + size + Padding(size) }

// FieldHeaderLen is headerLen(JoinName(key, field)); it joins only long names.
func FieldHeaderLen(key, field string) int64 {
	if len(key)+1+len(field) <= tarNameLen {
		return RecordLen
	}
	return headerLen(format.JoinName(key, field))
}

// AppendHeader appends the header of a regular file of that name and size (SPEC 2.2). The caller
// appends the payload and its padding to 512 bytes. CheckKey and CheckField must accept the name.
func AppendHeader(dst []byte, name string, size int64) []byte {
	prefix, base, ok := ustarName(name)
	if !ok {
		n := int64(len(name)) + 1
		dst = appendUstar(dst, "", longName, n, 'L')
		dst = append(dst, name...)
		dst = append(dst, make([]byte, 1+Padding(n))...)
		prefix, base = "", name[:tarNameLen]
	}
	return appendUstar(dst, prefix, base, size, '0')
}

func appendUstar(dst []byte, prefix, name string, size int64, typeflag byte) []byte {
	at := len(dst)
	dst = append(dst, headerTemplate[:]...)
	h := dst[at : at+RecordLen]
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

// ustarName fits a name into the header's fields: whole in 100 bytes, or divided at a slash into a
// prefix of at most 155 and a name of at most 100. It fails for longer names. Bytes that are not
// UTF-8 are kept.
func ustarName(name string) (prefix, base string, ok bool) {
	if len(name) <= tarNameLen {
		return "", name, true
	}
	if len(name) > tarPreLen+1+tarNameLen {
		return "", "", false
	}
	// The first slash that leaves at most 100 bytes after it gives the shortest prefix.
	from := len(name) - tarNameLen - 1
	i := strings.IndexByte(name[from:], '/')
	if i < 0 || from+i == 0 || from+i > tarPreLen {
		return "", "", false
	}
	return name[:from+i], name[from+i+1:], true
}
