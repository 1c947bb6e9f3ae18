// Package metrics exports the statistics of streams to Prometheus. It is the only package of the
// library that needs the Prometheus client.
//
//	c := metrics.New()
//	prometheus.MustRegister(c)
//	defer c.Watch(stream, rank)()
//
// All metrics have the label rank, so that a slow rank is visible. [stats.Stream] explains the
// figures; docs/stalls.md has the remedy for each cause of waiting.
package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shardtool/shardtool/internal/figures/stats"
)

// Streamer has statistics to export, as a reader.Stream has.
type Streamer interface {
	// Stats may be called at any time, from any goroutine.
	Stats() stats.Stream
}

// Collector is a [prometheus.Collector] for the streams that it watches. Its methods may be called
// concurrently.
type Collector struct {
	mu    sync.Mutex
	ranks map[int]*rank
}

// rank is the open streams of a rank, and the sum of the counters of those that ended, so that
// counters never decrease.
type rank struct {
	streams map[*watched]bool
	past    stats.Stream
}

type watched struct{ Streamer }

// New returns a Collector without streams.
func New() *Collector { return &Collector{ranks: map[int]*rank{}} }

// Watch exports the statistics of a stream under a rank until stop is called, before or after the
// stream is closed. The counters of the rank keep their values, and the next stream of that rank
// adds to them.
func (c *Collector) Watch(s Streamer, number int) (stop func()) {
	w := &watched{s}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.ranks[number]
	if r == nil {
		r = &rank{streams: map[*watched]bool{}}
		c.ranks[number] = r
	}
	r.streams[w] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.streams[w] {
			delete(r.streams, w)
			add(&r.past, s.Stats())
		}
	}
}

// add adds the counters of s.
func add(to *stats.Stream, s stats.Stream) {
	to.Batches += s.Batches
	to.Samples += s.Samples
	to.Bytes += s.Bytes
	to.Elapsed += s.Elapsed
	to.Stalls = to.Stalls.Sub(stats.Stalls{}.Sub(s.Stalls))
	to.Blocks += s.Blocks
	to.StoredBytes += s.StoredBytes
	to.Evicted += s.Evicted
	to.Rereads += s.Rereads
	to.Skipped += s.Skipped
	to.Decisions += s.Decisions
	to.Sources = addSources(to.Sources, s.Sources)
}

// metric is one metric of a rank.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(s *stats.Stream) float64
}

func newMetric(kind prometheus.ValueType, name, help string, of func(s *stats.Stream) float64) metric {
	return metric{prometheus.NewDesc("shardtool_stream_"+name, help, []string{"rank"}, nil), kind, of}
}

const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue

var figures = []metric{
	newMetric(counter, "batches_total", "Batches delivered.",
		func(s *stats.Stream) float64 { return float64(s.Batches) }),
	newMetric(counter, "samples_total", "Samples delivered, padding left out.",
		func(s *stats.Stream) float64 { return float64(s.Samples) }),
	newMetric(counter, "bytes_total", "Bytes of the fields of delivered samples.",
		func(s *stats.Stream) float64 { return float64(s.Bytes) }),
	newMetric(counter, "open_seconds_total", "Time that streams have been open.",
		func(s *stats.Stream) float64 { return s.Elapsed.Seconds() }),
	newMetric(counter, "blocks_total", "Blocks fetched, those read again included.",
		func(s *stats.Stream) float64 { return float64(s.Blocks) }),
	newMetric(counter, "stored_bytes_total", "Stored bytes of fetched blocks.",
		func(s *stats.Stream) float64 { return float64(s.StoredBytes) }),
	newMetric(counter, "evicted_blocks_total", "Blocks evicted for lack of memory while they were still needed.",
		func(s *stats.Stream) float64 { return float64(s.Evicted) }),
	newMetric(counter, "rereads_total", "Reads repeated because the first one returned damaged bytes.",
		func(s *stats.Stream) float64 { return float64(s.Rereads) }),
	newMetric(counter, "skipped_samples_total", "Samples skipped because their block is damaged.",
		func(s *stats.Stream) float64 { return float64(s.Skipped) }),
	newMetric(counter, "tunings_total", "Changes by autotuning to the requests in flight and the batches prefetched.",
		func(s *stats.Stream) float64 { return float64(s.Decisions) }),
	newMetric(gauge, "requests_limit", "Maximum of pieces fetched concurrently from a remote store.",
		func(s *stats.Stream) float64 { return float64(s.Requests) }),
	newMetric(gauge, "depth_batches", "Maximum of batches prefetched.",
		func(s *stats.Stream) float64 { return float64(s.Depth) }),
	newMetric(gauge, "first_wait_seconds", "Wait for the first batch of the stream.",
		func(s *stats.Stream) float64 { return s.FirstWait.Seconds() }),
	newMetric(gauge, "held_bytes_max", "Maximum bytes of blocks held in memory.",
		func(s *stats.Stream) float64 { return float64(s.Held) }),
}

var (
	waitDesc = prometheus.NewDesc("shardtool_stream_wait_seconds_total",
		"Time that the consumer waited for a batch, by cause.", []string{"rank", "cause"}, nil)
	piecesDesc = prometheus.NewDesc("shardtool_stream_pieces",
		"Pieces, which are consecutive blocks that are read together, by stage; paused pieces are counted as reading too.", []string{"rank", "at"}, nil)
)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for i := range figures {
		out <- figures[i].desc
	}
	out <- waitDesc
	out <- sourceSamplesDesc
	out <- sourceBytesDesc
	out <- piecesDesc
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for number, s := range c.read() {
		label := strconv.Itoa(number)
		for i := range figures {
			f := &figures[i]
			out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&s), label)
		}
		collectSources(out, label, s.Sources)
		for cause, d := range s.Stalls.All() {
			out <- prometheus.MustNewConstMetric(waitDesc, counter, d.Seconds(), label, cause)
		}
		for at, n := range map[string]int{"queued": s.Pieces.Queued, "reading": s.Pieces.Reading,
			"paused": s.Pieces.Paused, "decoding": s.Pieces.Decoding} {
			out <- prometheus.MustNewConstMetric(piecesDesc, gauge, float64(n), label, at)
		}
	}
}

// read returns the sums over the streams of each rank.
func (c *Collector) read() map[int]stats.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[int]stats.Stream{}
	for number, r := range c.ranks {
		sum := r.past
		for w := range r.streams {
			s := w.Stats()
			add(&sum, s)
			sum.FirstWait, sum.Held = max(sum.FirstWait, s.FirstWait), max(sum.Held, s.Held)
			sum.Requests, sum.Depth = sum.Requests+s.Requests, max(sum.Depth, s.Depth)
			sum.Pieces.Queued += s.Pieces.Queued
			sum.Pieces.Reading += s.Pieces.Reading
			sum.Pieces.Paused += s.Pieces.Paused
			sum.Pieces.Decoding += s.Pieces.Decoding
		}
		all[number] = sum
	}
	return all
}
