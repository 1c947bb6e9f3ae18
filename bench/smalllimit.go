package main

import "github.com/shardtool/shardtool/writer"

// smallLimits measures rows against the passes over memory that a shuffled stream of checked rows
// cannot leave out, and blocks used in the page cache against the same ones read into memory.
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
		read := b.smallRun(dir)
		read.Rows, read.Unmapped = true, true
		if err := b.smallRows("rows of "+c.name+", uncompressed, used in the page cache / read into memory", ours, read, smallGoals{coldFloor: smallTimes.cold}); err != nil {
			return err
		}
	}
	return nil
}
