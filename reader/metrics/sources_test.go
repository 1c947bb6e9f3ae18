package metrics

import (
	"testing"

	"github.com/shardtool/shardtool/internal/figures/stats"
)

// TestSources: the sources of a mix are summed by name over the streams of a rank.
func TestSources(t *testing.T) {
	c := New()
	stop := c.Watch(counted{Sources: []stats.Source{{Name: "code", Samples: 1, Bytes: 10}, {Name: "web", Samples: 2, Bytes: 20}}}, 3)
	stop()
	c.Watch(counted{Sources: []stats.Source{{Name: "math", Samples: 5, Bytes: 7}, {Name: "web", Samples: 4, Bytes: 40}}}, 3)
	for range 2 { // reading changes nothing
		got := gather(t, c)
		for name, want := range map[string]float64{
			"shardtool_stream_source_samples_total rank=3 source=code": 1, "shardtool_stream_source_bytes_total rank=3 source=code": 10,
			"shardtool_stream_source_samples_total rank=3 source=math": 5, "shardtool_stream_source_bytes_total rank=3 source=math": 7,
			"shardtool_stream_source_samples_total rank=3 source=web": 6, "shardtool_stream_source_bytes_total rank=3 source=web": 60,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	}
}
