package parquet

import (
	"encoding/binary"
	"errors"
)

// compact parses the compact protocol of Thrift, in which footers and page headers are written,
// without allocating. The first error is sticky.
type compact struct {
	b       []byte
	off     int
	head    int // where the last field passed to the callback begins
	depth   int
	structs int
	err     error
}

// Types of the compact protocol.
const (
	typeStop   = 0
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeI16    = 4
	typeI32    = 5
	typeI64    = 6
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeMap    = 11
	typeStruct = 12
	typeUUID   = 13
)

// maxNesting is far above the nesting of any structure in Parquet.
const maxNesting = 32

var (
	errShort  = errors.New("it ends in the middle of a value")
	errThrift = errors.New("it is not a valid Thrift structure")
)

func (c *compact) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *compact) byte() byte {
	if c.err != nil || c.off >= len(c.b) {
		c.fail(errShort)
		return 0
	}
	c.off++
	return c.b[c.off-1]
}

func (c *compact) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.b[c.off:])
	switch {
	case n == 0:
		c.fail(errShort)
	case n < 0:
		c.fail(errThrift)
	default:
		c.off += n
	}
	return v
}

func (c *compact) integer() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// bytes parses a byte string.
func (c *compact) bytes() []byte {
	n := c.uvarint()
	at := c.off
	c.advance(n)
	return c.b[at:c.off]
}

// zigzag encodes an integer.
func zigzag(v int64) []byte { return binary.AppendUvarint(nil, uint64(v<<1)^uint64(v>>63)) }

func (c *compact) advance(n uint64) {
	if c.err == nil && n > uint64(len(c.b)-c.off) {
		c.fail(errShort)
	}
	if c.err == nil {
		c.off += int(n)
	}
}

// fields calls f for every field of a struct. f returns false if it has not consumed the value.
func (c *compact) fields(f func(id int, kind byte) bool) {
	c.depth++
	c.structs++
	if c.depth > maxNesting {
		c.fail(errThrift)
	}
	id := int64(0)
	for c.err == nil {
		begin := c.off
		head := c.byte()
		kind := head & 15
		if kind == typeStop || c.err != nil {
			break
		}
		if delta := int64(head >> 4); delta != 0 {
			id += delta
		} else {
			id = c.integer()
		}
		c.head = begin
		if !f(int(int16(id)), kind) {
			c.skip(kind)
		}
	}
	c.depth--
}

// list parses the head of a list or set. Each element takes at least a byte, so the count cannot
// exceed the bytes that are left.
func (c *compact) list() (n int, kind byte) {
	head := c.byte()
	count := uint64(head >> 4)
	if count == 15 {
		count = c.uvarint()
	}
	if c.err == nil && count > uint64(len(c.b)-c.off) {
		c.fail(errShort)
	}
	if c.err != nil {
		return 0, 0
	}
	return int(count), head & 15
}

// skip skips the value of a field.
func (c *compact) skip(kind byte) {
	switch kind {
	case typeTrue, typeFalse: // the type is the value
	case typeByte:
		c.advance(1)
	case typeI16, typeI32, typeI64:
		c.uvarint()
	case typeDouble:
		c.advance(8)
	case typeBinary:
		c.advance(c.uvarint())
	case typeUUID:
		c.advance(16)
	case typeStruct:
		c.fields(func(int, byte) bool { return false })
	case typeList, typeSet:
		n, elem := c.list()
		c.elements(n, elem)
	case typeMap:
		n := c.uvarint()
		if n == 0 {
			return
		}
		kinds := c.byte()
		if n > uint64(len(c.b)-c.off) {
			c.fail(errShort)
		}
		for ; n > 0 && c.err == nil; n-- {
			c.elements(1, kinds>>4)
			c.elements(1, kinds&15)
		}
	default:
		c.fail(errThrift)
	}
}

// elements skips n values of a container, in which a boolean takes a byte.
func (c *compact) elements(n int, kind byte) {
	if c.depth++; c.depth > maxNesting {
		c.fail(errThrift)
	}
	for ; n > 0 && c.err == nil; n-- {
		if kind == typeTrue || kind == typeFalse {
			c.advance(1)
			continue
		}
		c.skip(kind)
	}
	c.depth--
}
