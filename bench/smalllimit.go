package main

import (
	"fmt"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// smallLimits measures rows against the passes over memory that a shuffled stream of checked rows
// cannot leave out, and reading the blocks into memory against mapping them from the page cache.
func (b *bench) smallLimits() error {
	packed, err := b.tokenRows(100, writer.LayoutStacked, false)
	if err != nil {
		return err
	}
	ours, floor := b.smallRun(packed), b.smallRun(packed)
	ours.Rows, floor.Decode, floor.Gather = true, true, 200
	if err := b.smallRows("rows of 200 B, compressed / DecodeAll of frames in memory, and the gather", ours, floor, smallGoals{coldFloor: smallTimes.steady}); err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		tokens int
	}{{"200 B", 100}, {"4,098 B", 2049}} {
		dir, err := b.tokenRows(c.tokens, writer.LayoutStacked, true)
		if err != nil {
			return err
		}
		ours := b.smallRun(dir)
		floor := ours
		ours.Rows, floor.Sums, floor.Gather = true, true, 2*c.tokens
		if err := b.smallRows("rows of "+c.name+", uncompressed / pread + CRC-32C into a window, and the gather", ours, floor, smallGoals{coldFloor: smallTimes.steady}); err != nil {
			return err
		}
		if err := b.smallMapped(c.name, dir); err != nil {
			return err
		}
	}
	return nil
}

// smallMapped compares the processor time of two ways to a block in the page cache: a copy in the
// window, and a mapping of the file.
func (b *bench) smallMapped(name, dir string) error {
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	read, size, err := preadCRC(dir, ds, b, 1, b.mib<<20/2)
	if err != nil {
		return err
	}
	mapped, err := b.mappedCRC(dir, ds)
	if err != nil {
		b.LeftOut("small", "mapped blocks: "+err.Error())
		return nil
	}
	var r table.Sample
	var each [2]float64
	for range b.times {
		for k, pass := range []func() error{read, mapped} {
			used := cpu()
			if err := pass(); err != nil {
				return err
			}
			each[k] = (cpu() - used).Seconds()
		}
		r = append(r, each[1]/each[0])
	}
	perMiB := 1e6 / (float64(size) / (1 << 20))
	b.Info("small", "blocks of rows of "+name+", by processor time: mapped and summed / read into a window and summed", r, "x",
		fmt.Sprintf("%.0f µs a MiB against %.0f, one goroutine; a mapping is dropped after its block", each[1]*perMiB, each[0]*perMiB))
	return nil
}
