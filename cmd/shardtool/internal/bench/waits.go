package bench

import "math"

// Waits are counted in buckets whose bounds grow by a hundredth, from a nanosecond to years, so the
// memory does not depend on the duration of the run.
const (
	waitFloor   = 1e-9
	waitBuckets = 4096
)

var waitGrowth = math.Log(1.01)

// waitCounts is the distribution of waits. The zero value is empty.
type waitCounts struct {
	counts    [waitBuckets]uint64
	n         uint64
	sum, most float64
}

// add counts a wait, in seconds.
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

// quantile returns the q-th quantile, at most a hundredth too large; 0 without waits.
func (w *waitCounts) quantile(q float64) float64 {
	rank, below := uint64(math.Ceil(q*float64(w.n))), uint64(0)
	for i, n := range w.counts {
		if below += n; n > 0 && below >= rank {
			return min(waitFloor*math.Exp(float64(i)*waitGrowth), w.most)
		}
	}
	return 0
}
