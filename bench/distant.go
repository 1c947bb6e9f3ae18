package main

import (
	"context"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// distant is a store that answers after a while, over a line of a bounded rate, from files that are
// near: what a network does, with no processor used for it. It sends 64 requests at once, and 256
// where it is asked to, as the stores over networks do.
type distant struct {
	objstore.Store
	latency time.Duration
	rate    float64 // bytes a second

	mu      sync.Mutex
	free    time.Time // when the line is
	allowed int
	flying  int
	// seconds of requests in flight, since began
	sum   float64
	since time.Time
	began time.Time
}

func (d *distant) Traits() objstore.Traits {
	return objstore.Traits{Requests: 64, MostRequests: 256, Reserve: d.reserve}
}

func (d *distant) reserve(n int) (release func()) {
	d.allow(n)
	return func() { d.allow(-n) }
}

func (d *distant) allow(delta int) {
	d.mu.Lock()
	d.allowed += delta
	d.mu.Unlock()
}

// fly counts a request that begins, or ends.
func (d *distant) fly(delta int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.sum += float64(d.flying) * now.Sub(d.since).Seconds()
	d.flying, d.since = d.flying+delta, now
}

// mean is how many requests were in flight since the last call, in the mean.
func (d *distant) mean() float64 {
	d.fly(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	mean := d.sum / max(d.since.Sub(d.began).Seconds(), 1e-9)
	d.sum, d.began = 0, d.since
	return mean
}

// due returns when n bytes arrive that are requested now: after all bytes requested before.
func (d *distant) due(n int) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first := time.Now().Add(d.latency); d.free.Before(first) {
		d.free = first
	}
	d.free = d.free.Add(time.Duration(float64(n) / d.rate * float64(time.Second)))
	return d.free
}

func (d *distant) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := d.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &distantObject{o, d}, nil
}

type distantObject struct {
	objstore.Object
	d *distant
}

func (o *distantObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.d.fly(1)
	defer o.d.fly(-1)
	wait := time.NewTimer(time.Until(o.d.due(len(p))))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return o.Object.ReadAt(ctx, p, off)
}
