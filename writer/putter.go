package writer

// putter seals and commits shards, one at a time and in order, while the next one is being
// streamed. The first shard is a claim: of two writers into one place the second stops there.
type putter struct {
	line *pipeline
	ch   chan *openShard
	done chan struct{}
}

// newPutter returns a putter that calls seal before it commits a shard, and stored, if not nil,
// after it. A shard that seal fails for is aborted.
func newPutter(line *pipeline, puts *puts, seal func(*openShard) error, stored func(samples int64)) *putter {
	p := &putter{line: line, ch: make(chan *openShard), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for s := range p.ch {
			err := line.err()
			if err == nil {
				err = seal(s)
			}
			if err != nil {
				_ = s.abort() // the first failure is reported
			} else if err = puts.shard(line.ctx, s); err == nil && stored != nil {
				stored(int64(s.samples))
			}
			line.fail(err)
		}
	}()
	return p
}

func (p *putter) send(s *openShard) error {
	select {
	case p.ch <- s:
		return nil
	case <-p.line.ctx.Done():
		_ = s.abort()
		return p.line.err()
	}
}

// wait ends the goroutine; all shards sent have been committed or dropped.
func (p *putter) wait() {
	close(p.ch)
	<-p.done
}
