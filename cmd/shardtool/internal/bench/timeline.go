package bench

import (
	"time"

	"github.com/shardtool/shardtool/internal/stats"
)

// Timeline divides a run into buckets of equal width. The width doubles when a run takes longer
// than expected.
type Timeline struct {
	Width   float64  `json:"bucket_s"`
	Buckets []Bucket `json:"buckets"`
}

// Bucket is what happened in a span of a run. Wait, Step and Stalls are seconds, Stalls in the
// order of Causes. Queued, Reading, Paused and Decoding are mean numbers of pieces.
type Bucket struct {
	Wait    float64   `json:"wait"`
	Step    float64   `json:"step"`
	Samples float64   `json:"samples"`
	Bytes   float64   `json:"bytes"`
	Stalls  []float64 `json:"stalls,omitempty"`

	Queued   float64 `json:"queued"`
	Reading  float64 `json:"reading"`
	Paused   float64 `json:"paused"`
	Decoding float64 `json:"decoding"`
	Looks    int     `json:"looks"` // how often pieces were counted

	// Resident bytes, Goroutines and open Files are the maximum of the measurements; 0 without any.
	Resident   int64 `json:"resident_bytes,omitempty"`
	Goroutines int   `json:"goroutines,omitempty"`
	Files      int   `json:"open_files,omitempty"`
}

const (
	mostBuckets  = 480
	firstBuckets = 240
)

// newTimeline returns the timeline of a run of about d.
func newTimeline(d time.Duration) *Timeline {
	return &Timeline{Width: max(d.Seconds()/firstBuckets, 1e-3)}
}

// bucket returns the bucket of a time, in seconds from the beginning.
func (t *Timeline) bucket(at float64) *Bucket {
	for int(max(at, 0)/t.Width) >= mostBuckets {
		t.fold()
	}
	i := int(max(at, 0) / t.Width)
	for len(t.Buckets) <= i {
		t.Buckets = append(t.Buckets, Bucket{})
	}
	return &t.Buckets[i]
}

// fold joins pairs of buckets.
func (t *Timeline) fold() {
	half := make([]Bucket, 0, mostBuckets)
	for i := range t.Buckets {
		if i%2 == 0 {
			half = append(half, t.Buckets[i])
			continue
		}
		half[i/2].join(&t.Buckets[i])
	}
	t.Buckets, t.Width = half, 2*t.Width
}

func (b *Bucket) join(o *Bucket) {
	b.Wait, b.Step, b.Samples, b.Bytes = b.Wait+o.Wait, b.Step+o.Step, b.Samples+o.Samples, b.Bytes+o.Bytes
	for c, d := range o.Stalls {
		b.stall(c, d)
	}
	if n := float64(b.Looks + o.Looks); n > 0 {
		mean := func(x, y float64) float64 { return (x*float64(b.Looks) + y*float64(o.Looks)) / n }
		b.Queued, b.Reading, b.Paused, b.Decoding = mean(b.Queued, o.Queued), mean(b.Reading, o.Reading), mean(b.Paused, o.Paused), mean(b.Decoding, o.Decoding)
	}
	b.Looks += o.Looks
	b.Resident, b.Goroutines, b.Files = max(b.Resident, o.Resident), max(b.Goroutines, o.Goroutines), max(b.Files, o.Files)
}

func (b *Bucket) stall(cause int, d float64) {
	if b.Stalls == nil {
		b.Stalls = make([]float64, len(Causes()))
	}
	b.Stalls[cause] += d
}

// spread divides a span of time over its buckets: it calls part with each bucket and the part of
// the span in it.
func (t *Timeline) spread(from, to float64, part func(b *Bucket, seconds, share float64)) {
	t.bucket(to) // may fold; after this the width does not change
	for at := max(from, 0); at < to; {
		i := int(at / t.Width)
		end := min(float64(i+1)*t.Width, to)
		if end <= at { // the end of a bucket, rounded
			i++
			end = min(float64(i+1)*t.Width, to)
		}
		part(t.bucket((float64(i)+0.5)*t.Width), end-at, (end-at)/(to-from))
		at = end
	}
}

// batch adds a wait with its causes, and the step after it. The samples and bytes of the batch are
// spread over both. Times are seconds from the beginning.
func (t *Timeline) batch(asked, came, done float64, stalls stats.Stalls, samples int, size uint64) {
	t.spread(asked, came, func(b *Bucket, s, share float64) {
		b.Wait += s
		c := 0
		for _, d := range stalls.All() {
			if d > 0 {
				b.stall(c, d.Seconds()*share)
			}
			c++
		}
	})
	t.spread(came, done, func(b *Bucket, s, _ float64) { b.Step += s })
	t.spread(asked, max(done, asked+1e-9), func(b *Bucket, _, share float64) {
		b.Samples += float64(samples) * share
		b.Bytes += float64(size) * share
	})
}
