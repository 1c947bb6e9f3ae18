package writer

import (
	"context"
	"sync"
	"time"
)

// pace says how many blocks are under way, and how many of them are being read. Where payloads come from the page cache, reading
// is a matter of the processor: a reader for each worker, and few blocks, which stay in the caches. Where each payload takes its
// time, as on network file systems and object stores, many are waited for at once. It is safe for concurrent use.
type pace struct {
	workers int

	mu       sync.Mutex
	changed  chan struct{} // closed when somebody leaves or the limits rise
	underway int           // blocks, from laid out to written
	reading  int           // blocks
	average  time.Duration // of reading a payload, the last some dozens
	far      bool
}

const (
	// farReads is how many payloads are waited for at once when each takes long.
	farReads = 64
	// farLatency is what a payload takes on average that does not come from this machine; near files are read in some ten
	// microseconds, by a disk in some hundred.
	farLatency = 300 * time.Microsecond
)

func newPace(workers int) *pace { return &pace{workers: workers, changed: make(chan struct{})} }

// limits are the most blocks under way and being read. mu is held.
func (p *pace) limits() (underway, reading int) {
	near, far := p.most()
	if p.far {
		return far, p.readers()
	}
	return near, p.workers
}

// most is how many blocks are under way at most when payloads are near, and when they are far.
func (p *pace) most() (near, far int) {
	return 2*p.workers + 2, 2*p.workers + 2 + farReads
}

// readers is the most goroutines that are of use.
func (p *pace) readers() int { return p.workers + farReads }

func (p *pace) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait calls try until it says yes.
func (p *pace) wait(ctx context.Context, try func() bool) error {
	for {
		p.mu.Lock()
		ok, changed := try(), p.changed
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

// begin waits for room for one more block under way; end says that one is done with.
func (p *pace) begin(ctx context.Context) error {
	return p.wait(ctx, func() bool {
		most, _ := p.limits()
		if p.underway >= most {
			return false
		}
		p.underway++
		return true
	})
}

func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underway--
	p.wake()
}

// read runs f, which reads so many payloads, when there is room.
func (p *pace) read(ctx context.Context, payloads int, f func() error) error {
	err := p.wait(ctx, func() bool {
		_, most := p.limits()
		if p.reading >= most {
			return false
		}
		p.reading++
		return true
	})
	if err != nil {
		return err
	}
	begin := time.Now()
	err = f()
	p.book(time.Since(begin), payloads)
	return err
}

// book learns what a payload took. Once many are read at once each takes longer, so what is far stays far until a payload takes a
// tenth of what it took to be far.
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
