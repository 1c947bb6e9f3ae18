package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// rates runs each of these in turn, in changing order, and returns the bytes per second of each.
// All run once before without being measured.
func (b *bench) rates(bytes int64, run ...func() error) ([]table.Sample, error) {
	out := make([]table.Sample, len(run))
	for i := range b.times + 1 {
		for k := range run {
			j := (k + i) % len(run)
			runtime.GC()
			begin := time.Now()
			if err := run[j](); err != nil {
				return nil, err
			}
			if i > 0 {
				out[j] = append(out[j], float64(bytes)/time.Since(begin).Seconds())
			}
		}
	}
	return out, nil
}

func mbs(perSecond float64) string { return fmt.Sprintf("%.0f MB/s", perSecond/1e6) }
