package writer

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
)

// pipeline carries blocks from the caller of Write to the store:
//
//	Write ── read ──> readers (payloads) ──┐ filled
//	  ├───── work ──────────────────────> workers (hash, compress) ──┐ frames
//	  └───── order ────────────────────────────────────────────────> emitter ──> putter
//
// The first error sticks and stops all of it.
type pipeline struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	group  sync.WaitGroup

	// memory bounds the bytes in flight by most. Only the layout takes from it, in order, and only
	// the emitter gives back, in order, so the block that is needed next always has its share.
	memory *semaphore.Weighted
	most   int64
	pace   *pace
	free   chan *block // blocks to use again
	// read, work and order have room for every block that the pace admits, so sending never waits.
	read, work, order chan *block
}

// newPipeline makes a pipeline whose goroutines do not run yet. It outlives ctx: the context of
// New may end before the first Write, and each call has its own.
func newPipeline(ctx context.Context, opt *Options) *pipeline {
	p := &pipeline{memory: semaphore.NewWeighted(opt.Memory), most: opt.Memory, pace: newPace(opt.Workers)}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	near, far := p.pace.most()
	p.free = make(chan *block, near+1)
	p.read, p.work, p.order = make(chan *block, far), make(chan *block, far), make(chan *block, far)
	return p
}

// start starts the readers, the workers and emit, which takes the blocks of order. skip is called
// for each sample that cannot be read; nil makes that an error.
func (p *pipeline) start(opt *Options, pool *buffers, skip func(*SampleError), emit func()) {
	for range p.pace.readers() {
		p.group.Go(func() {
			for b := range p.read {
				b.readPayloads(p.ctx, p.pace, skip)
			}
		})
	}
	lengths := opt.lengths()
	for range opt.Workers {
		p.group.Go(func() {
			enc := newEncoder(opt, pool)
			defer enc.enc.Close()
			worker := &packer{ctx: p.ctx, enc: enc, lengths: lengths, skip: skip}
			for b := range p.work {
				worker.process(b)
			}
		})
	}
	p.group.Go(emit)
}

// send passes a block on once it has cost bytes of the memory, or all of it if that is less, and
// the pace has a place.
func (p *pipeline) send(ctx context.Context, b *block, cost int64) error {
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(p.ctx, func() { stop(context.Cause(p.ctx)) })()
	b.taken = min(cost, p.most)
	err := p.memory.Acquire(wait, b.taken)
	if err == nil {
		err = p.pace.begin(wait)
	}
	if err != nil {
		p.fail(context.Cause(wait))
		return p.err()
	}
	if len(b.fills) > 0 {
		b.filled = make(chan struct{})
		p.read <- b
	}
	if b.adopt == nil {
		p.work <- b
	}
	p.order <- b
	return nil
}

// done gives back what a written block held and keeps the block for the next use.
func (p *pipeline) done(b *block, blockSize int64) {
	p.memory.Release(b.taken)
	p.pace.end()
	b.shrink(blockSize)
	select {
	case p.free <- b:
	default:
	}
}

// spare returns a block that was used before, or a new one.
func (p *pipeline) spare() *block {
	select {
	case b := <-p.free:
		return b
	default:
		return &block{}
	}
}

// fail makes err stick, unless another error did, and stops the pipeline.
func (p *pipeline) fail(err error) {
	if err != nil {
		p.cancel(err)
	}
}

// err returns the error that stuck.
func (p *pipeline) err() error { return context.Cause(p.ctx) }

// stop ends all goroutines once they have taken what was sent.
func (p *pipeline) stop() {
	close(p.read)
	close(p.work)
	close(p.order)
	p.group.Wait()
}

var (
	errClosed  = errors.New("used after Close or Abort")
	errAborted = errors.New("aborted")
)
