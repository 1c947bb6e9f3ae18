package parquet

// Units returns the number of row groups that hold rows.
func Units(p *Rows) int { return len(p.Splitter.(*rowSource).units()) }
