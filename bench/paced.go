package main

import (
	"fmt"

	"github.com/shardtool/shardtool/bench/paced"
)

// pacedRows measures how long a consumer waits that needs 90 % of the maximum rate, and whether the
// memory of its process stays constant.
func (b *bench) pacedRows() error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	for _, of := range []struct {
		kind, shown string
		batch       int // so that a step is milliseconds: what a timer can do on a host whose processors are all at work
	}{{"large text", "text 3 KB, compressed", 2048}, {"large images", "incompressible 100 KB", 256}} {
		dir, err := b.dataset(of.kind, false)
		if err != nil {
			return err
		}
		r, err := paced.Run(b.ctx, paced.Options{
			Binary: bin, Args: []string{dir, "--shuffle", "--tail", "wrap", "--global-batch", fmt.Sprint(of.batch), "--shuffle-memory", fmt.Sprintf("%dMiB", b.mib/2)},
			Duration: b.long,
		})
		if err != nil {
			return err
		}
		r.Add(&b.Table, fmt.Sprintf("%s, batches of %d", of.shown, of.batch))
	}
	return nil
}
