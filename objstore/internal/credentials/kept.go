package credentials

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

const (
	// pause is the shortest time between two requests to a source while its last credentials still
	// serve, and the one for which credentials that the server refused are not asked for again.
	pause = 10 * time.Second
	// longest bounds one request to a source.
	longest = time.Minute
)

// Kept keeps the last credentials of a source, and is where all patience with sources is. It asks
// for others a while before they end; until those are there, it gives the last ones. A source that
// has given credentials once may give others later, whatever it answers meanwhile: its agent is
// restarted, its file is half written. So each failure after the first success is transient. Many
// goroutines may use it; the source is asked by one at a time.
type Kept[T any] struct {
	// Ask asks the source for credentials, which serve until end, or for ever if that is zero. again
	// reports that the server has refused the last ones.
	Ask func(ctx context.Context, again bool) (value T, end time.Time, err error)
	// Early is how long before their end others are asked for.
	Early time.Duration
	// Within is how long the source is asked again, if that is longer than the store's patience.
	Within time.Duration

	mu     sync.Mutex
	given  bool       // the source has given credentials
	drops  time.Time  // when Refuse dropped some
	stale  bool       // the server has refused the last ones
	value  T          // if given and not stale
	end    time.Time  // of value, or zero
	next   time.Time  // when others are asked for, or zero
	flight *flight[T] // whose credentials will be kept, or nil
	last   *flight[T] // the one that began last
}

// flight is a request to the source.
type flight[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Get returns credentials. It asks the source if there are none that serve, and returns when ctx
// ends.
func (k *Kept[T]) Get(ctx context.Context) (T, error) {
	k.mu.Lock()
	now := time.Now()
	value, serves := k.value, k.given && !k.stale && (k.end.IsZero() || now.Before(k.end))
	f := k.flight
	if f == nil && (!serves || !k.next.IsZero() && !now.Before(k.next)) {
		f = &flight[T]{done: make(chan struct{})}
		go k.fly(context.WithoutCancel(ctx), f, k.last, k.stale)
		k.flight, k.last = f, f
	}
	k.mu.Unlock()
	if serves {
		return value, nil
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// Settle waits for the request to the source that is under way, if there is one, but no longer than
// ctx lasts.
func (k *Kept[T]) Settle(ctx context.Context) {
	k.mu.Lock()
	f := k.last
	k.mu.Unlock()
	if f == nil {
		return
	}
	select {
	case <-f.done:
	case <-ctx.Done():
	}
}

// fly asks the source, after the request before it has ended.
func (k *Kept[T]) fly(ctx context.Context, f, before *flight[T], again bool) {
	defer close(f.done)
	if before != nil {
		<-before.done
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var end time.Time
	f.value, end, f.err = k.Ask(ctx, again)
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.flight == f // else the server has refused the last ones meanwhile: these may be the same
	if kept {
		k.flight = nil
	}
	soon := time.Now().Add(pause)
	switch {
	case f.err == nil && kept:
		k.given, k.stale, k.value, k.end, k.next = true, false, f.value, end, time.Time{}
		if !end.IsZero() {
			if k.next = end.Add(-k.Early); k.next.Before(soon) { // some give their last token until it ends
				k.next = soon
			}
		}
	case f.err != nil && k.given:
		if kept {
			k.next = soon
		}
		transient := ranged.Transient{Err: f.err}
		if t, ok := errors.AsType[*ranged.Transient](f.err); ok {
			transient = *t
		}
		transient.Answered, transient.Within = true, k.Within
		f.err = &transient
	}
}

// Refuse drops the last credentials if they are those that the server has refused, and reports
// whether there are others, or may be. All requests that are refused at about the same time cause
// one request to the source. If that gives the same ones again, there are no others for a while.
func (k *Kept[T]) Refuse(refused func(T) bool) (others bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stale || !refused(k.value): // dropped, or replaced meanwhile
		return true
	case time.Since(k.drops) < pause:
		return false
	}
	k.drops = time.Now()
	k.drop()
	return true
}

// Drop drops the last credentials.
func (k *Kept[T]) Drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop()
}

func (k *Kept[T]) drop() { k.stale, k.flight = true, nil }
