package parquet

// Units returns the number of row groups that hold rows.
func Units(p *Parquet) int { return len(p.units()) }
