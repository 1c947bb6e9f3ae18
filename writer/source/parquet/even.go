package parquet

// even is Rows.Even.
func (p *rowSource) even() bool {
	fields := 0
	for _, c := range p.plan.columns {
		if !c.Field || c.form == formAbsent {
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
		n := f.column(c.Name)
		if n == nil || n.isNull() || !n.tensor.same(c.first.tensor) {
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
