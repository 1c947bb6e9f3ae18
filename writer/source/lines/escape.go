package lines

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// hex4 decodes an escape of four hex digits at the beginning of b.
func hex4(b []byte) (unit rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(c)
	}
	return unit, true
}

var plainEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape appends a decoded string that scanString has checked. Half of a surrogate pair is an
// error, because UTF-8 cannot encode it. begin is the offset of the string in its line.
func unescape(dst, b []byte, begin int) ([]byte, *syntaxError) {
	for i := 0; ; {
		k := bytes.IndexByte(b[i:], '\\')
		if k < 0 {
			return append(dst, b[i:]...), nil
		}
		dst = append(dst, b[i:i+k]...)
		i += k
		if b[i+1] != 'u' {
			dst = append(dst, plainEscapes[b[i+1]])
			i += 2
			continue
		}
		r, _ := hex4(b[i:])
		n := 6
		if utf16.IsSurrogate(r) {
			low, _ := hex4(b[i+6:])
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return dst, bad(begin+i, "%s is half of a surrogate pair, which UTF-8 cannot encode", b[i:i+6])
			}
			n = 12
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
}
