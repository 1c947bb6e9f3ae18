package lines

import (
	"context"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/writer"
)

// inFlight bounds the bytes of the chunks in flight. A longer chunk is processed alone.
const inFlight = 64 << 20

// pipeline reads, cuts and parses files from a place on.
type pipeline struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	free   chan *chunk
	work   chan *chunk
	order  chan *chunk
	memory *semaphore.Weighted
}

func (s *lineSource) start(at place) *pipeline {
	ctx, cancel := context.WithCancel(context.Background())
	n := s.plan.opt.Workers + 3
	p := &pipeline{cancel: cancel, free: make(chan *chunk, n), work: make(chan *chunk, n), order: make(chan *chunk, n),
		memory: semaphore.NewWeighted(inFlight)}
	for range n {
		p.free <- &chunk{ready: make(chan struct{}, 1)}
	}
	for range s.plan.opt.Workers {
		p.group.Go(func() {
			parser := newParser(s.plan)
			for c := range p.work {
				if ctx.Err() == nil {
					parser.chunk(c)
				}
				c.ready <- struct{}{}
			}
		})
	}
	p.group.Go(func() {
		defer close(p.order)
		defer close(p.work)
		s.produce(ctx, p, at)
	})
	return p
}

func (p *pipeline) stop() {
	p.cancel()
	p.group.Wait()
}

// release recycles a chunk whose samples have been returned.
func (p *pipeline) release(c *chunk) {
	p.memory.Release(c.cost)
	c.reset()
	p.free <- c
}

// produce sends the chunks of all files. It sends an error as a chunk.
func (s *lineSource) produce(ctx context.Context, p *pipeline, at place) {
	for at.file < len(s.files) && (at.file < s.end.file || at.file == s.end.file && s.end.off > 0) {
		if err := s.produceFile(ctx, p, at); err != nil {
			if ctx.Err() != nil {
				return
			}
			c := &chunk{err: fmt.Errorf("%s: %w", s.files[at.file].Path, err), ready: make(chan struct{}, 1)}
			c.ready <- struct{}{}
			select {
			case p.order <- c:
			case <-ctx.Done():
			}
			return
		}
		at = s.begin(at.file + 1)
	}
}

func (s *lineSource) produceFile(ctx context.Context, p *pipeline, at place) error {
	f := s.files[at.file]
	obj, err := f.Reopen(ctx)
	if err != nil {
		return err
	}
	defer obj.Close()
	from := int64(0)
	if at.line == 0 || f.shard != nil { // earlier rows are counted, not parsed
		from, at = at.off, s.begin(at.file)
	}
	u, done, err := f.cutter(ctx, obj, f.Remote, at, s.plan.opt.MaxLine, s.plan.opt.chunk)
	if err != nil {
		return err
	}
	defer done()
	u.from = from
	if at.file == s.end.file {
		u.stop = s.end.off
	}
	for {
		var c *chunk
		select {
		case c = <-p.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.of = f
		if err := u.next(c); err != nil {
			if err == io.EOF {
				p.free <- c
				return nil
			}
			if u.at.line > 1 {
				err = fmt.Errorf("after line %d: %w", u.at.line-1, err)
			}
			return err
		}
		c.cost = min(int64(len(c.buf)), inFlight)
		if err := p.memory.Acquire(ctx, c.cost); err != nil {
			return err
		}
		p.order <- c // has room for all chunks
		p.work <- c
	}
}

// lineSource reads the rows of files.
type lineSource struct {
	mixed  []*hint.OptionError // attributes whose values are numbers and text
	files  []*textFile
	passed []string // files that are not read
	plan   *plan
	sum    format.Hash

	at, end  place
	whole    bool // whether Split was not called
	part     [2]int64
	over     bool
	run      *pipeline
	cur      *chunk // the chunk whose rows Next returns, from next on
	next     int
	isParsed bool
	lesson   int // lessons of cur that were learned
	learned  learned
	left     writer.RowsLeft // before at
	behind   writer.RowsLeft // after at, read so far
}

// begin returns the place of a file's first row.
func (s *lineSource) begin(file int) place {
	if file >= len(s.files) {
		return place{file: file}
	}
	at := s.files[file].first
	at.file = file
	return at
}
