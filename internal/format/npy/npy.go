// Package npy reads and writes the header of .npy files, versions 1, 2 and 3 of the format that
// NumPy documents: magic, version, length, and a Python dictionary with the keys descr,
// fortran_order and shape.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Magic begins every .npy file.
const Magic = "\x93NUMPY"

// Lead is the number of bytes that HeaderLen needs.
const Lead = 12 // magic, version, length of 4 bytes

// maxText is the longest dictionary that is read. NumPy's default limit is 10,000 bytes.
const maxText = 64 << 10

// Header describes the array of a .npy file.
type Header struct {
	// Kind is NumPy's letter: i, u, f, b (boolean), c, O, S, U, V, m or M; 0 for a structured type.
	Kind byte
	// Size is the size of an element in bytes, for kinds i, u, f, b and c.
	Size int
	// Big reports whether elements of more than one byte are big-endian.
	Big bool
	// Fortran reports whether the first dimension varies fastest.
	Fortran bool
	// Shape has no negative number; its product may be larger than any file.
	Shape []int64
	// Descr is the element type as written in the header.
	Descr string
}

// HeaderLen returns the total length of magic, version, length and dictionary, which is the offset
// of the array. first holds the first bytes of the file: Lead of them, or the whole file.
func HeaderLen(first []byte) (int64, error) {
	if len(first) < len(Magic) || string(first[:len(Magic)]) != Magic {
		return 0, fmt.Errorf("it begins with %q instead of %q: it is not an .npy file",
			first[:min(len(first), len(Magic))], Magic)
	}
	if len(first) < Lead {
		return 0, fmt.Errorf("it has %d bytes, which is less than any header", len(first))
	}
	begin, text := int64(10), int64(binary.LittleEndian.Uint16(first[8:]))
	switch first[6] {
	case 1:
	case 2, 3:
		begin, text = Lead, int64(binary.LittleEndian.Uint32(first[8:]))
	default:
		return 0, fmt.Errorf("its version is %d.%d; 1.0, 2.0 and 3.0 are known", first[6], first[7])
	}
	if text > maxText {
		return 0, fmt.Errorf("its header claims %d bytes, more than %d", text, maxText)
	}
	return begin + text, nil
}

// Cut divides the beginning of a file of size bytes, or the whole file, into the header, which
// Parse parses, and what follows it.
func Cut(first []byte, size int64) (header, rest []byte, err error) {
	n, err := HeaderLen(first[:min(len(first), Lead)])
	if err == nil && n > int64(len(first)) {
		err = fmt.Errorf("its header of %d bytes is truncated: it has %d", n, size)
	}
	if err != nil {
		return nil, nil, err
	}
	return first[:n], first[n:], nil
}

// Read is Cut that parses the header.
func Read(first []byte, size int64) (h Header, rest []byte, err error) {
	head, rest, err := Cut(first, size)
	if err == nil {
		h, err = Parse(head)
	}
	return h, rest, err
}

// Parse parses a header. Its length must be the one that HeaderLen returns.
func Parse(header []byte) (Header, error) {
	if n, err := HeaderLen(header[:min(len(header), Lead)]); err != nil {
		return Header{}, err
	} else if n != int64(len(header)) {
		return Header{}, fmt.Errorf("its header has %d bytes instead of %d", len(header), n)
	}
	begin := 10
	if header[6] > 1 {
		begin = Lead
	}
	h, err := parseDict(string(header[begin:]))
	if err != nil {
		return h, fmt.Errorf("its header: %w", err)
	}
	return h, nil
}

// parseDict parses the dictionary.
func parseDict(text string) (h Header, err error) {
	p := &parser{text: text}
	if !p.take('{') {
		return h, p.fail("a dictionary")
	}
	seen := 0
	for !p.take('}') {
		key, ok := p.str()
		if !ok || !p.take(':') {
			return h, p.fail("a key")
		}
		bit := 0
		switch key {
		case "descr":
			bit, err = 1, p.descr(&h)
		case "fortran_order":
			bit = 2
			h.Fortran, err = p.truth()
		case "shape":
			bit = 4
			h.Shape, err = p.shape()
		default:
			err = fmt.Errorf("key %q is none of descr, fortran_order and shape", key)
		}
		if err == nil && seen&bit != 0 {
			err = fmt.Errorf("key %q occurs twice", key)
		}
		seen |= bit
		if err != nil {
			return h, err
		}
		if !p.take(',') {
			if !p.take('}') {
				return h, p.fail("a comma")
			}
			break
		}
	}
	if p.space(); p.at < len(text) {
		return h, p.fail("its end")
	}
	if seen != 1|2|4 {
		return h, errors.New("it lacks one of the keys descr, fortran_order and shape")
	}
	return h, nil
}

// parser parses the Python literals that a header may hold.
type parser struct {
	text string
	at   int
}

func (p *parser) fail(want string) error {
	return fmt.Errorf("%s is expected at byte %d of %.60q", want, p.at, p.text)
}

func (p *parser) space() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\n' || p.text[p.at] == '\t' ||
		p.text[p.at] == '\r') {
		p.at++
	}
}

// take consumes c if it is the next byte that is not white space.
func (p *parser) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// str parses a quoted string without escapes.
func (p *parser) str() (string, bool) {
	p.space()
	if p.at >= len(p.text) || p.text[p.at] != '\'' && p.text[p.at] != '"' {
		return "", false
	}
	quote, begin := p.text[p.at], p.at+1
	for end := begin; end < len(p.text); end++ {
		switch p.text[end] {
		case quote:
			p.at = end + 1
			return p.text[begin:end], true
		case '\\', '\n':
			return "", false
		}
	}
	return "", false
}

func (p *parser) truth() (bool, error) {
	p.space()
	rest := p.text[p.at:]
	switch {
	case strings.HasPrefix(rest, "True"):
		p.at += len("True")
		return true, nil
	case strings.HasPrefix(rest, "False"):
		p.at += len("False")
		return false, nil
	}
	return false, p.fail("True or False")
}

// maxDims is the limit of NumPy 2.
const maxDims = 64

// shape parses a tuple of integers. Python 2 wrote some with the suffix L.
func (p *parser) shape() (dims []int64, err error) {
	if !p.take('(') {
		return nil, p.fail("the shape's tuple")
	}
	for !p.take(')') {
		p.space()
		begin := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		n, err := strconv.ParseInt(p.text[begin:p.at], 10, 64)
		if err != nil || len(dims) == maxDims {
			p.at = begin
			return nil, p.fail("a dimension below 2^63")
		}
		p.take('L')
		dims = append(dims, n)
		if !p.take(',') {
			if !p.take(')') {
				return nil, p.fail("a comma")
			}
			break
		}
	}
	return dims, nil
}

// descr parses the element type: a string such as '<u2', or a list for a structured type, which is
// skipped.
func (p *parser) descr(h *Header) error {
	p.space()
	begin := p.at
	text, ok := p.str()
	if !ok {
		return p.records(h, begin)
	}
	h.Descr = text
	body := text
	switch {
	case body == "":
		return p.fail("a type")
	case body[0] == '>':
		h.Big, body = true, body[1:]
	case body[0] == '<' || body[0] == '|' || body[0] == '=':
		body = body[1:]
	}
	if body == "" {
		return fmt.Errorf("type %q", text)
	}
	h.Kind, body = body[0], body[1:]
	switch h.Kind {
	case 'i', 'u', 'f', 'b', 'c':
		n, err := strconv.Atoi(body)
		if err != nil || n < 1 || n > 64 || strconv.Itoa(n) != body { // signs and zeros could fill a header
			return fmt.Errorf("type %.40q", text)
		}
		h.Size = n
		if n > 1 && (text[0] == '|' || text[0] == '=' || text[0] == h.Kind) {
			return fmt.Errorf("type %q has no byte order", text)
		}
	case 'O', 'S', 'U', 'V', 'm', 'M', 'a', 'G', 'T':
	default:
		return fmt.Errorf("type %q", text)
	}
	return nil
}

// records skips a list or tuple of fields and their types.
func (p *parser) records(h *Header, begin int) error {
	depth := 0
	for p.at < len(p.text) {
		switch c := p.text[p.at]; c {
		case '[', '(':
			depth++
			p.at++
		case ']', ')':
			depth--
			p.at++
		case '\'', '"':
			if _, ok := p.str(); !ok {
				return p.fail("the end of a text")
			}
		default:
			if depth == 0 {
				return p.fail("a type")
			}
			p.at++
		}
		if depth == 0 {
			h.Descr = p.text[begin:p.at]
			return nil
		}
	}
	return p.fail("the end of the type")
}

// AppendHeader appends a header of version 1.0, padded to a multiple of 64 bytes. Version 1.0 has
// room for every shape that occurs.
func AppendHeader[I int | int64](dst []byte, descr string, shape ...I) []byte {
	text := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': ("
	for i, d := range shape {
		if i > 0 {
			text += ", "
		}
		text += strconv.FormatInt(int64(d), 10)
	}
	if len(shape) == 1 {
		text += ","
	}
	text += "), }"
	const head = 10 // magic, version, length of the dictionary
	pad := (64 - (head+len(text)+1)%64) % 64
	dst = append(dst, Magic+"\x01\x00"...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(text)+pad+1))
	dst = append(dst, text...)
	for range pad {
		dst = append(dst, ' ')
	}
	return append(dst, '\n')
}
