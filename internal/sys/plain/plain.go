// Package plain makes text from data safe to print: names and keys may hold escape sequences that
// move a terminal's cursor, change its title or reorder what a person reads.
package plain

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Text returns s with everything escaped that is not plain text: control characters (C0 with line
// breaks and tabs, DEL, C1), line and paragraph separators, bidirectional controls and bytes that
// are not UTF-8. Text without them is returned as it is. The escapes are the escapes of Go and JSON
// strings: \n, \t, \u001b, \xff.
func Text(s string) string {
	for i, r := range s {
		if acts(r) || r == utf8.RuneError {
			return string(appendText([]byte(s[:i]), []byte(s[i:]), false))
		}
	}
	return s
}

// Line is Text for a message of several lines, such as joined errors: a semicolon divides them.
func Line(s string) string { return Text(strings.ReplaceAll(s, "\n", "; ")) }

// Writer writes text to a terminal and escapes what Text escapes, except line breaks and tabs. The
// escapes of characters are valid in JSON strings. A Writer is for one goroutine at a time.
type Writer struct {
	out  io.Writer
	left []byte // the beginning of a character; the next Write has the rest
	buf  []byte
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write escapes and writes p. It counts bytes of p.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.left, p...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= whole; i++ { // at most 3 bytes of a character that is not complete
		if c := text[whole-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[whole-i:]) {
				whole -= i
			}
			break
		}
	}
	w.buf = appendText(w.buf[:0], text[:whole], true)
	w.left = append([]byte(nil), text[whole:]...)
	if _, err := w.out.Write(w.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// appendText appends s escaped; layout keeps line breaks and tabs.
func appendText(dst, s []byte, layout bool) []byte {
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, s[0])
		case !acts(r), layout && (r == '\n' || r == '\t'):
			dst = append(dst, s[:n]...)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		s = s[n:]
	}
	return dst
}

// acts reports whether a terminal may act on r.
func acts(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f: // C0, DEL, C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // separators and bidi
		return true
	}
	return false
}

// InJSON reports whether s has at most longest bytes and JSON writes it as it is, in every
// language: printable ASCII without quotes, backslashes and what HTML escapes.
func InJSON(s string, longest int) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return len(s) <= longest
}
