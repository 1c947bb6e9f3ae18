package serve

import "github.com/shardtool/shardtool/reader"

// ChooseRows makes the stream of START deliver rows if the data is stacked and all columns are
// arrays of it.
func (q *StartRequest) ChooseRows(o *reader.StreamOptions) {
	if q.onlyArrays() {
		o.Rows, o.Tuning.RowsIf = true, q.inRows
	}
}

// onlyArrays reports whether all columns can be arrays with an NPY header in every sample. Numbers
// of stacked data are such arrays.
func (q *StartRequest) onlyArrays() bool {
	for i := range q.Columns {
		if c := &q.Columns[i]; c.Decode != "npy" && !c.isNumber() || c.Optional {
			return false
		}
	}
	return len(q.Columns) > 0
}

// isNumber reports whether the column has a number of 64 bits for each sample.
func (c *Column) isNumber() bool { return c.Decode == "int" || c.Decode == "float" }

// inRows reports whether rows have all columns.
func (q *StartRequest) inRows(fields []reader.RowField) bool {
	have := map[string]reader.RowField{}
	for _, f := range fields {
		have[f.Name] = f
	}
	for i := range q.Columns {
		c := &q.Columns[i]
		f, ok := have[c.Name]
		if !ok || c.isNumber() && (f.DType != c.Dtype || len(f.Shape) > 0) {
			return false
		}
	}
	return true
}

// rows makes the columns of rows.
func (c *columns) rows(fields []reader.RowField) {
	for i := range c.wanted {
		for _, f := range fields {
			if f.Name != c.wanted[i].Name {
				continue
			}
			shape := make([]int, len(f.Shape))
			for k, n := range f.Shape {
				shape[k] = int(n)
			}
			c.made[i] = column{kind: columnArray, typ: arrayType{Dtype: f.DType, Shape: shape}.json(), stride: f.Stride}
		}
	}
	c.inRows = len(fields) > 0
}

// gatherRows has the columns copy the rows of a batch when they are written.
func (c *columns) gatherRows(b *reader.Batch) {
	for i := range c.made {
		name := c.wanted[i].Name
		m := &c.made[i]
		m.flags, m.count = columnFixed, b.Len()
		m.copyRows = func(dst []byte) error { return b.CopyRows(dst, name) }
	}
}

// writeRows puts the pairs and the rows of a column into the region.
func (m *column) writeRows(dst []byte, at *place) error {
	for i := range m.count {
		putPair(dst[at.pairs+pairSize*i:], at.data+m.stride*i, m.stride)
	}
	return m.copyRows(dst[at.data : at.data+at.length])
}
