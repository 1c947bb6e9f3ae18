package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/shardtool/shardtool/internal/figures/stats"
)

var (
	sourceSamplesDesc = prometheus.NewDesc("shardtool_stream_source_samples_total",
		"Samples delivered of a source of a mix, padding left out.", []string{"rank", "source"}, nil)
	sourceBytesDesc = prometheus.NewDesc("shardtool_stream_source_bytes_total",
		"Bytes of the fields of delivered samples of a source of a mix.", []string{"rank", "source"}, nil)
)

// addSources sums by name: the streams of a rank may be over different mixes.
func addSources(to, s []stats.Source) []stats.Source {
	to = slices.Clone(to)
	for _, x := range s {
		i := slices.IndexFunc(to, func(of stats.Source) bool { return of.Name == x.Name })
		if i < 0 {
			to = append(to, x)
			continue
		}
		to[i].Samples += x.Samples
		to[i].Bytes += x.Bytes
	}
	return to
}

func collectSources(out chan<- prometheus.Metric, rank string, sources []stats.Source) {
	for _, of := range sources {
		out <- prometheus.MustNewConstMetric(sourceSamplesDesc, counter, float64(of.Samples), rank, of.Name)
		out <- prometheus.MustNewConstMetric(sourceBytesDesc, counter, float64(of.Bytes), rank, of.Name)
	}
}
