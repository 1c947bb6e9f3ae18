package parquet

import (
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// TestEmptyIsNotNull: a value of no bytes is a value, also in an array that has no bytes at all.
func TestEmptyIsNotNull(t *testing.T) {
	for _, of := range []arrow.BinaryDataType{arrow.BinaryTypes.Binary, arrow.BinaryTypes.String} {
		b := array.NewBinaryBuilder(memory.DefaultAllocator, of)
		b.AppendValues([][]byte{{}, {}}, nil)
		made := b.NewArray()
		data := array.NewData(of, 2, []*memory.Buffer{nil, made.Data().Buffers()[1], nil}, nil, 0, 0)
		if v := cellValue(array.MakeFromData(data), 1); v.b == nil || len(v.b) > 0 {
			t.Errorf("%v: %#v", of, v)
		}
	}
}
