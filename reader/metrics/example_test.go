package metrics_test

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/metrics"
)

// A program registers one Collector, and has it watch the stream of each rank while that is open.
func ExampleCollector_Watch() {
	collector := metrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	train := func(stream *reader.Stream, rank int) {
		defer collector.Watch(stream, rank)()
		// Read batches here.
	}
	_ = train
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(families), "metrics before the first stream")
	// Output:
	// 0 metrics before the first stream
}
