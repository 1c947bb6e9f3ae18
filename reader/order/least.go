package order

import (
	"errors"
	"math/bits"
)

// LeastMemory is the least shuffle memory that Choose takes for a shuffled order: five runs, or
// five of each lane where Lanes is given, and with UnitBlocks the runs of a window beside them.
// Less may do for a data set of one or two blocks. A mix divides its memory so that each source
// gets as much.
func LeastMemory(t Table, c Choice) (uint64, error) {
	if err := t.validate(); err != nil {
		return 0, err
	}
	run := c.RunBlocks
	if !c.WholeShards && run == 0 {
		c.Memory = 1 // which joins no blocks
		run = chooseRunBlocks(&t, &c)
	}
	extra := windowExtra + unitRuns(&t, run, c.UnitBlocks)
	hi, least := bits.Mul64(runBytes(&t, run), (extra+1)*uint64(max(c.Lanes, 1)))
	if hi > 0 {
		return 0, errors.New("shuffle memory: a run is too large for any memory: choose runs of fewer blocks")
	}
	return least, nil
}
