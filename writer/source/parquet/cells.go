package parquet

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	pq "github.com/apache/arrow/go/v17/parquet"

	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// arrowTypes makes nodes of the types of Arrow, with the levels that a Parquet file of the same
// columns has. Everything may be null.
type arrowTypes struct {
	leaves int
	each   []int64 // by leaf: how many values each row has, 0 where rows may differ
	fixed  int64   // product of the lengths of lists around, 0 where they differ
	lists  int     // around
}

// plainType returns the type of the values: dictionaries and extensions are stored as others.
func plainType(t arrow.DataType) arrow.DataType {
	for {
		switch d := t.(type) {
		case *arrow.DictionaryType:
			t = d.ValueType
		case arrow.ExtensionType:
			t = d.StorageType()
		default:
			return t
		}
	}
}

func (b *arrowTypes) node(f arrow.Field, def, rep int16) *node {
	out := &node{name: f.Name, def: def + 1, first: b.leaves}
	kid := func(f arrow.Field, def, rep int16) { out.kids = append(out.kids, b.node(f, def, rep)) }
	fixed := b.fixed
	switch t := plainType(f.Type).(type) {
	case *arrow.StructType:
		out.shape = shapeStruct
		for _, f := range t.Fields() {
			kid(f, out.def, rep)
		}
	case *arrow.MapType:
		out.shape, out.elem, out.rep = shapeMap, out.def+1, rep+1
		kid(t.KeyField(), out.elem, out.rep)
		kid(t.ItemField(), out.elem, out.rep)
	case arrow.ListLikeType:
		out.shape, out.elem, out.rep = shapeList, out.def+1, rep+1
		if b.lists == 0 {
			b.fixed = 1
		}
		if l, ok := t.(*arrow.FixedSizeListType); ok && int64(l.Len()) <= math.MaxInt32 && b.fixed <= math.MaxInt32 {
			b.fixed *= int64(l.Len())
		} else {
			b.fixed = 0
		}
		b.lists++
		kid(t.ElemField(), out.elem, out.rep)
		b.lists--
	default:
		name, _ := f.Metadata.GetValue("ARROW:extension:name")
		out.leaf = arrowLeaf(t, name)
		b.leaves++
		each := b.fixed
		if b.lists == 0 {
			each = 1
		}
		b.each = append(b.each, each)
	}
	b.fixed = fixed
	if out.last = b.leaves - 1; out.shape == shapeStruct && len(out.kids) == 0 { // a leaf carries its levels
		out.last = b.leaves
		b.leaves++
		b.each = append(b.each, 0)
	}
	return out
}

// arrowLeaf returns the type of a leaf. Its physical type is the one that Parquet has for it.
func arrowLeaf(t arrow.DataType, extension string) leafType {
	integer := func(class class, bits int) leafType {
		return leafType{scalar{class: class, bits: bits}, pq.Types.Int64}
	}
	plain := func(class class) leafType { return leafType{scalar: scalar{class: class}} }
	switch t := t.(type) {
	case *arrow.NullType:
		return plain(classNull)
	case *arrow.BooleanType:
		return plain(classBool)
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return integer(classInteger, t.(arrow.FixedWidthDataType).BitWidth())
	case *arrow.DurationType:
		return leafType{durationOf(t, false), pq.Types.Int64}
	case *arrow.Uint8Type, *arrow.Uint16Type, *arrow.Uint32Type, *arrow.Uint64Type:
		return integer(classUnsigned, t.(arrow.FixedWidthDataType).BitWidth())
	case *arrow.Float16Type:
		return plain(classHalf)
	case *arrow.Float32Type:
		return plain(classFloat)
	case *arrow.Float64Type:
		return plain(classDouble)
	case *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		if extension == "arrow.json" {
			return plain(classJSON)
		}
		out := plain(classText)
		out.scalar.exact = strings.Replace(t.Name(), "utf8", "string", 1) // large_utf8, string_view
		return out
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.BinaryViewType, *arrow.FixedSizeBinaryType:
		if extension == "arrow.uuid" {
			return plain(classUUID)
		}
		out := plain(classBinary)
		out.scalar.exact = t.String() // fixed_size_binary[N], large_binary
		return out
	case arrow.DecimalType:
		if t.GetScale() >= 0 {
			return leafType{decimalOf(t.GetPrecision(), t.GetScale()), pq.Types.FixedLenByteArray}
		}
	case *arrow.Date32Type, *arrow.Date64Type:
		out := plain(classDate)
		out.scalar.exact = t.Name()
		return out
	case *arrow.Time32Type:
		return leafType{timeOf(t.Unit.Multiplier()), pq.Types.Int64}
	case *arrow.Time64Type:
		return leafType{timeOf(t.Unit.Multiplier()), pq.Types.Int64}
	case *arrow.TimestampType:
		return leafType{timestampOf(t.Unit.Multiplier(), t.TimeZone), pq.Types.Int64}
	}
	return leafType{scalar: scalar{class: classOther, name: t.String()}}
}

// cellOf returns the array that holds element i of arr, behind dictionaries and extensions, and its
// number there. The array is nil if the element is null.
func cellOf(arr arrow.Array, i int) (arrow.Array, int) {
	for {
		if arr.IsNull(i) {
			return nil, 0
		}
		switch a := arr.(type) {
		case *array.Null: // has no bits to say so
			return nil, 0
		case *array.Dictionary:
			arr, i = a.Dictionary(), a.GetValueIndex(i)
		case array.ExtensionArray:
			arr = a.Storage()
		default:
			return arr, i
		}
	}
}

// loadCell takes the value of a row. Lists and structs are read when their field is made.
func (c *column) loadCell(row int) {
	arr, i := cellOf(c.cells, row)
	if c.Cell.Kind = c.is; arr == nil {
		c.Cell.Kind = rows.Null
	}
	switch {
	case arr == nil:
	case c.node.shape == shapeScalar:
		c.v = cellValue(arr, i)
	case c.form == formFile:
		content, name := c.node.fileParts()
		of := arr.(*array.Struct)
		c.v, c.path = value{}, value{}
		for k, n := range c.node.kids {
			part, at := cellOf(of.Field(k), i)
			switch {
			case part == nil:
			case n == content:
				c.v = cellValue(part, at)
			case n == name:
				c.path = cellValue(part, at)
			}
		}
	}
}

// cellValue returns a value that is not null. The array owns its bytes.
func cellValue(arr arrow.Array, i int) value {
	switch a := arr.(type) {
	case *array.Boolean:
		if a.Value(i) {
			return value{u: 1}
		}
		return value{}
	case *array.Int8:
		return value{u: uint64(a.Value(i))}
	case *array.Int16:
		return value{u: uint64(a.Value(i))}
	case *array.Int32:
		return value{u: uint64(a.Value(i))}
	case *array.Int64:
		return value{u: uint64(a.Value(i))}
	case *array.Uint8:
		return value{u: uint64(a.Value(i))}
	case *array.Uint16:
		return value{u: uint64(a.Value(i))}
	case *array.Uint32:
		return value{u: uint64(a.Value(i))}
	case *array.Uint64:
		return value{u: a.Value(i)}
	case *array.Float16:
		return value{b: a.Value(i).ToLEBytes()}
	case *array.Float32:
		return value{u: uint64(math.Float32bits(a.Value(i)))}
	case *array.Float64:
		return value{u: math.Float64bits(a.Value(i))}
	case interface{ Value(int) string }: // String, LargeString, StringView
		s := a.Value(i)
		if s == "" {
			return value{b: []byte{}}
		}
		return value{b: unsafe.Slice(unsafe.StringData(s), len(s))}
	case interface{ Value(int) []byte }: // Binary, LargeBinary, BinaryView, FixedSizeBinary
		if b := a.Value(i); b != nil {
			return value{b: b}
		}
		return value{b: []byte{}} // of an array whose values are all empty, which has no buffer
	case *array.Decimal128:
		return bigValue(a.Value(i).BigInt(), 16)
	case *array.Decimal256:
		return bigValue(a.Value(i).BigInt(), 32)
	case *array.Date32:
		return value{u: uint64(a.Value(i))}
	case *array.Date64: // milliseconds, of whole days
		const day = 86_400_000
		n := int64(a.Value(i))
		days := n / day
		if n%day < 0 {
			days--
		}
		return value{u: uint64(days)}
	case *array.Time32:
		return value{u: uint64(a.Value(i))}
	case *array.Time64:
		return value{u: uint64(a.Value(i))}
	case *array.Timestamp:
		return value{u: uint64(a.Value(i))}
	case *array.Duration:
		return value{u: uint64(a.Value(i))}
	}
	return value{}
}

// bigValue returns an integer in two's complement, as decimals of Parquet are.
func bigValue(n *big.Int, size int) value {
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	return value{b: n.FillBytes(make([]byte, size))}
}

// cellNumpy appends a list of numbers as a .npy file. ok is false if the lists are ragged or have
// nulls, or may have.
func (c *column) cellNumpy(dst []byte, row int) (out []byte, ok bool, err error) {
	if c.form != formNumpy {
		return dst, false, nil
	}
	arr, i := cellOf(c.cells, row)
	lo, hi := i, i+1
	var dims []int
	for {
		list, is := arr.(array.ListLike)
		if !is {
			break
		}
		switch arr.(type) {
		case *array.List, *array.LargeList, *array.FixedSizeList:
		default: // others may be in any order
			return dst, false, nil
		}
		dim := 0
		for k := lo; k < hi; k++ {
			begin, end := list.ValueOffsets(k)
			if arr.IsNull(k) || k > lo && int(end-begin) != dim {
				return dst, false, nil
			}
			dim = int(end - begin)
		}
		dims = append(dims, dim)
		if lo < hi {
			begin, _ := list.ValueOffsets(lo)
			_, end := list.ValueOffsets(hi - 1)
			lo, hi = int(begin), int(end)
		} else {
			lo, hi = 0, 0
		}
		arr = list.ListValues()
	}
	if len(dims) == 0 || len(dims) > 2 && lo == hi && dims[0] > 0 { // as of Parquet, whose levels do not tell
		return dst, false, nil
	}
	dtype, size := c.node.tensorScalar().dtype()
	data := arr.Data()
	if hi > arr.Len() || len(data.Buffers()) < 2 || data.DataType().ID() == arrow.DICTIONARY ||
		data.DataType().ID() == arrow.EXTENSION {
		return dst, false, nil
	}
	for k := lo; k < hi && arr.NullN() > 0; k++ {
		if arr.IsNull(k) {
			return dst, false, nil
		}
	}
	t := c.node.tensor
	if dims, err = t.stored(dims); err != nil {
		return dst, false, err
	}
	dst = t.appendHeader(dst, dtype, dims)
	begin := len(dst)
	if lo == hi {
		return dst, true, nil
	}
	if bits, is := arr.(*array.Boolean); is {
		for k := lo; k < hi; k++ {
			b := byte(0)
			if bits.Value(k) {
				b = 1
			}
			dst = append(dst, b)
		}
	} else {
		raw := data.Buffers()[1].Bytes()
		dst = append(dst, raw[(data.Offset()+lo)*size:(data.Offset()+hi)*size]...)
	}
	t.arrange(dst[begin:], size, dims)
	return dst, true, nil
}

// tensorScalar returns the type of the values in lists, or of a struct of data and shape.
func (n *node) tensorScalar() scalar {
	if data, _ := n.tensorParts(); data != nil {
		n = data
	}
	for n.shape == shapeList {
		n = n.kids[0]
	}
	return n.leaf.scalar
}

// shred writes the levels and values of a row that leaves of a Parquet file would give.
func (c *column) shred(row int) {
	parts := c.parts[:c.node.last-c.node.first+1]
	for _, e := range parts {
		*e = entries{reps: e.reps[:0], defs: e.defs[:0], nums: e.nums[:0], ends: e.ends[:0], bytes: e.bytes[:0]}
	}
	s := shredder{first: c.node.first, parts: parts}
	s.value(c.node, c.cells, row, 0)
}

type shredder struct {
	first int
	parts []*entries
	size  int // of the values so far
}

// none adds an entry without a value to the leaves of a node.
func (s *shredder) none(n *node, rep, def int16) {
	for _, e := range s.parts[n.first-s.first : n.last-s.first+1] {
		e.reps, e.defs = append(e.reps, rep), append(e.defs, def)
	}
	s.size += 20 * (n.last - n.first + 1)
}

func (s *shredder) value(n *node, arr arrow.Array, i int, rep int16) {
	if s.size > maxCell {
		s.parts[0].large = true
		return
	}
	if arr, i = cellOf(arr, i); arr == nil {
		s.none(n, rep, n.def-1)
		return
	}
	switch n.shape {
	case shapeScalar:
		s.none(n, rep, n.def)
		v := cellValue(arr, i)
		s.parts[n.first-s.first].put(v)
		s.size += len(v.b)
	case shapeStruct:
		if len(n.kids) == 0 {
			s.none(n, rep, n.def)
		}
		for k, kid := range n.kids {
			s.value(kid, arr.(*array.Struct).Field(k), i, rep)
		}
	default:
		list := arr.(array.ListLike)
		begin, end := list.ValueOffsets(i)
		if begin == end {
			s.none(n, rep, n.def)
		}
		for k := begin; k < end && !s.parts[0].large; k++ {
			for at, kid := range n.kids {
				of := list.ListValues()
				if n.shape == shapeMap {
					of = of.(*array.Struct).Field(at)
				}
				s.value(kid, of, int(k), rep)
			}
			rep = n.rep
		}
	}
}

// checkData checks that buffers are as long as the lengths of arrays state, and that offsets
// ascend: the library does not, and padding behind a buffer would be read as values.
func checkData(d arrow.ArrayData) error {
	n := d.Offset() + d.Len()
	short := func() error { return corruptf("its %v of %d values are not all there", d.DataType(), d.Len()) }
	buffer := func(k int) []byte {
		if b := d.Buffers(); k < len(b) && b[k] != nil {
			return b[k].Bytes()
		}
		return nil
	}
	const most = 1 << 40 // before the sizes of buffers are computed
	if bits := buffer(0); d.Offset() < 0 || d.Len() < 0 || n < 0 || n > most || bits != nil && len(bits) < (n+7)/8 {
		return short()
	}
	offsets := func(width, most int) error {
		b := buffer(1)
		if n == 0 {
			return nil
		}
		if len(b) < (n+1)*width {
			return short()
		}
		last := int64(0)
		for i := d.Offset(); i <= n; i++ {
			var at int64
			if width == 4 {
				at = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
			} else {
				at = int64(binary.LittleEndian.Uint64(b[8*i:]))
			}
			if at < last || at > int64(most) {
				return corruptf("an offset of its %v is %d after %d, and there are %d", d.DataType(), at, last, most)
			}
			last = at
		}
		return nil
	}
	below := func() int {
		if kids := d.Children(); len(kids) > 0 {
			return kids[0].Len()
		}
		return 0
	}
	var err error
	switch t := d.DataType().(type) {
	case *arrow.NullType, arrow.BinaryViewDataType, *arrow.ListViewType, *arrow.LargeListViewType: // checked where they are read
	case *arrow.StringType, *arrow.BinaryType:
		err = offsets(4, len(buffer(2)))
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		err = offsets(8, len(buffer(2)))
	case *arrow.ListType, *arrow.MapType:
		err = offsets(4, below())
	case *arrow.LargeListType:
		err = offsets(8, below())
	case *arrow.FixedSizeListType:
		if int64(n)*int64(t.Len()) > int64(below()) {
			err = short()
		}
	case *arrow.StructType:
		for _, kid := range d.Children() {
			if kid.Len() < n {
				err = short()
			}
		}
	case *arrow.DictionaryType:
		dict, ok := d.Dictionary().(*array.Data)
		if !ok || dict == nil {
			return corruptf("it has no dictionary")
		}
		err = checkData(dict)
		if w := t.IndexType.(arrow.FixedWidthDataType).BitWidth(); err == nil && len(buffer(1)) < (n*w+7)/8 {
			err = short()
		}
	case arrow.FixedWidthDataType:
		if len(buffer(1)) < (n*t.BitWidth()+7)/8 {
			err = short()
		}
	}
	for _, kid := range d.Children() {
		if err == nil {
			err = checkData(kid)
		}
	}
	return err
}
