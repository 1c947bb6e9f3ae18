package proxy

import (
	"sync"
	"sync/atomic"
)

// Counts count what a proxy has seen and done since New, or since ResetCounts.
type Counts struct {
	// Methods is the traffic by HTTP method.
	Methods map[string]Traffic
	// MaxInFlight is the largest number of concurrent requests.
	MaxInFlight int64

	// The other fields count requests that met a fault.
	Resets, Lost, StalledHeaders, StalledBodies, Busy, Short, Cut, WrongRanges, HTML, Flips int64
}

// Traffic is the traffic of one method.
type Traffic struct {
	Requests int64
	// Up and Down are the bytes of the bodies of requests and answers.
	Up, Down int64
}

// Faults returns the number of requests that met a fault.
func (c Counts) Faults() int64 {
	return c.Resets + c.Lost + c.StalledHeaders + c.StalledBodies + c.Busy + c.Short + c.Cut + c.WrongRanges + c.HTML +
		c.Flips
}

// traffic is the counters behind Traffic.
type traffic struct{ requests, up, down atomic.Int64 }

type counters struct {
	mu       sync.Mutex
	methods  map[string]*traffic
	inFlight atomic.Int64
	most     atomic.Int64
	faults   [faults]atomic.Int64
}

func (c *counters) method(name string) *traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.methods[name]
	if t == nil {
		t = new(traffic)
		c.methods[name] = t
	}
	return t
}

func (c *counters) enter() {
	n := c.inFlight.Add(1)
	for {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (c *counters) leave() { c.inFlight.Add(-1) }

// Counts returns the counters. Requests in progress are counted as far as they have been handled.
func (p *Proxy) Counts() Counts {
	c := p.counters.Load()
	out := Counts{Methods: map[string]Traffic{}, MaxInFlight: c.most.Load()}
	c.mu.Lock()
	for name, t := range c.methods {
		out.Methods[name] = Traffic{t.requests.Load(), t.up.Load(), t.down.Load()}
	}
	c.mu.Unlock()
	for f, n := range map[fault]*int64{reset: &out.Resets, lost: &out.Lost, stallHeaders: &out.StalledHeaders,
		stallBody: &out.StalledBodies, busy: &out.Busy, short: &out.Short, cut: &out.Cut, wrongRange: &out.WrongRanges,
		html: &out.HTML, flip: &out.Flips} {
		*n = c.faults[f].Load()
	}
	return out
}

// ResetCounts sets all counters to 0. Requests in progress are counted in part before and in part
// after it.
func (p *Proxy) ResetCounts() { p.counters.Store(&counters{methods: map[string]*traffic{}}) }
