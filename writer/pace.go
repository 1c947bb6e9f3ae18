package writer

import (
	"context"
	"sync"
	"time"
)

// pace limits how many blocks are in the pipeline and how many of them are being read. Payloads in
// the page cache cost processor time alone: one reader for each worker is enough, and few blocks
// stay in the processor's caches. Where each payload has a latency, as on network file systems and
// object stores, many are read at once. It is safe for concurrent use.
type pace struct {
	workers int

	mu       sync.Mutex
	changed  chan struct{} // closed when a block leaves or the limits rise
	underway int           // blocks in the pipeline
	reading  int           // blocks
	average  time.Duration // of reading a payload, over the last few dozen
	far      bool
}

const (
	// farReads is how many more blocks are read at once when payloads are far.
	farReads = 64
	// farLatency is the average time of a payload above which it is far. A payload on this machine
	// takes some ten microseconds from the page cache and some hundred from a disk.
	farLatency = 300 * time.Microsecond
)

func newPace(workers int) *pace { return &pace{workers: workers, changed: make(chan struct{})} }

// limits returns the most blocks that may be in the pipeline and being read. The caller holds mu.
func (p *pace) limits() (underway, reading int) {
	near, far := p.most()
	if p.far {
		return far, p.readers()
	}
	return near, p.workers
}

// most is the most blocks in the pipeline when payloads are near, and when they are far.
func (p *pace) most() (near, far int) {
	return 2*p.workers + 2, 2*p.workers + 2 + farReads
}

// readers is the most goroutines that can read at once.
func (p *pace) readers() int { return p.workers + farReads }

func (p *pace) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// take waits until a count is below its limit, and adds one to it.
func (p *pace) take(ctx context.Context, count *int, limit func() int) error {
	for {
		p.mu.Lock()
		ok, changed := *count < limit(), p.changed
		if ok {
			*count++
		}
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin waits for room for one more block in the pipeline; end gives the room back.
func (p *pace) begin(ctx context.Context) error {
	return p.take(ctx, &p.underway, func() int { most, _ := p.limits(); return most })
}

func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underway--
	p.wake()
}

// read runs f, which reads that many payloads, once there is room for one more reader.
func (p *pace) read(ctx context.Context, payloads int, f func() error) error {
	if err := p.take(ctx, &p.reading, func() int { _, most := p.limits(); return most }); err != nil {
		return err
	}
	begin := time.Now()
	err := f()
	p.book(time.Since(begin), payloads)
	return err
}

// book updates the average time of a payload. Reading many at once makes each slower, so far
// payloads count as far until the average falls to a tenth of farLatency.
func (p *pace) book(took time.Duration, payloads int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading--
	each := took / time.Duration(payloads)
	weight := time.Duration(min(payloads, 32))
	p.average += (each - p.average) * weight / 64
	switch {
	case p.average > farLatency:
		p.far = true
	case p.average < farLatency/10:
		p.far = false
	}
	p.wake()
}
