package reader

import (
	"sync/atomic"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// tuning controls how far ahead a stream reads.
type tuning struct {
	ahead  *tune.Ahead
	load   tune.Load
	gate   *tune.Gate   // of requests; nil where the workers bound reading
	turns  fetch.Turns  // at decoding
	told   atomic.Bool  // Waits was called
	meters *tune.Meters // nil where nothing is tuned
	stores []asked      // owned by the tuner goroutine
}

// asked is a store that can be asked to send more requests.
type asked struct {
	reserve func(n int) (release func())
	sends   int    // requests that the stores of its source send anyway
	extra   int    // requests reserved for this stream
	release func() // of the reservation; nil for none
}

func elastics(inputs []*input) (stores []asked) {
	for _, in := range inputs {
		if in.share == 0 {
			continue
		}
		for i := range in.parts {
			of := in.parts[i].source
			if reserve := objstore.TraitsOf(of.Store).Reserve; reserve != nil {
				stores = append(stores, asked{reserve: reserve, sends: in.requests(0)})
			}
		}
	}
	return stores
}

// ask reserves the requests that this stream needs beyond the requests that each store sends
// anyway. It replaces earlier reservations. All requests may be for one source.
func (t *tuning) ask(requests int) {
	for i := range t.stores {
		e := &t.stores[i]
		extra := max(requests-e.sends, 0)
		if extra == e.extra {
			continue
		}
		if e.release != nil {
			e.release()
			e.release = nil
		}
		if e.extra = extra; extra > 0 {
			e.release = e.reserve(extra)
		}
	}
}
