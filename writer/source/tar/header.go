package tar

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/format/damage"
)

// Fields of a header (POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's differs from byte
// 345 on). A header is one block.
const (
	nameEnd     = 100
	sumAt       = 148
	sumEnd      = 156
	flagAt      = 156
	magicAt     = 257
	magicEnd    = 265
	prefixAt    = 345
	prefixEnd   = 500
	starAt      = 508 // "tar\x00" marks a format of Jörg Schilling's star
	maxExtended = 64 << 10
)

// numbers are the fields that hold numbers in octal: mode, uid, gid, size, mtime, checksum,
// devmajor and devminor.
var numbers = [...][2]int{{100, 108}, {108, 116}, {116, 124}, {124, 136}, {136, 148}, {sumAt, sumEnd}, {329, 337},
	{337, 345}}

const sizeNumber = 3

// header is what a regular file's headers say.
type header struct {
	name string
	size int64
	len  int64 // bytes of the headers, the extended one included
	// global reports a header that sets the name or the size of all members that follow.
	global bool
}

// peeker shows the bytes that a reader would read next; fewer than n at the end.
type peeker interface{ Peek(n int) ([]byte, error) }

// parse parses the headers of a regular file as almost all archives have them: one of the formats
// ustar and GNU, alone or after one extended header or long name. It consumes nothing. It returns
// false for everything else, damage and the end of the archive included; archive/tar decides about
// those, at several times the cost.
func parse(in peeker) (h header, ok bool) {
	b, _ := in.Peek(blockSize)
	size, ok := common(b)
	if !ok {
		return h, false
	}
	switch b[flagAt] {
	case '0', 0:
		return file(b, size)
	case 'x', 'L':
	default:
		return h, false
	}
	if size < 1 || size > maxExtended {
		return h, false
	}
	extended := blockSize + (size+blockSize-1)&^(blockSize-1)
	b, _ = in.Peek(int(extended) + blockSize)
	if int64(len(b)) != extended+blockSize {
		return h, false
	}
	text, real := b[blockSize:blockSize+size], b[extended:]
	realSize, ok := common(real)
	if !ok || real[flagAt] != '0' && real[flagAt] != 0 {
		return h, false
	}
	if h, ok = file(real, realSize); !ok {
		return h, false
	}
	h.len += extended
	if b[flagAt] == 'x' {
		return h, h.extend(text)
	}
	name, rest, ended := bytes.Cut(text, []byte{0})
	h.name = string(name)
	return h, ended && len(bytes.Trim(rest, "\x00")) == 0 && regular(h.name)
}

// common checks what all headers have and returns the size.
func common(b []byte) (size int64, ok bool) {
	if len(b) != blockSize || b[0] == 0 || string(b[starAt:]) == "tar\x00" {
		return 0, false
	}
	var sum int64
	for i, n := range numbers {
		v, ok := octal(b[n[0]:n[1]])
		if !ok {
			return 0, false
		}
		if i == sizeNumber {
			size = v
		}
		if n[0] == sumAt {
			sum = v
		}
	}
	return size, sum == checksum(b)
}

// checksum is the sum of a header's bytes, with blanks for the checksum itself.
func checksum(b []byte) int64 {
	const even = 0x00ff00ff00ff00ff
	var sums uint64 // four sums of 16 bits, each of at most 128 bytes
	for rest := b; len(rest) >= 8; rest = rest[8:] {
		w := binary.LittleEndian.Uint64(rest)
		sums += w&even + w>>8&even
	}
	sum := int64(sums&0xffff + sums>>16&0xffff + sums>>32&0xffff + sums>>48)
	for _, c := range b[sumAt:sumEnd] {
		sum += ' ' - int64(c)
	}
	return sum
}

// octal parses a number with blanks and zero bytes around it. No digits are 0.
func octal(b []byte) (v int64, ok bool) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == 0) {
		b = b[1:]
	}
	for len(b) > 0 && '0' <= b[0] && b[0] <= '7' { // at most 12 digits
		v, b = v<<3|int64(b[0]-'0'), b[1:]
	}
	for _, c := range b {
		if c != ' ' && c != 0 {
			return 0, false
		}
	}
	return v, true
}

// file parses the header of a regular file that common has checked.
func file(b []byte, size int64) (h header, ok bool) {
	name, _, _ := bytes.Cut(b[:nameEnd], []byte{0})
	h.name = string(name)
	switch string(b[magicAt:magicEnd]) {
	case "ustar\x0000":
		if prefix, _, _ := bytes.Cut(b[prefixAt:prefixEnd], []byte{0}); len(prefix) > 0 {
			h.name = string(prefix) + "/" + h.name
		}
	case "ustar  \x00":
		if !damage.AllZero(b[prefixAt:]) {
			return h, false
		}
	default:
		return h, false
	}
	h.size, h.len = size, blockSize
	return h, regular(h.name)
}

// regular reports whether a regular file can have the name.
func regular(name string) bool { return name != "" && name[len(name)-1] != '/' }

// extend applies an extended header. It returns false for records that change more than name and
// size, and for wrong ones.
func (h *header) extend(text []byte) bool {
	for len(text) > 0 {
		digits, _, found := bytes.Cut(text, []byte{' '})
		n, err := strconv.Atoi(string(digits))
		if !found || err != nil || n <= len(digits)+1 || n > len(text) || text[n-1] != '\n' {
			return false
		}
		key, value, found := bytes.Cut(text[len(digits)+1:n-1], []byte{'='})
		text = text[n:]
		if !found || len(key) == 0 || bytes.IndexByte(key, 0) >= 0 || bytes.IndexByte(value, 0) >= 0 ||
			!h.record(string(key), string(value)) {
			return false
		}
	}
	return regular(h.name)
}

// record applies one record of an extended header.
func (h *header) record(key, value string) bool {
	switch key {
	case "path":
		if value != "" {
			h.name = value
		}
		return true
	case "size":
		v, err := strconv.ParseInt(value, 10, 64)
		h.size = v
		return err == nil && v >= 0
	case "mtime", "atime", "ctime":
		whole, part, _ := strings.Cut(value, ".")
		return len(whole) > 0 && len(whole) < 12 && strings.Trim(whole+part, "0123456789") == ""
	case "uid", "gid":
		_, err := strconv.ParseInt(value, 10, 64)
		return err == nil
	case "linkpath", "uname", "gname", "comment", "hdrcharset":
		return true
	}
	return len(key) > 7 && (key[:7] == "SCHILY." || len(key) > 11 && key[:11] == "LIBARCHIVE.")
}
