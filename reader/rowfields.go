package reader

import "github.com/shardtool/shardtool/internal/format/stacked"

// RowField describes an array of Batch.Rows.
type RowField struct {
	// Name is the name of the field.
	Name string
	// DType is the element type as NumPy writes it, little-endian, such as <u2. Shape is the shape of
	// one row.
	DType string
	Shape []int64
	// Stride is the length of a row in bytes.
	Stride int
}

// rowFields describes the arrays of a layout.
func rowFields(l *stacked.Layout) (fields []RowField) {
	for i := range l.Fields {
		f := &l.Fields[i]
		fields = append(fields, RowField{f.Name, f.DType, f.Shape, int(f.Row())})
	}
	return fields
}
