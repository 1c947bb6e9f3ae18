package reader

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"github.com/shardtool/shardtool/format"
)

// pipeline runs jobs on several goroutines and gives the results back in the order of the jobs. It does not care where
// the jobs come from.
//
//	jobs -> dispatch: idle unit, memory -> order (queue) -----------------> consumer -> memory, unit back
//	                                    -> work -> stage on each of Workers -> unit.done
//
// The dispatcher takes units and memory in the order of the jobs, so the unit that the consumer waits for has all it
// needs, and nothing can wait in a circle. A unit, some MiB, is what crosses between goroutines: never a sample.
type pipeline struct {
	d       *Dataset
	workers int
	memory  int64
	// keepGoing delivers errors as results and goes on; otherwise the first one ends the iteration.
	keepGoing bool
	check     func(*Frame) error
	flight    *flight // of a remote store

	buffers *buffers
	idle    chan *unit
	work    chan *unit
	order   chan *unit
}

// unit is a job on its way.
type unit struct {
	job
	plan    plan
	buf     []byte
	results []result
	err     error         // of the order itself, in place of a job
	done    chan struct{} // a token when results are there
}

// newPipeline makes a pipeline with the data set's options. Run it once.
func (d *Dataset) newPipeline() *pipeline {
	return &pipeline{d: d, workers: d.opts.Workers, memory: d.opts.Memory}
}

// run yields the units in order. A unit is valid until the next step of the loop. When the loop ends, by a break too, all
// goroutines have ended.
func (p *pipeline) run(ctx context.Context, jobs iter.Seq2[job, error]) iter.Seq2[*unit, error] {
	return func(yield func(*unit, error) bool) {
		ctx, end := p.d.scope(ctx)
		var wg sync.WaitGroup
		defer func() {
			if p.flight != nil {
				p.flight.land(p.d)
			}
		}()
		defer wg.Wait()
		defer end()
		// Two units a worker keep it busy while the consumer is at one; more would only push bytes out of the caches.
		ahead, goroutines := 2*p.workers+1, p.workers
		p.buffers = newBuffers(p.memory)
		if n := p.d.requests(); n > 0 {
			ahead, goroutines = n+ahead, n
			p.flight = p.d.newFlight(p.workers, p.memory/4)
			p.buffers.reserve(p.memory / 4)
		}
		p.idle, p.order = make(chan *unit, ahead), make(chan *unit, ahead)
		p.work = make(chan *unit, ahead)
		for range ahead {
			p.idle <- &unit{done: make(chan struct{}, 1)}
		}
		p.buffers.reserve(int64(p.workers) * fetchMost)
		wg.Go(func() { p.dispatch(ctx, jobs) })
		for range goroutines {
			wg.Go(func() { p.serve(ctx) })
		}
		p.consume(ctx, yield)
	}
}

func (p *pipeline) consume(ctx context.Context, yield func(*unit, error) bool) {
	for ctx.Err() == nil {
		var u *unit
		var more bool
		select {
		case u, more = <-p.order:
			if !more && ctx.Err() != nil {
				continue
			}
			if !more {
				return
			}
		case <-ctx.Done():
			continue
		}
		select {
		case <-u.done:
		case <-ctx.Done():
			continue
		}
		if u.err != nil {
			yield(nil, u.err)
			return
		}
		if !yield(u, nil) {
			return
		}
		p.buffers.put(u.buf)
		u.buf = nil
		p.idle <- u // has room for all
	}
	yield(nil, context.Cause(ctx))
}

// dispatch gives each job a unit and its memory.
func (p *pipeline) dispatch(ctx context.Context, jobs iter.Seq2[job, error]) {
	defer close(p.order)
	defer close(p.work)
	for j, err := range jobs {
		var u *unit
		select {
		case u = <-p.idle:
		case <-ctx.Done():
			return
		}
		if err == nil {
			u.plan = j.plan(p.d.joined())
			if j.whole {
				err = p.fits(&j, u.plan)
			}
		}
		if err == nil {
			if u.buf, err = p.buffers.get(ctx, u.plan.size); err != nil {
				return // ctx has ended: the consumer sees that itself
			}
		}
		u.job, u.err, u.results = j, err, u.results[:0]
		p.order <- u // both have room for all units
		if err != nil {
			u.done <- struct{}{}
			return
		}
		p.work <- u
	}
}

// fits refuses a block that would have to be held whole and is larger than the budget.
func (p *pipeline) fits(j *job, need plan) error {
	if int64(need.size) <= p.memory || j.to-j.from == 1 {
		return nil
	}
	err := fmt.Errorf("%w: the block has %d bytes, the memory budget is %d: raise it, or read its fields one by one",
		format.ErrTooLarge, need.decoded, p.memory)
	return format.Position(err, j.shard.Name, j.block, j.offset, "")
}

// serve is one worker.
func (p *pipeline) serve(ctx context.Context) {
	s := stage{d: p.d, flight: p.flight, keepGoing: p.keepGoing, check: p.check}
	if s.flight == nil {
		s.scratch = p.d.scratch.get()
		defer func() { p.d.scratch.put(s.scratch) }()
	}
	for {
		select {
		case u, more := <-p.work:
			if !more {
				return
			}
			u.results = s.run(ctx, &u.job, u.plan, u.buf, u.results)
			u.done <- struct{}{}
			// With a worker on every core nobody else gets one until a worker has nothing to do, which is when the
			// consumer has fallen behind: let it, and the dispatcher, run now. They take microseconds.
			runtime.Gosched()
		case <-ctx.Done():
			return
		}
	}
}
