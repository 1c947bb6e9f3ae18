package lines

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the maximum nesting of lists and objects.
const maxDepth = 10_000

func bad(at int, msg string, args ...any) *syntaxError {
	if len(args) > 0 {
		msg = fmt.Sprintf(msg, args...)
	}
	return &syntaxError{what: msg, at: at}
}

// jsonLine parses a line by RFC 8259. It checks the whole line, including values that become no
// field.
func (p *parser) jsonLine(c *chunk, b []byte) (blank bool, err error) {
	i := skipSpace(b, 0)
	if i == len(b) {
		return true, nil
	}
	if !p.valid && !utf8.Valid(b) {
		at := 0
		for r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(b[at:]) {
			at += n
		}
		return false, bad(at, "it is not UTF-8: convert the file, such as with `iconv -f latin1 -t utf-8`")
	}
	if b[i] != '{' {
		return false, notObject(b, i)
	}
	i, wrong := p.members(c, b, i+1)
	if wrong == nil {
		if i = skipSpace(b, i); i < len(b) {
			wrong = bad(i, "text follows the object: each line holds one")
		}
	}
	if wrong != nil {
		return false, wrong
	}
	return false, nil
}

func notObject(b []byte, i int) error {
	hint := ""
	if b[i] == '[' {
		hint = "; where the file is one JSON list, its name has to end in .json"
	}
	return bad(i, "a row is one JSON object, and this one begins with %q%s", rune(b[i]), hint)
}

// members parses an object from after its opening brace to after its closing one.
func (p *parser) members(c *chunk, b []byte, i int) (int, *syntaxError) {
	i = skipSpace(b, i)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i == len(b) || b[i] != '"' {
			return i, wants(b, i, "a member's name in quotes")
		}
		begin := i + 1
		end, escaped, err := scanString(b, begin)
		if err != nil {
			return i, err
		}
		name := b[begin:end]
		if escaped {
			if p.scratch, err = unescape(p.scratch[:0], name, begin); err != nil {
				return i, err
			}
			name = p.scratch
		}
		col := p.columns[string(name)]
		if col == nil {
			col = p.add(string(name))
		}
		if col.row == p.row {
			return i, bad(i, "the member %s comes twice", quoted(col.name))
		}
		if len(p.present) == maxColumns {
			return i, bad(i, "it has more than %d members", maxColumns)
		}
		col.row = p.row
		p.present = append(p.present, col)
		if i = skipSpace(b, end+1); i == len(b) || b[i] != ':' {
			return i, wants(b, i, "a colon")
		}
		if i, err = p.member(c, b, skipSpace(b, i+1), col); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		default:
			return i, wants(b, i, "a comma or }")
		}
	}
}

// member parses the value of a member.
func (p *parser) member(c *chunk, b []byte, i int, col *column) (end int, err *syntaxError) {
	v := &col.v
	if i < len(b) && b[i] == '"' {
		begin := i + 1
		end, escaped, err := scanString(b, begin)
		if err != nil {
			return i, err
		}
		*v = value{kindText, b[begin:end:end]}
		if escaped && col.wanted {
			at := len(c.side)
			if c.side, err = unescape(c.side, v.b, begin); err != nil {
				return i, err
			}
			v.b = c.side[at:len(c.side):len(c.side)]
		}
		return end + 1, nil
	}
	kind, end, err := p.scanValue(b, i)
	if err != nil {
		return end, err
	}
	*v = value{kind, b[i:end:end]}
	return end, nil
}

// scanValue finds the end of a value other than a string.
func (p *parser) scanValue(b []byte, i int) (k kind, end int, err *syntaxError) {
	if i == len(b) {
		return 0, i, wants(b, i, "a value")
	}
	switch b[i] {
	case '{', '[':
		k = kindList
		if b[i] == '{' {
			k = kindObject
		}
		end, err = p.scanNested(b, i)
		return k, end, err
	}
	return scanPlain(b, i)
}

// scanNested finds the end of a list or object. It does not recurse.
func (p *parser) scanNested(b []byte, i int) (end int, err *syntaxError) {
	open := p.stack[:0]
	defer func() { p.stack = open[:0] }()
	for {
		// A value begins here.
		switch {
		case i == len(b):
			return i, wants(b, i, "a value")
		case b[i] == '{' || b[i] == '[':
			if len(open) == maxDepth {
				return i, bad(i, "lists and objects are nested more than %d deep", maxDepth)
			}
			open = append(open, b[i])
			closing := b[i] + 2 // } and ] have the codes of { and [ plus 2
			if i = skipSpace(b, i+1); i < len(b) && b[i] == closing {
				break
			}
			if closing == '}' {
				if i, err = scanName(b, i); err != nil {
					return i, err
				}
			}
			continue
		case b[i] == '"':
			if i, _, err = scanString(b, i+1); err != nil {
				return i, err
			}
			i++
		default:
			if _, i, err = scanPlain(b, i); err != nil {
				return i, err
			}
		}
		// A value ends here: skip a comma or closing brackets.
		for {
			i = skipSpace(b, i)
			top := open[len(open)-1]
			if i < len(b) && b[i] == top+2 {
				i++
				if open = open[:len(open)-1]; len(open) == 0 {
					return i, nil
				}
				continue
			}
			if i == len(b) || b[i] != ',' {
				return i, wants(b, i, map[byte]string{'{': "a comma or }", '[': "a comma or ]"}[top])
			}
			i = skipSpace(b, i+1)
			if top == '{' {
				if i, err = scanName(b, i); err != nil {
					return i, err
				}
			}
			break
		}
	}
}

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
func scanPlain(b []byte, i int) (k kind, end int, err *syntaxError) {
	for _, word := range [...]struct {
		text string
		kind kind
	}{{"true", kindBool}, {"false", kindBool}, {"null", kindNull}} {
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
	k = kindInteger
	if i < len(b) && b[i] == '.' {
		k = kindNumber
		from := i + 1
		if i = skipDigits(b, from); i == from {
			return 0, i, wants(b, i, "a digit after the point")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		k = kindNumber
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

// wants returns the error of a missing token.
func wants(b []byte, i int, what string) *syntaxError {
	rest := trimEnd(b[min(i, len(b)):])
	switch {
	case len(rest) == 0:
		return bad(i, "the line ends where %s is expected: it is truncated, or an object spans lines", what)
	case rest[0] == 'N' || rest[0] == 'I':
		return bad(i, "JSON has no NaN and Infinity: write null, or a string")
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
			return i, false, bad(i, "the line ends inside a string: it is cut, or a line end is not written as \\n")
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
