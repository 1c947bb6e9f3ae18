package bench

import "math"

// Waits are counted in buckets whose bounds grow by a hundredth, from a nanosecond to years: a run of days takes no more memory than
// one of seconds.
const (
	waitFloor   = 1e-9
	waitBuckets = 4096
)

var waitGrowth = math.Log(1.01)

// waitCounts is the distribution of waits. The zero value has none.
type waitCounts struct {
	counts    [waitBuckets]uint64
	n         uint64
	sum, most float64
}

// add counts a wait of so many seconds.
func (w *waitCounts) add(seconds float64) {
	i := 0
	if seconds > waitFloor {
		i = min(int(math.Log(seconds/waitFloor)/waitGrowth)+1, waitBuckets-1)
	}
	w.counts[i]++
	w.n++
	w.sum += seconds
	w.most = max(w.most, seconds)
}

// quantile is the q-th quantile, of a hundredth too much at most; 0 of none.
func (w *waitCounts) quantile(q float64) float64 {
	rank, below := uint64(math.Ceil(q*float64(w.n))), uint64(0)
	for i, n := range w.counts {
		if below += n; n > 0 && below >= rank {
			return min(waitFloor*math.Exp(float64(i)*waitGrowth), w.most)
		}
	}
	return 0
}
