package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// arrayType is the type of an array, as the parent is told it.
type arrayType struct {
	Dtype   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Fortran bool   `json:"fortran_order"`
}

const npyMagic = "\x93NUMPY"

// maxNpyHeader is that of numpy itself, which refuses longer ones unless told otherwise.
const maxNpyHeader = 10000

// cutNpy splits an npy file into header and data (numpy's documentation, "numpy.lib.format"). The header is as it stands, padding
// included.
func cutNpy(file []byte) (header, data []byte, err error) {
	if len(file) < 10 || string(file[:6]) != npyMagic {
		return nil, nil, errors.New("no npy file")
	}
	at, n := 10, int(binary.LittleEndian.Uint16(file[8:]))
	if major := file[6]; major == 2 || major == 3 {
		if len(file) < 12 {
			return nil, nil, errors.New("an npy file cut short in its header")
		}
		at, n = 12, int(min(binary.LittleEndian.Uint32(file[8:]), math.MaxInt32))
	} else if major != 1 {
		return nil, nil, fmt.Errorf("an npy file of version %d, this program reads 1 to 3", major)
	}
	if n > maxNpyHeader {
		return nil, nil, fmt.Errorf("an npy file with a header of %d bytes, at most %d are read", n, maxNpyHeader)
	}
	if n > len(file)-at {
		return nil, nil, errors.New("an npy file cut short in its header")
	}
	return file[at : at+n], file[at+n:], nil
}

// parseNpy reads the header of an npy file: a Python dictionary with three members. size is the bytes of data that follow. plain is false
// for arrays whose items are no numbers or fixed strings (structured ones): these are told apart from damage.
func parseNpy(header []byte) (t arrayType, size int, plain bool, err error) {
	p := literal{rest: bytes.TrimRight(header, " \n\x00")}
	seen := 0
	p.take('{')
	for p.err == nil && !p.has('}') {
		name := p.text()
		p.take(':')
		switch name {
		case "descr":
			if !p.is('\'') && !p.is('"') && p.err == nil { // a list: structured
				return t, 0, false, nil
			}
			t.Dtype = p.text()
			seen |= 1
		case "fortran_order":
			t.Fortran = p.boolean()
			seen |= 2
		case "shape":
			t.Shape = p.tuple()
			seen |= 4
		default:
			p.fail()
		}
		if !p.is('}') {
			p.take(',')
		}
	}
	if p.err != nil || seen != 7 || len(p.rest) > 0 {
		return t, 0, false, fmt.Errorf("an npy file whose header is %.80q", header)
	}
	item, ok := itemSize(t.Dtype)
	if !ok {
		return t, 0, false, nil
	}
	size = item
	for _, n := range t.Shape {
		if n > 0 && size > maxRegion/n {
			return t, 0, false, fmt.Errorf("an npy file of shape %v", t.Shape)
		}
		size *= n
	}
	return t, size, true, nil
}

// itemSize is the bytes of one item of a dtype such as "<f4"; not ok for Python objects and what has fields.
func itemSize(dtype string) (n int, ok bool) {
	if len(dtype) < 3 || !strings.ContainsRune("<>|=", rune(dtype[0])) {
		return 0, false
	}
	n, err := strconv.Atoi(dtype[2:])
	if err != nil || n < 1 || n > 1<<20 {
		return 0, false
	}
	switch dtype[1] {
	case 'b', 'i', 'u', 'f', 'c', 'S', 'V':
		return n, true
	case 'U':
		return 4 * n, true
	}
	return 0, false
}

// literal reads the few Python literals an npy header has. The first error sticks.
type literal struct {
	rest []byte
	err  error
}

func (p *literal) fail() {
	if p.err == nil {
		p.err = errors.New("unexpected text")
	}
	p.rest = nil
}

// is looks at the next byte behind blanks.
func (p *literal) is(c byte) bool {
	p.rest = bytes.TrimLeft(p.rest, " ")
	return len(p.rest) > 0 && p.rest[0] == c
}

// has takes the next byte if it is c.
func (p *literal) has(c byte) bool {
	if !p.is(c) {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *literal) take(c byte) {
	if !p.has(c) {
		p.fail()
	}
}

// text reads a quoted string. None of those that count has an escape.
func (p *literal) text() string {
	quote := byte('\'')
	if p.is('"') {
		quote = '"'
	}
	p.take(quote)
	i := bytes.IndexByte(p.rest, quote)
	if i < 0 || bytes.IndexByte(p.rest[:i], '\\') >= 0 {
		p.fail()
		return ""
	}
	s := string(p.rest[:i])
	p.rest = p.rest[i+1:]
	return s
}

func (p *literal) boolean() bool {
	p.is(' ') // blanks
	for word, value := range map[string]bool{"True": true, "False": false} {
		if bytes.HasPrefix(p.rest, []byte(word)) {
			p.rest = p.rest[len(word):]
			return value
		}
	}
	p.fail()
	return false
}

// tuple reads (), (3,) or (3, 224, 224).
func (p *literal) tuple() []int {
	shape := []int{}
	p.take('(')
	for p.err == nil && !p.has(')') {
		p.is(' ')
		n := 0
		for n < len(p.rest) && '0' <= p.rest[n] && p.rest[n] <= '9' {
			n++
		}
		v, err := strconv.ParseInt(string(p.rest[:n]), 10, 63)
		if err != nil || len(shape) == 64 {
			p.fail()
			break
		}
		shape = append(shape, int(v))
		p.rest = p.rest[n:]
		p.has('L') // written by Python 2
		if !p.is(')') {
			p.take(',')
		}
	}
	return shape
}
