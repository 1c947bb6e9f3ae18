package mix

// Position returns where the next batch begins, before drop or steps left out move it on.
func (c *Cursor) Position() uint64 { return c.position }
