package parquet

import (
	"encoding/json"

	"github.com/shardtool/shardtool/internal/input/kinds"
)

// maxFeatures bounds the bytes of the features of all columns.
const maxFeatures = 16 << 20

// feature returns the feature of a column as JSON: the stated one, if the values of the column are
// of it, or the one that Hugging Face datasets give the column's type. It is empty where there is
// none.
func (n *node) feature(stated json.RawMessage) string {
	is := n.typeOf()
	of, err := kinds.ParseFeature(stated)
	content, _ := n.fileParts()
	if err == nil && is != nil {
		said, failed := of.Storage()
		stored, unknown := is.Storage()
		if failed == nil && unknown == nil && said.Holds(stored) && of.Media() == (content != nil) {
			is, content = of, nil
		}
	}
	if is == nil || content != nil {
		return ""
	}
	text := is.AppendJSON(nil)
	if of, err = kinds.ParseFeature(text); err == nil {
		_, err = of.Storage()
	}
	if err != nil {
		return ""
	}
	return string(text)
}

// typeOf returns the feature of a type, nil where datasets have none.
func (n *node) typeOf() *kinds.Feature {
	if t := n.tensor; t != nil {
		dtype := n.tensorScalar().String()
		return t.feature(kinds.Value(dtype), dtype)
	}
	switch n.shape {
	case shapeMap:
		return nil
	case shapeScalar:
		s := n.leaf.scalar
		switch {
		case s.class == classJSON:
			return &kinds.Feature{Class: "Json"}
		case s.class == classBSON || s.class == classUUID || s.class == classOther:
			return nil
		case s.exact != "":
			return kinds.Value(s.exact)
		}
		return kinds.Value(s.String())
	}
	out := &kinds.Feature{}
	for _, kid := range n.kids {
		part := kid.typeOf()
		if part == nil {
			return nil
		}
		if out.Parts = append(out.Parts, part); n.shape == shapeStruct {
			out.Names = append(out.Names, kid.name)
		}
	}
	if n.shape == shapeList {
		out.Class = "List"
	}
	return out
}
