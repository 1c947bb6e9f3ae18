package mix

import "iter"

// Stretch is the positions From ≤ g < To in which the same sources give in the same proportion.
type Stretch struct {
	From, To uint64 // To is 2^63, which is no position, where that never changes
	Segment  int    // of Mix.Segments, whose weights hold
	// Weights are those in force, by source number: 0 for a source that has ended.
	Weights []uint64
	// Ended are the sources that give the last unit of their MaxEpochs before To.
	Ended []int
}

// Stretches yields the stretches from the one with a position on, to the end of the stream. There
// are at most as many as segments and sources together.
func (p *Plan) Stretches(position uint64) iter.Seq[Stretch] {
	return func(yield func(Stretch) bool) {
		w := p.walk()
		if !w.seek(position) {
			return
		}
		for {
			out := Stretch{From: w.from, To: w.to, Segment: w.segment, Weights: make([]uint64, len(p.mix.Sources))}
			for _, l := range w.tree.leaves {
				out.Weights[l.source] = p.mix.Segments[w.segment].Weights[l.source]
			}
			if w.to < maxPosition {
				begin, end := w.counts(nil, w.from), w.counts(nil, w.to)
				for s := range end {
					if limit := p.mix.Sources[s].limit(); begin[s] < limit && limit <= end[s] {
						out.Ended = append(out.Ended, s)
					}
				}
			}
			if !yield(out) {
				return
			}
			next, ok := p.after(&w.stretch)
			if !ok {
				return
			}
			w.stretch = next
		}
	}
}
