package order

import "fmt"

// CheckRun is CheckSplit for a stream that begins. In one without an end it also refuses a rank
// that would never get a sample, see Split.Reaches.
func (p *Plan) CheckRun(s Split, endless bool) error {
	if err := p.CheckSplit(s); err != nil || !endless {
		return err
	}
	return s.Reaches(p.total, p.params.Tail)
}

// Reaches returns an error if the rank gets no sample of any batch in epochs of n positions: of
// batches, or epochs, smaller than the number of ranks. NextBatch gives such a rank empty batches.
func (s Split) Reaches(n uint64, tail Tail) error {
	g := uint64(s.GlobalBatch)
	switch {
	case n == 0, (tail != TailShort || n >= g) && s.holds(g), tail == TailShort && s.holds(n%g):
		return nil
	case s.GlobalBatch < s.World:
		return badOption(fmt.Errorf("rank %d never gets a sample: a global batch of %d has fewer samples than there are ranks, %d: give a global batch of at least %d, or fewer ranks",
			s.Rank, g, s.World, s.World), "global-batch", "world-size")
	}
	return badOption(fmt.Errorf("rank %d of %d never gets a sample: an epoch has %d, and with tail short no batch has more: give at most %d ranks, or the tail wrap or pad",
		s.Rank, s.World, n, n), "world-size", "tail")
}

// holds reports whether the rank has a part in a batch.
func (s Split) holds(batch uint64) bool {
	return Share(batch, s.Rank, s.World) < Share(batch, s.Rank+1, s.World)
}
