package parquet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// Fields of a SchemaElement, as numbered by the format.
const (
	elementType       = 1
	elementLength     = 2
	elementRepetition = 3
	elementName       = 4
	elementChildren   = 5
	elementConverted  = 6
	elementScale      = 7
	elementPrecision  = 8
	elementLogical    = 10
)

// missing is the value of a number that an element lacks. It is outside of 32 bits.
const missing = -1 << 40

// element is a column of the schema in the footer, or a group of columns.
type element struct {
	name                        string
	physical, length            int64
	repetition, children        int64
	converted, scale, precision int64
	logical                     logical
}

// logical is a member of the union of logical types: its number in the format, or 0, and its
// parameters.
type logical struct {
	id               int64
	scale, precision int64 // of decimals
	unit             int64 // of times: 1 to 3, milliseconds to nanoseconds
	bits             int64 // of integers
	signed           bool
}

// Members of the union of logical types that have parameters or apply to groups.
const (
	logicalMap       = 2
	logicalList      = 3
	logicalDecimal   = 5
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInteger   = 10
)

// plainLogical lists the members without parameters.
var plainLogical = map[int64]schema.LogicalType{
	1: schema.StringLogicalType{}, logicalMap: schema.MapLogicalType{}, logicalList: schema.ListLogicalType{},
	4: schema.EnumLogicalType{},
	6: schema.DateLogicalType{}, 11: schema.NullLogicalType{}, 12: schema.JSONLogicalType{},
	13: schema.BSONLogicalType{},
	14: schema.UUIDLogicalType{}, 15: schema.Float16LogicalType{},
}

// known reports whether the library knows the type. It panics on others.
func (l *logical) known() bool {
	switch l.id {
	case logicalDecimal, logicalInteger:
		return true
	case logicalTime, logicalTimestamp:
		return l.unit >= 1 && l.unit <= 3
	}
	return plainLogical[l.id] != nil
}

// knownConverted is the number of the last converted type in the format.
const knownConverted = 21

// cut replaces a part of a footer.
type cut struct {
	from, to int
	with     []byte
}

// checkFooter checks a footer before the library parses it, because the library recurses and
// allocates by the numbers of children in it, and panics on types that it does not know. It returns
// the footer without the annotations of such types: their columns are read as their physical types.
func checkFooter(footer []byte) ([]byte, error) {
	c := compact{b: footer}
	var children []int64
	var cuts []cut
	var bad error
	c.fields(func(id int, kind byte) bool {
		if id != 2 || kind != typeList || children != nil {
			return false
		}
		n, elem := c.list()
		if elem != typeStruct {
			c.fail(errThrift)
		}
		for ; n > 0 && c.err == nil; n-- {
			e := c.element(&cuts)
			if bad == nil && len(children) > 0 && c.err == nil {
				bad = e.check()
			}
			children = append(children, e.children)
		}
		return true
	})
	switch {
	case c.err != nil:
		return nil, c.err
	case c.structs > maxStructs:
		return nil, fmt.Errorf("it has %d structures, this version reads %d", c.structs, maxStructs)
	case len(children) < 2:
		return nil, errors.New("there are no columns")
	}
	if err := checkTree(children); err != nil {
		return nil, err
	}
	return splice(footer, cuts), bad
}

// splice applies cuts, which are in order.
func splice(b []byte, cuts []cut) []byte {
	if len(cuts) == 0 {
		return b
	}
	var out []byte
	at := 0
	for _, c := range cuts {
		out = append(append(out, b[at:c.from]...), c.with...)
		at = c.to
	}
	return append(out, b[at:]...)
}

// element parses a column of the schema. It adds unknown annotations to cuts.
func (c *compact) element(cuts *[]cut) element {
	e := element{physical: missing, converted: missing}
	numbers := [...]*int64{
		elementType: &e.physical, elementLength: &e.length, elementRepetition: &e.repetition,
		elementChildren:  &e.children,
		elementConverted: &e.converted, elementScale: &e.scale, elementPrecision: &e.precision,
	}
	removed := false // whether the previous field was removed, to which the number of this one is relative
	c.fields(func(id int, kind byte) bool {
		head := c.head
		if removed { // a head with an absolute number
			long := append([]byte{kind}, zigzag(int64(id))...)
			*cuts = append(*cuts, cut{head, c.off, long})
		}
		var unknown bool
		switch {
		case kind == typeI32 && id > 0 && id < len(numbers) && numbers[id] != nil:
			*numbers[id] = c.integer()
			unknown = id == elementConverted && (e.converted < 0 || e.converted > knownConverted)
		case kind == typeBinary && id == elementName:
			e.name = string(c.bytes())
		case kind == typeStruct && id == elementLogical:
			e.logical = c.logical()
			unknown = !e.logical.known()
		default:
			c.skip(kind)
		}
		if unknown && removed { // remove its new head, too
			*cuts = (*cuts)[:len(*cuts)-1]
		}
		if removed = unknown; unknown {
			*cuts = append(*cuts, cut{from: head, to: c.off})
		}
		return true
	})
	if !e.logical.known() {
		e.logical = logical{}
	}
	if e.converted < 0 || e.converted > knownConverted {
		e.converted = missing
	}
	return e
}

// logical parses the union of logical types.
func (c *compact) logical() (l logical) {
	c.fields(func(id int, kind byte) bool {
		if l.id != 0 || kind != typeStruct {
			return false
		}
		l.id = int64(id)
		c.fields(func(id int, kind byte) bool {
			switch {
			case l.id == logicalDecimal && id == 1 && kind == typeI32:
				l.scale = c.integer()
			case l.id == logicalDecimal && id == 2 && kind == typeI32:
				l.precision = c.integer()
			case l.id == logicalInteger && id == 1 && kind == typeByte:
				l.bits = int64(int8(c.byte()))
			case l.id == logicalInteger && id == 2:
				l.signed = kind == typeTrue
			case (l.id == logicalTime || l.id == logicalTimestamp) && id == 2 && kind == typeStruct:
				c.fields(func(id int, _ byte) bool {
					l.unit = int64(id)
					return false
				})
			default:
				return false
			}
			return true
		})
		return true
	})
	return l
}

// check applies the library's rules for the types of a column, because the library gives no reason
// when they are violated.
func (e *element) check() error {
	bad := func(msg string, args ...any) error {
		return fmt.Errorf("column %q: %w", e.name, fmt.Errorf(msg, args...))
	}
	switch {
	case e.repetition < 0 || e.repetition > 2:
		return bad("its repetition is number %d, the format has 0 to 2", e.repetition)
	case e.children > 0:
		if err := e.checkGroup(); err != nil {
			return bad("%w", err)
		}
		return nil
	case e.physical == missing:
		return bad("it is a group without columns, which this version does not read: write the file again without it")
	case e.physical < 0 || e.physical > int64(pq.Types.FixedLenByteArray):
		return bad("its values are of type number %d, the format has 0 to %d", e.physical, pq.Types.FixedLenByteArray)
	}
	if err := protect(e.checkLeaf); err != nil {
		return bad("%w", err)
	}
	return nil
}

func (e *element) checkGroup() error {
	if e.logical.id != 0 && e.logical.id != logicalMap && e.logical.id != logicalList {
		return errors.New("a group of columns is marked as values, which the format does not allow")
	}
	_, err := schema.NewGroupNodeConverted(e.name, pq.Repetition(e.repetition), nil, e.convertedType(), -1)
	if e.logical.id == 0 && err != nil {
		return err
	}
	return nil
}

func (e *element) checkLeaf() error {
	physical, length := pq.Type(e.physical), int(e.length)
	if physical == pq.Types.FixedLenByteArray && length <= 0 {
		return fmt.Errorf("its values are %d bytes long", length)
	}
	switch {
	case e.logical.id != 0:
		if t := e.logical.build(); !t.IsApplicable(physical, int32(length)) {
			return fmt.Errorf("values of type %v are marked as %v, which the format does not allow", physical, t)
		}
	case e.converted >= 0:
		_, err := schema.NewPrimitiveNodeConverted(e.name, pq.Repetition(e.repetition), physical, e.convertedType(),
			length,
			int(e.precision), int(e.scale), -1)
		if err != nil {
			return fmt.Errorf("values of type %v: %s", physical, strings.TrimPrefix(err.Error(), "parquet: "))
		}
	}
	return nil
}

func (e *element) convertedType() schema.ConvertedType {
	if e.converted < 0 {
		return schema.ConvertedTypes.None
	}
	return schema.ConvertedType(e.converted)
}

// build returns the library's type. It panics if parameters are out of range.
func (l *logical) build() schema.LogicalType {
	switch l.id {
	case logicalDecimal:
		return schema.NewDecimalLogicalType(int32(l.precision), int32(l.scale))
	case logicalTime:
		return schema.NewTimeLogicalType(true, l.timeUnit())
	case logicalTimestamp:
		return schema.NewTimestampLogicalType(true, l.timeUnit())
	case logicalInteger:
		if !slices.Contains([]int64{8, 16, 32, 64}, l.bits) {
			panic(fmt.Sprintf("its integers are %d bits wide", l.bits))
		}
		return schema.NewIntLogicalType(int8(l.bits), l.signed)
	}
	return plainLogical[l.id]
}

func (l *logical) timeUnit() schema.TimeUnitType {
	return []schema.TimeUnitType{schema.TimeUnitMillis, schema.TimeUnitMicros, schema.TimeUnitNanos}[l.unit-1]
}
