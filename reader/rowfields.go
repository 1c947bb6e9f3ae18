package reader

import "github.com/shardtool/shardtool/format/stacked"

// Rows is whether batches of stacked data deliver arrays, and who copies them.
type Rows int

const (
	// NoRows: batches have Samples.
	NoRows Rows = iota
	// RowsReady: the rows of a batch are copied into memory of the batch before Next returns it, by
	// processors that are idle.
	RowsReady
	// RowsInPlace: the rows stay in their blocks until Batch.CopyRows copies them into the caller's
	// memory, or Batch.Rows into memory of the batch.
	RowsInPlace
)

// RowField describes an array of Batch.Rows.
type RowField struct {
	// Name is that of the field.
	Name string
	// DType is the element type as NumPy writes it, little-endian, such as <u2. Shape is that of one
	// row.
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
