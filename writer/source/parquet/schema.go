package parquet

import (
	"fmt"
	"strings"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// shape is how a node of the schema holds values.
type shape int

const (
	shapeScalar shape = iota
	shapeStruct
	shapeList
	shapeMap
)

// leafType is the type of a leaf: of a column in the narrow sense of the format.
type leafType struct {
	scalar   scalar
	physical pq.Type
}

// node is a column or part of one, with lists and maps in place of the groups that the format makes them of. It is what the
// levels of values are read by.
type node struct {
	name  string
	shape shape
	// def is the definition level from which on it is not null; elem, of lists and maps, the one from which on there is an
	// element, and rep the repetition level of elements but the first.
	def, elem, rep int16
	kids           []*node
	// first and last number its leaves in the file.
	first, last int
	leaf        leafType
}

// columns are the top-level columns of a schema.
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

// node builds the node below levels def and rep.
func (b *builder) node(n schema.Node, def, rep int16) *node {
	switch n.RepetitionType() {
	case pq.Repetitions.Optional:
		def++
	case pq.Repetitions.Repeated: // a list without the groups of one: never null, its elements neither
		list := &node{name: n.Name(), shape: shapeList, def: def, elem: def + 1, rep: rep + 1, first: b.leaves}
		list.kids = []*node{b.content(n, def+1, rep+1)}
		list.last = b.leaves - 1
		return list
	}
	return b.content(n, def, rep)
}

// content builds a node whose own repetition has been dealt with.
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
		case !isMap:
			out.shape = shapeList
			element := inner
			// Older writers put the element where others put a group around it; the format says how to tell.
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

// repeatedChild is the repeated node that a list or map consists of, nil where the group is neither.
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

// String is the type as Arrow writes it.
func (n *node) String() string {
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

// isNull says that a column has no values in this file, whatever its type.
func (n *node) isNull() bool { return n.shape == shapeScalar && n.leaf.scalar.class == classNull }

// compatible says whether two files may have these types for one column.
func compatible(a, b *node) bool {
	switch {
	case a.isNull() || b.isNull():
		return true
	case a.shape == shapeScalar && b.shape == shapeScalar:
		return a.leaf.scalar.family() == b.leaf.scalar.family()
	}
	return a.String() == b.String()
}

// fileParts are the leaves of a struct that holds a file: its bytes and the path it had. Hugging Face stores images and audio so.
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

// tensor says how many lists are around a number; 0 where it is none.
func (n *node) tensor() int {
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

// describe lists columns for an error.
func describe(cols []*node) string {
	names := make([]string, 0, len(cols))
	for i, c := range cols {
		if i == 20 {
			names = append(names, fmt.Sprintf("and %d more", len(cols)-i))
			break
		}
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
