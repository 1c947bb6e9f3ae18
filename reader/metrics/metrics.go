// Package metrics shows streams to Prometheus. It is the only package of the library that needs its client.
//
//	c := metrics.New()
//	prometheus.MustRegister(c)
//	defer c.Watch(stream, rank)()
//
// All metrics have the label rank, so that the one that holds the others back shows. What they mean is said at
// [reader.StreamStats]; what to do about a cause, in docs/stalls.md.
package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shardtool/shardtool/reader"
)

// Streamer is what is watched: a [reader.Stream].
type Streamer interface {
	// Stats may be called at any time, from any goroutine.
	Stats() reader.StreamStats
}

// Collector is a [prometheus.Collector] over the streams that it watches. It may be used from many goroutines.
type Collector struct {
	mu    sync.Mutex
	ranks map[int]*rank
}

// rank is one rank's streams: those that run, and what those that ended have counted. A counter never goes back.
type rank struct {
	streams map[*watched]bool
	past    reader.StreamStats
}

type watched struct{ Streamer }

// New returns a Collector that watches nothing yet.
func New() *Collector { return &Collector{ranks: map[int]*rank{}} }

// Watch shows a stream under a rank, until the function that it returns is called, before or after the stream is closed. What the
// stream has counted stays in the counters of the rank, and the next stream of that rank adds to it.
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

// add sums what counts up.
func add(to *reader.StreamStats, s reader.StreamStats) {
	to.Batches += s.Batches
	to.Samples += s.Samples
	to.Bytes += s.Bytes
	to.Elapsed += s.Elapsed
	to.Stalls = to.Stalls.Sub(reader.Stalls{}.Sub(s.Stalls))
	to.Blocks += s.Blocks
	to.StoredBytes += s.StoredBytes
	to.Evicted += s.Evicted
	to.Rereads += s.Rereads
	to.Skipped += s.Skipped
	to.Decisions += s.Decisions
	to.Sources = addSources(to.Sources, s.Sources)
}

// metric is a figure of a rank.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(s *reader.StreamStats) float64
}

func newMetric(kind prometheus.ValueType, name, help string, of func(s *reader.StreamStats) float64) metric {
	return metric{prometheus.NewDesc("shardtool_stream_"+name, help, []string{"rank"}, nil), kind, of}
}

const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue

var figures = []metric{
	newMetric(counter, "batches_total", "Batches delivered.", func(s *reader.StreamStats) float64 { return float64(s.Batches) }),
	newMetric(counter, "samples_total", "Samples delivered, padding left out.", func(s *reader.StreamStats) float64 { return float64(s.Samples) }),
	newMetric(counter, "bytes_total", "Bytes of the fields of delivered samples.", func(s *reader.StreamStats) float64 { return float64(s.Bytes) }),
	newMetric(counter, "open_seconds_total", "Time that streams have been open.", func(s *reader.StreamStats) float64 { return s.Elapsed.Seconds() }),
	newMetric(counter, "blocks_total", "Blocks fetched, those read again included.", func(s *reader.StreamStats) float64 { return float64(s.Blocks) }),
	newMetric(counter, "stored_bytes_total", "Stored bytes of fetched blocks.", func(s *reader.StreamStats) float64 { return float64(s.StoredBytes) }),
	newMetric(counter, "evicted_blocks_total", "Blocks that had to go for want of memory while they were still needed.", func(s *reader.StreamStats) float64 { return float64(s.Evicted) }),
	newMetric(counter, "rereads_total", "Reads repeated because the first gave damaged bytes.", func(s *reader.StreamStats) float64 { return float64(s.Rereads) }),
	newMetric(counter, "skipped_samples_total", "Samples left out because their block is damaged.", func(s *reader.StreamStats) float64 { return float64(s.Skipped) }),
	newMetric(counter, "tunings_total", "Changes that autotuning has made to the requests in flight and the batches ahead.", func(s *reader.StreamStats) float64 { return float64(s.Decisions) }),
	newMetric(gauge, "requests_limit", "Pieces of a remote store fetched at once at most.", func(s *reader.StreamStats) float64 { return float64(s.Requests) }),
	newMetric(gauge, "depth_batches", "Batches that may be asked for before the consumer takes them.", func(s *reader.StreamStats) float64 { return float64(s.Depth) }),
	newMetric(gauge, "first_wait_seconds", "Wait for the first batch of the stream.", func(s *reader.StreamStats) float64 { return s.FirstWait.Seconds() }),
	newMetric(gauge, "held_bytes_max", "Most bytes of blocks that were held at once.", func(s *reader.StreamStats) float64 { return float64(s.Held) }),
}

var (
	waitDesc = prometheus.NewDesc("shardtool_stream_wait_seconds_total",
		"Time that the consumer waited for a batch, by what held it back.", []string{"rank", "cause"}, nil)
	piecesDesc = prometheus.NewDesc("shardtool_stream_pieces",
		"Pieces, consecutive blocks that are read together, by where they are: paused ones are among those that are reading.", []string{"rank", "at"}, nil)
)

// Describe is prometheus.Collector's.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for i := range figures {
		out <- figures[i].desc
	}
	out <- waitDesc
	out <- sourceSamplesDesc
	out <- sourceBytesDesc
	out <- piecesDesc
}

// Collect is prometheus.Collector's.
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
		for at, n := range map[string]int{"queued": s.Pieces.Queued, "reading": s.Pieces.Reading, "paused": s.Pieces.Paused, "decoding": s.Pieces.Decoding} {
			out <- prometheus.MustNewConstMetric(piecesDesc, gauge, float64(n), label, at)
		}
	}
}

// read sums the streams of each rank.
func (c *Collector) read() map[int]reader.StreamStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[int]reader.StreamStats{}
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
