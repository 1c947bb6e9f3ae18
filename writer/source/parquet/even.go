package parquet

import (
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

// even is Rows.Even.
func (p *rowSource) even() bool {
	fields := 0
	for _, c := range p.plan.columns {
		if !c.field || c.form == formAbsent {
			continue
		}
		fields++
		if c.form != formNumpy || !c.even(p.files) {
			return false
		}
	}
	return fields > 0
}

// even reports whether the column has the same number of values in each row of all files.
func (c *column) even(files []*parquetFile) bool {
	values := int64(0)
	for _, f := range files {
		n := f.column(c.name)
		if n == nil || n.isNull() {
			return false
		}
		each := f.each[n.first]
		if each < 1 || values > 0 && each != values {
			return false
		}
		values = each
	}
	return values > 0
}

// valuesEach returns, by leaf, how many values each row has, or 0. Row groups without rows do not
// count.
func valuesEach(meta *metadata.FileMetaData) []int64 {
	each := make([]int64, meta.Schema.NumColumns())
	for k := range each {
		for _, g := range meta.RowGroups {
			rows := g.GetNumRows()
			if rows == 0 {
				continue
			}
			values := g.Columns[k].GetMetaData().GetNumValues()
			if values%rows != 0 || each[k] > 0 && each[k] != values/rows {
				each[k] = 0
				break
			}
			each[k] = values / rows
		}
	}
	return each
}
