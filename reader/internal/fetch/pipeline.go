package fetch

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// Pipeline runs jobs on several goroutines and yields their results in the order of the jobs.
//
//	jobs ──▶ dispatch: idle unit, memory ──▶ order (queue) ─────────────▶ consumer ──▶ memory, unit back
//	                                     ──▶ work ──▶ Worker ──▶ Unit.done
//
// The dispatcher takes units and memory in the order of the jobs. So the unit that the consumer
// waits for has all it needs, and nothing can wait in a circle. Goroutines pass units of some MiB
// to each other, never single samples.
type Pipeline struct {
	Source  *Source
	Pool    *ScratchPool
	Workers int
	Memory  int64 // bytes of blocks, stored and decoded
	// Requests is how many are kept in flight; 0 means as many as the store of the source allows by
	// itself.
	Requests int
	// KeepGoing and Check are passed to the workers. Without KeepGoing the first error ends the
	// iteration.
	KeepGoing bool
	Check     func(*Result) error

	flight  *Flight // of a remote store
	buffers *Buffers
	idle    chan *Unit
	work    chan *Unit
	order   chan *Unit
}

// Unit is a job on its way. It is valid until the next step of the iteration.
type Unit struct {
	Job     Job
	Results []Result

	plan Plan
	buf  []byte
	err  error         // of the order itself, in place of a job
	done chan struct{} // holds a token when the results are there
}

// workerMemory is the memory that a worker holds in addition to units.
const workerMemory = 1 << 20

// Run yields the units in order. When the loop ends, by a break too, all goroutines have ended. Run
// a Pipeline once.
func (p *Pipeline) Run(ctx context.Context, jobs iter.Seq2[Job, error]) iter.Seq2[*Unit, error] {
	return func(yield func(*Unit, error) bool) {
		ctx, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer end()
		// Two units a worker keep it busy while the consumer uses one; more would only push bytes out of
		// the processor's caches.
		ahead, goroutines := 2*p.Workers+1, p.Workers
		memory := p.Memory
		reserve := func(n int64) { memory -= min(n, memory/2) }
		if n := max(p.Requests, p.Source.Requests()); n > 0 {
			ahead, goroutines = n+ahead, n
			p.flight = NewFlight(&Turns{tune.NewGate(p.Workers), p.Pool}, p.Memory/4)
			reserve(p.Memory / 4)
		}
		reserve(int64(p.Workers) * workerMemory)
		p.buffers = NewBuffers(memory)
		p.idle, p.order = make(chan *Unit, ahead), make(chan *Unit, ahead)
		p.work = make(chan *Unit, ahead)
		for range ahead {
			p.idle <- &Unit{done: make(chan struct{}, 1)}
		}
		wg.Go(func() { p.dispatch(ctx, jobs) })
		for range goroutines {
			wg.Go(func() { p.serve(ctx) })
		}
		p.consume(ctx, yield)
	}
}

func (p *Pipeline) consume(ctx context.Context, yield func(*Unit, error) bool) {
	for ctx.Err() == nil {
		var u *Unit
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
		p.buffers.Put(u.buf)
		u.buf = nil
		p.idle <- u // has room for all
	}
	yield(nil, context.Cause(ctx))
}

// dispatch gives each job a unit and its memory.
func (p *Pipeline) dispatch(ctx context.Context, jobs iter.Seq2[Job, error]) {
	defer close(p.order)
	defer close(p.work)
	for j, err := range jobs {
		var u *Unit
		select {
		case u = <-p.idle:
		case <-ctx.Done():
			return
		}
		if err == nil {
			u.plan = j.Plan()
			if j.Whole {
				err = j.Fits(u.plan, p.Memory)
			}
		}
		if err == nil {
			if u.buf, err = p.buffers.Get(ctx, u.plan.Size); err != nil {
				return // ctx has ended: the consumer sees that itself
			}
		}
		u.Job, u.err, u.Results = j, err, u.Results[:0]
		p.order <- u // both have room for all units
		if err != nil {
			u.done <- struct{}{}
			return
		}
		p.work <- u
	}
}

// Fits returns an error for a block of several rows that is larger than the memory budget and would
// have to be held whole.
func (j *Job) Fits(need Plan, memory int64) error {
	if int64(need.Size) <= memory || j.To-j.From == 1 {
		return nil
	}
	err := fmt.Errorf("%w: the block has %d bytes, the memory budget is %d: raise it, or read its fields one by one",
		format.ErrTooLarge, need.Decoded, memory)
	return format.Place{Shard: j.Shard.Name, Block: j.Block, Offset: j.Offset}.Wrap(err)
}

// serve is one worker.
func (p *Pipeline) serve(ctx context.Context) {
	w := Worker{Flight: p.flight, KeepGoing: p.KeepGoing, Check: p.Check}
	if w.Flight == nil {
		w.Scratch = p.Pool.Get()
		defer func() { p.Pool.Put(w.Scratch) }()
	}
	for {
		select {
		case u, more := <-p.work:
			if !more {
				return
			}
			u.Results = w.Run(ctx, &u.Job, u.plan, u.buf, u.Results)
			u.done <- struct{}{}
			// With a worker on every core, nobody else runs until a worker has nothing to do, and then the
			// consumer has fallen behind. Let it and the dispatcher run now: they take microseconds.
			runtime.Gosched()
		case <-ctx.Done():
			return
		}
	}
}
