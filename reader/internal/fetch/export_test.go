package fetch

// MostHeld returns the most bytes of buffers that a pipeline has held at any time.
func (p *Pipeline) MostHeld() int64 { return p.buffers.pool.Most() }
