package parquet

// Units returns the number of row groups that hold rows.
func Units(p *Rows) int { return len(p.Splitter.(*rowSource).units()) }

// Forms reports whether the fingerprint says that columns keep their form.
func Forms(src *Rows) bool { return src.Splitter.(*rowSource).plan.forms() }
