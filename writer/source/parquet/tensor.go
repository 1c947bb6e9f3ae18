package parquet

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
)

// tensor is the shape of a column's arrays, where its type states more than lists do, as types of
// Ray, Hugging Face datasets and Arrow:
// https://arrow.apache.org/docs/format/CanonicalExtensions.html
type tensor struct {
	// shape is the shape of the stored values, with -1 where rows may differ; nil if each row has its
	// own.
	shape []int
	// order has for each dimension of the array the one of the stored values. Nil: they are the same.
	order []int
	// flat reports that one list has the values of all dimensions. Else there are as many lists, and
	// the shape is of those that are empty; or, without a shape, a struct of data and shape.
	flat bool
	// dims is the number of dimensions, or -1.
	dims int
}

// maxDims is the most dimensions that NumPy has.
const maxDims = 64

// tensorOf returns the tensor of a column by the name and the metadata of its type, nil if it is
// none.
func (n *node) tensorOf(name, meta string) (*tensor, error) {
	var said struct {
		Shape   []int `json:"shape"`
		Order   []int `json:"permutation"`
		Dims    *int  `json:"ndim"`
		Uniform []any `json:"uniform_shape"`
	}
	ray := strings.HasPrefix(name, "ray.data.arrow_")
	t := &tensor{dims: -1}
	var err error
	switch {
	case name == "arrow.fixed_shape_tensor":
		t.flat, err = true, json.Unmarshal([]byte(meta), &said)
	case ray && strings.HasPrefix(name, "ray.data.arrow_tensor"):
		t.flat, err = true, json.Unmarshal([]byte(meta), &said.Shape)
	case name == "arrow.variable_shape_tensor":
		if meta != "" {
			err = json.Unmarshal([]byte(meta), &said)
		}
	case ray && strings.HasPrefix(name, "ray.data.arrow_variable_shaped_tensor"):
		if json.Unmarshal([]byte(meta), &t.dims) != nil {
			t.dims = -1
		}
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("its type %s does not state a shape in JSON: write it with one, or as lists", name)
	}
	if t.flat {
		t.shape, t.dims = said.Shape, len(said.Shape)
		if n.lists() != 1 || !sane(t.shape) {
			return nil, fmt.Errorf("its type %s of the shape %v has values of type %v, which does not fit", name,
				t.shape, n)
		}
	} else {
		data, shape := n.tensorParts()
		if data == nil || shape == nil {
			return nil, fmt.Errorf("its type %s has values of type %v, and lists of data and of shape are wanted", name,
				n)
		}
		for _, size := range []int{len(said.Uniform), len(said.Order)} {
			if size > 0 {
				t.dims = size
			}
		}
	}
	if t.order = said.Order; t.order != nil {
		sorted := slices.Sorted(slices.Values(t.order))
		for i, d := range sorted {
			if i != d || len(sorted) != t.dims {
				return nil, fmt.Errorf("its type %s states the permutation %v of %d dimensions", name, t.order, t.dims)
			}
		}
		if slices.IsSorted(t.order) {
			t.order = nil
		}
	}
	return t, nil
}

// sane reports whether an array may have the shape.
func sane(shape []int) bool {
	product := 1
	for _, dim := range shape {
		if dim < 0 || dim > 0 && product > math.MaxInt32/dim {
			return false
		}
		product *= max(dim, 1)
	}
	return len(shape) <= maxDims
}

// tensorParts returns the parts of a struct of data and shape.
func (n *node) tensorParts() (data, shape *node) {
	for _, k := range n.kids {
		switch {
		case n.shape != shapeStruct || k.lists() != 1:
		case k.name == "data":
			data = k
		case k.name == "shape" && k.kids[0].leaf.scalar.family() == "integer":
			shape = k
		}
	}
	return data, shape
}

// arrays reports whether the values of the column are arrays, unless they are ragged or have nulls.
func (n *node) arrays() bool { return n.tensor != nil || n.lists() > 0 }

// setTensors sets the tensors of columns by the schema of Arrow, and by the features that the file
// states.
func (f *parquetFile) setTensors(schema *arrow.Schema, stated map[string]json.RawMessage) {
	if schema != nil {
		for _, field := range schema.Fields() {
			n := f.columnNamed(field.Name)
			if n == nil {
				continue
			}
			name, _ := field.Metadata.GetValue("ARROW:extension:name")
			meta, _ := field.Metadata.GetValue("ARROW:extension:metadata")
			if n.tensor, n.unread = n.tensorOf(name, meta); n.tensor == nil && n.unread == nil && n.lists() > 0 {
				n.tensor = fixedLists(field.Type)
			}
			// of which Parquet has none
			if t, ok := field.Type.(*arrow.DurationType); ok && n.shape == shapeScalar && n.leaf.scalar == wholeNumber {
				n.leaf.scalar = durationOf(t, true)
			}
		}
	}
	for _, n := range f.columns {
		var said struct {
			Type  string `json:"_type"`
			Shape []*int `json:"shape"`
		}
		if n.tensor != nil || json.Unmarshal(stated[n.name], &said) != nil || !strings.HasPrefix(said.Type, "Array") ||
			len(said.Shape) != n.lists() {
			continue
		}
		var shape []int
		for _, dim := range said.Shape {
			if dim == nil {
				dim = new(int)
				*dim = -1
			}
			shape = append(shape, *dim)
		}
		n.tensor = nested(shape)
	}
	var forms []string
	for _, n := range f.columns {
		if n.tensor != nil {
			forms = append(forms, fmt.Sprintf("%q %+v", n.name, *n.tensor))
		}
	}
	f.forms = strings.Join(forms, " ")
}

// columnNamed returns the only column of a name.
func (f *parquetFile) columnNamed(name string) (found *node) {
	for _, n := range f.columns {
		if n.name == name {
			if found != nil {
				return nil
			}
			found = n
		}
	}
	return found
}

// fixedLists returns the shape that lists of fixed sizes state, nil if the values tell as much.
func fixedLists(t arrow.DataType) *tensor {
	var shape []int
	for {
		list, ok := plainType(t).(arrow.ListLikeType)
		if _, isMap := list.(*arrow.MapType); !ok || isMap {
			return nested(shape)
		}
		dim := -1
		if fixed, ok := list.(*arrow.FixedSizeListType); ok {
			dim = int(fixed.Len())
		}
		shape, t = append(shape, dim), list.Elem()
	}
}

// nested returns the shape of lists in lists, nil if it says nothing of empty ones.
func nested(shape []int) *tensor {
	if len(shape) < 2 || len(shape) > maxDims || shape[0] > 0 && !slices.ContainsFunc(shape[1:],
		func(dim int) bool { return dim < 1 }) {
		return nil
	}
	if !slices.ContainsFunc(shape[1:], func(dim int) bool { return dim > 0 }) {
		return nil
	}
	return &tensor{shape: shape, dims: len(shape)}
}

// arrowSchema returns the schema of Arrow that its writers put into the metadata of a Parquet file,
// nil if there is none that can be read.
func arrowSchema(text string) (schema *arrow.Schema) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < 8 {
		return nil
	}
	_ = protect(func() error { // one that cannot be read says nothing
		lead, length := prefix(b)
		if length > int64(len(b))-lead {
			return nil
		}
		head := b[lead : lead+length]
		t := ipcTable(head)
		fields, ok := ipcChild(&t, 8)
		if !ok || t.GetByteSlot(6, 0) != ipcSchema || ipcFields(&fields) != nil {
			return nil
		}
		in := &arrowReader{list: []message{{kind: ipcSchema, head: head}}}
		schema, err = in.restart()
		return err
	})
	return schema
}

// feature returns the feature of arrays of these values.
func (t *tensor) feature(of *kinds.Feature, dtype string) *kinds.Feature {
	if t.flat && t.dims >= 2 && t.dims <= 5 && !slices.Contains(t.shape, 0) {
		return kinds.Array(dtype, t.logical(t.shape))
	}
	if t.dims < 0 {
		return nil
	}
	for range t.dims {
		of = kinds.List(of)
	}
	return of
}

// logical returns the shape of the array whose stored values have the shape.
func (t *tensor) logical(stored []int) []int {
	if t.order == nil {
		return stored
	}
	out := make([]int, len(stored))
	for i, d := range t.order {
		out[i] = stored[d]
	}
	return out
}

// stored returns the shape of the stored values of a row, by the lengths of its lists.
func (t *tensor) stored(lengths []int) ([]int, error) {
	switch {
	case t == nil:
		return lengths, nil
	case t.flat:
		count := 1
		for _, dim := range t.shape {
			count *= dim
		}
		if count != lengths[0] {
			return nil, fmt.Errorf("it has %d values, and its type states the shape %v", lengths[0], t.shape)
		}
		return t.shape, nil
	}
	if at := slices.Index(lengths, 0); at >= 0 { // what is below an empty list does not tell
		lengths = slices.Clone(lengths)
		for i := at + 1; i < len(lengths); i++ {
			lengths[i] = max(t.shape[i], 0)
		}
	}
	return lengths, nil
}

// appendHeader appends the header of the array.
func (t *tensor) appendHeader(dst []byte, dtype string, stored []int) []byte {
	if t != nil {
		stored = t.logical(stored)
	}
	return npy.AppendHeader(dst, dtype, stored...)
}

// arrange brings stored values of size bytes into the order of the array.
func (t *tensor) arrange(values []byte, size int, stored []int) {
	if t == nil || t.order == nil || len(values) == 0 {
		return
	}
	steps := make([]int, len(stored)) // between the elements of a dimension
	step := size
	for i := len(stored) - 1; i >= 0; i-- {
		steps[i], step = step, step*stored[i]
	}
	from := slices.Clone(values)
	shape, at := t.logical(stored), make([]int, len(stored))
	off := 0
	for to := 0; to < len(values); to += size {
		copy(values[to:to+size], from[off:])
		for i := len(at) - 1; i >= 0; i-- {
			step := steps[t.order[i]]
			if at[i]++; at[i] < shape[i] {
				off += step
				break
			}
			off -= step * (at[i] - 1)
			at[i] = 0
		}
	}
}

// variable appends a struct of data and shape as a .npy file. ok is false if it has nulls.
func (a *assembly) variable(dst []byte) (out []byte, ok bool, err error) {
	data, shape := a.root.tensorParts()
	if data == nil || shape == nil {
		return dst, false, nil
	}
	values, dims := a.lead(data), a.lead(shape)
	whole := func(e *entries, n *node) bool {
		if len(e.defs) == 1 && e.defs[0] == n.def { // empty
			return true
		}
		return len(e.defs) == len(e.nums)+len(e.ends) && len(e.defs) > 0
	}
	if !whole(values, data) || !whole(dims, shape) {
		return dst, false, nil
	}
	stored := make([]int, 0, len(dims.nums))
	for _, u := range dims.nums {
		stored = append(stored, int(shape.kids[0].leaf.scalar.integer(value{u: u})))
	}
	t := a.root.tensor
	count, product := len(values.nums)+len(values.ends), 1
	fits := sane(stored) && (t.dims < 0 || t.dims == len(stored))
	for _, dim := range stored {
		product *= max(dim, 0)
		fits = fits && product <= math.MaxInt32
	}
	if !fits || product != count {
		return dst, false, fmt.Errorf("it has %d values, and states the shape %v", count, stored)
	}
	s := data.kids[0].leaf.scalar
	name, size := s.dtype()
	dst = t.appendHeader(dst, name, stored)
	begin := len(dst)
	for i := range count {
		v, _ := values.value(i)
		dst = s.appendRaw(dst, v)
	}
	t.arrange(dst[begin:], size, stored)
	return dst, true, nil
}

// same reports whether all rows of both have one shape, if the rows of either have.
func (t *tensor) same(with *tensor) bool {
	switch {
	case t == nil || with == nil:
		return t == with
	case t.shape == nil || with.shape == nil:
		return false
	}
	return t.flat == with.flat && slices.Equal(t.shape, with.shape) && slices.Equal(t.order, with.order)
}

// String returns the shape as errors show it.
func (t *tensor) String() string {
	switch {
	case t.flat:
		return fmt.Sprintf("the shape %v", t.logical(t.shape))
	case t.dims >= 0:
		return fmt.Sprintf("%d dimensions", t.dims)
	}
	return "any shape"
}
