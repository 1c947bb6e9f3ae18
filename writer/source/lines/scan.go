package lines

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// scanName skips a member's name and its colon.
func scanName(b []byte, i int) (int, *syntaxError) {
	if i == len(b) || b[i] != '"' {
		return i, wants(b, i, "a member's name in quotes")
	}
	i, _, err := scanString(b, i+1)
	if err != nil {
		return i, err
	}
	if i = skipSpace(b, i+1); i == len(b) || b[i] != ':' {
		return i, wants(b, i, "a colon")
	}
	return skipSpace(b, i+1), nil
}

// scanPlain finds the end of a number, true, false or null.
func scanPlain(b []byte, i int) (k rows.Kind, end int, err *syntaxError) {
	for _, word := range [...]struct {
		text string
		kind rows.Kind
	}{{"true", rows.Bool}, {"false", rows.Bool}, {"null", rows.Null}} {
		if n := i + len(word.text); b[i] == word.text[0] && n <= len(b) && string(b[i:n]) == word.text {
			return word.kind, n, nil
		}
	}
	begin := i
	if b[i] == '-' {
		i++
	}
	first := i
	i = skipDigits(b, i)
	if i == first {
		return 0, begin, wants(b, begin, "a value")
	}
	if b[first] == '0' && i > first+1 {
		return 0, begin, bad(begin, "a number begins with 0: put it in quotes, or take the 0 away")
	}
	k = rows.Digits
	if i < len(b) && b[i] == '.' {
		k = rows.Number
		from := i + 1
		if i = skipDigits(b, from); i == from {
			return 0, i, wants(b, i, "a digit after the point")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		k = rows.Number
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from := i
		if i = skipDigits(b, from); i == from {
			return 0, i, wants(b, i, "a digit of the exponent")
		}
	}
	return k, i, nil
}

// numberWord returns the kind of a number as JSON writes it, and txt for other text: a code such as
// 007 is no number.
func numberWord(b []byte) string {
	if len(b) == 0 {
		return "txt"
	}
	switch k, end, err := scanPlain(b, 0); {
	case err != nil || end < len(b):
		return "txt"
	case k == rows.Number:
		return "float"
	case k != rows.Digits:
		return "txt"
	}
	if len(b) > 18 {
		if _, err := strconv.ParseInt(string(b), 10, 64); err != nil {
			return "json"
		}
	}
	return "int"
}

// digitsOnly reports whether a cell is an integer.
func digitsOnly(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte("-"))
	return len(b) > 0 && skipDigits(b, 0) == len(b)
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// goesOn reports whether a line ends where a program that writes an object over many lines ends
// one.
func goesOn(b []byte) bool {
	b = bytes.TrimRight(b, " \t\r\n")
	return len(b) > 0 && bytes.IndexByte([]byte("{[,:"), b[len(b)-1]) >= 0
}

// scanNaN returns the end of NaN, Infinity or -Infinity.
func scanNaN(b []byte, i int) (end int, ok bool) {
	for _, word := range [...]string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(b[i:], []byte(word)) {
			return i + len(word), true
		}
	}
	return i, false
}

// scanNumber is scanPlain with NaN and Infinity.
func scanNumber(b []byte, i int) (k rows.Kind, end int, err *syntaxError) {
	if end, ok := scanNaN(b, i); ok {
		return rows.Number, end, nil
	}
	return scanPlain(b, i)
}

// wants returns the error of a missing token.
func wants(b []byte, i int, what string) *syntaxError {
	rest := trimEnd(b[min(i, len(b)):])
	switch {
	case len(rest) == 0 && goesOn(b[:min(i, len(b))]):
		return bad(i, "the line ends where %s is expected: the object goes on in the next line, and each line holds one: write it so, such as with `jq -c . FILE`, or a list in it with `jq -c '.NAME[]' FILE`", what)
	case len(rest) == 0:
		return bad(i, "the line ends where %s is expected: it is truncated, or an object spans lines", what)
	case rest[0] == 'N' || rest[0] == 'I' || len(rest) > 1 && rest[0] == '-' && rest[1] == 'I':
		err := bad(i, "JSON has no NaN and Infinity: write null, or a string")
		err.nan = true
		return err
	}
	r, _ := utf8.DecodeRune(rest)
	return bad(i, "%q found where %s is expected", r, what)
}

// scanString finds the closing quote of the string that begins at b[i]. It checks escapes, except
// for the pairing of surrogates.
func scanString(b []byte, i int) (end int, escaped bool, err *syntaxError) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for {
		// Test eight bytes at a time. The lowest byte of x that is 0 is the lowest whose top bit is
		// set in (x-ones)&^x; the lowest byte of w below 0x20 is found in (w-0x20*ones)&^w.
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			q, s := w^ones*'"', w^ones*'\\'
			if m := ((q-ones)&^q | (s-ones)&^s | (w-ones*0x20)&^w) & tops; m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
			i++
		}
		switch {
		case i == len(b) || b[i] == '\n' || b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
			return i, false, bad(i, "the line ends inside a string: it is cut off, or a line end is not written as \\n")
		case b[i] == '"':
			return i, escaped, nil
		case b[i] != '\\':
			return i, false, bad(i, "a string has the control character %#02x, which must be escaped", b[i])
		}
		escaped = true
		n := escapeLen(b[i:])
		if n == 0 {
			return i, false, bad(i, "a backslash does not begin a valid JSON escape")
		}
		i += n
	}
}

// escapeLen returns the length of the escape at the beginning of b, or 0 if it is invalid.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

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
