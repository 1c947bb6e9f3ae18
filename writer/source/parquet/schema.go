package parquet

import (
	"fmt"
	"slices"
	"strings"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// shape is how a node of the schema nests values.
type shape int

const (
	shapeScalar shape = iota
	shapeStruct
	shapeList
	shapeMap
)

// leafType is the type of a leaf, which the format calls a column.
type leafType struct {
	scalar   scalar
	physical pq.Type
}

// node is a column or part of one. Lists and maps replace the groups that encode them. The levels
// of values are decoded by it.
type node struct {
	name  string
	shape shape
	// def is the definition level from which the node is not null. For lists and maps, elem is the
	// definition level from which there is an element, and rep the repetition level of all elements
	// but the first.
	def, elem, rep int16
	kids           []*node
	// first and last are the numbers of its leaves in the file.
	first, last int
	leaf        leafType
	tensor      *tensor // of a column whose type states the shape of its arrays
	unread      error   // why its type is not read
}

// columns returns the top-level columns of a schema.
func columns(s *schema.Schema) []*node {
	b := builder{}
	root := s.Root()
	list := make([]*node, root.NumFields())
	for i := range list {
		list[i] = b.node(root.Field(i), 0, 0)
	}
	return list
}

type builder struct{ leaves int }

// node converts a node below levels def and rep.
func (b *builder) node(n schema.Node, def, rep int16) *node {
	switch n.RepetitionType() {
	case pq.Repetitions.Optional:
		def++
	case pq.Repetitions.Repeated: // a list without the usual groups: neither it nor its elements are null
		list := &node{name: n.Name(), shape: shapeList, def: def, elem: def + 1, rep: rep + 1, first: b.leaves}
		list.kids = []*node{b.content(n, def+1, rep+1)}
		list.last = b.leaves - 1
		return list
	}
	return b.content(n, def, rep)
}

// content converts a node whose own repetition is already counted.
func (b *builder) content(n schema.Node, def, rep int16) *node {
	out := &node{name: n.Name(), def: def, first: b.leaves}
	group, ok := n.(*schema.GroupNode)
	if !ok {
		leaf := n.(*schema.PrimitiveNode)
		out.leaf = leafType{scalarOf(leaf), leaf.PhysicalType()}
		out.last = b.leaves
		b.leaves++
		return out
	}
	if inner, isMap := repeatedChild(group); inner != nil {
		out.elem, out.rep = def+1, rep+1
		entry, ok := inner.(*schema.GroupNode)
		switch {
		case isMap && ok && entry.NumFields() == 2:
			out.shape = shapeMap
			out.kids = []*node{b.node(entry.Field(0), def+1, rep+1), b.node(entry.Field(1), def+1, rep+1)}
			out.last = b.leaves - 1
			return out
		case !isMap || ok && entry.NumFields() == 1: // a map without values is a list of its keys
			out.shape = shapeList
			element := inner
			// Older writers omit the group around an element. The format specifies how to recognise
			// them.
			if ok && entry.NumFields() == 1 && inner.Name() != "array" && inner.Name() != n.Name()+"_tuple" {
				out.kids = []*node{b.node(entry.Field(0), def+1, rep+1)}
			} else {
				out.kids = []*node{b.content(element, def+1, rep+1)}
			}
			out.last = b.leaves - 1
			return out
		}
	}
	out.shape = shapeStruct
	for i := range group.NumFields() {
		out.kids = append(out.kids, b.node(group.Field(i), def, rep))
	}
	out.last = b.leaves - 1
	return out
}

// repeatedChild returns the repeated node of a list or map, or nil if the group is neither.
func repeatedChild(g *schema.GroupNode) (inner schema.Node, isMap bool) {
	_, list := g.LogicalType().(schema.ListLogicalType)
	_, logicalMap := g.LogicalType().(schema.MapLogicalType)
	converted := g.ConvertedType()
	isMap = logicalMap || converted == schema.ConvertedTypes.Map || converted == schema.ConvertedTypes.MapKeyValue
	if !list && !isMap && converted != schema.ConvertedTypes.List || g.NumFields() != 1 {
		return nil, false
	}
	if inner = g.Field(0); inner.RepetitionType() != pq.Repetitions.Repeated {
		return nil, false
	}
	return inner, isMap
}

// String returns the type as Arrow writes it.
func (n *node) String() string {
	if t := n.tensor; t != nil && (t.flat || t.shape == nil) {
		return fmt.Sprintf("tensor<%v> of %s", n.tensorScalar(), t)
	}
	switch n.shape {
	case shapeList:
		return "list<" + n.kids[0].String() + ">"
	case shapeMap:
		return "map<" + n.kids[0].String() + ", " + n.kids[1].String() + ">"
	case shapeStruct:
		parts := make([]string, len(n.kids))
		for i, k := range n.kids {
			parts[i] = k.name + ": " + k.String()
		}
		return "struct<" + strings.Join(parts, ", ") + ">"
	}
	return n.leaf.scalar.String()
}

// unlike returns the type where it is compared with another, which may differ in the unit alone.
func (n *node) unlike(o *node) string {
	if n.shape == shapeScalar && n.leaf.scalar.exact != "" && n.String() == o.String() {
		return n.leaf.scalar.exact
	}
	return n.String()
}

// isNull reports whether the column has only nulls in this file, whatever its type.
func (n *node) isNull() bool { return n.shape == shapeScalar && n.leaf.scalar.class == classNull }

// other reports whether there are values of a type that is not read.
func (n *node) other() bool {
	return n.shape == shapeScalar && n.leaf.scalar.class == classOther || slices.ContainsFunc(n.kids, (*node).other)
}

// compatible reports whether one column may have these types in two files.
func compatible(a, b *node) bool {
	switch {
	case a.isNull() || b.isNull():
		return true
	case a.shape == shapeScalar && b.shape == shapeScalar:
		s, t := a.leaf.scalar, b.leaf.scalar
		return s.family() == t.family() && (s.unit == t.unit || s.class != classTime && !(s.duration() && t.duration()))
	}
	if s, t := a.tensor, b.tensor; s != nil && t != nil && s.dims == t.dims {
		return a.tensorScalar().String() == b.tensorScalar().String()
	}
	return a.String() == b.String()
}

// fileParts returns the leaves of a struct that holds a file: its bytes and its path. Hugging Face
// stores images and audio this way.
func (n *node) fileParts() (content, path *node) {
	if n.shape != shapeStruct || len(n.kids) != 2 {
		return nil, nil
	}
	for _, k := range n.kids {
		switch {
		case k.shape != shapeScalar:
		case k.name == "bytes" && (k.leaf.scalar.class == classBinary || k.leaf.scalar.class == classNull):
			content = k
		case k.name == "path" && (k.leaf.scalar.class == classText || k.leaf.scalar.class == classNull):
			path = k
		}
	}
	if content == nil || path == nil {
		return nil, nil
	}
	return content, path
}

// maps reports whether the node has a map whose keys are strings.
func (n *node) maps() bool {
	return n.shape == shapeMap && n.kids[0].shape == shapeScalar && n.kids[0].leaf.scalar.class == classText ||
		slices.ContainsFunc(n.kids, (*node).maps)
}

// isFiles reports whether the node is a list of files.
func (n *node) isFiles() bool {
	if n.shape != shapeList {
		return false
	}
	content, _ := n.kids[0].fileParts()
	return content != nil
}

// lists returns the number of lists around a number, or 0 if there is another value in them.
func (n *node) lists() int {
	depth := 0
	for n.shape == shapeList {
		n = n.kids[0]
		depth++
	}
	if name, _ := n.leaf.scalar.dtype(); n.shape != shapeScalar || name == "" {
		return 0
	}
	return depth
}
