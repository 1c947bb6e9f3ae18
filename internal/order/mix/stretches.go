package mix

import (
	"iter"
	"slices"
)

// Stretch is the positions From ≤ g < To in which the same sources give in the same proportion.
type Stretch struct {
	From, To uint64 // To is 2^63, which is not a position, if that never changes
	Segment  int    // of Mix.Segments, whose weights hold
	// Weights are the weights in force, by source number: 0 for a source that has ended.
	Weights []uint64
	// Ended are the sources that give the last unit of their MaxEpochs before To.
	Ended []int
}

// Stretches yields the stretches from the one with a position to the end of the stream, or to an
// error. Only planning units can fail. There are at most as many stretches as segments and sources
// together.
func (p *Plan) Stretches(position uint64) iter.Seq2[Stretch, error] {
	return func(yield func(Stretch, error) bool) {
		w := p.walk()
		ok, err := w.seek(position)
		for ok && err == nil {
			out := p.stretchOf(&w.stretch)
			begin := w.counts(nil, w.from)
			for { // epochs of units end between, and change nothing
				var next stretch
				next, ok, err = p.after(&w.stretch)
				if !ok || err != nil {
					break
				}
				if following := p.stretchOf(&next); following.Segment != out.Segment ||
					!slices.Equal(following.Weights, out.Weights) {
					err = p.end(&out, begin, &w.stretch)
					w.stretch = next
					break
				}
				w.stretch = next
				out.To = next.to
			}
			if !ok && err == nil {
				err = p.end(&out, begin, &w.stretch)
			}
			if err == nil && !yield(out, nil) {
				return
			}
		}
		if err != nil {
			yield(Stretch{}, err)
		}
	}
}

func (p *Plan) stretchOf(st *stretch) Stretch {
	out := Stretch{From: st.from, To: st.to, Segment: st.segment, Weights: make([]uint64, len(p.mix.Sources))}
	for _, l := range st.tree.leaves {
		out.Weights[l.source] = p.mix.Segments[st.segment].Weights[l.source]
	}
	return out
}

// end finds the sources that end with a stretch, of which st is the last part.
func (p *Plan) end(out *Stretch, begin []uint64, st *stretch) error {
	if st.to >= maxPosition {
		return nil
	}
	for s, count := range st.counts(nil, st.to) {
		limit, err := p.mix.Sources[s].limit(count)
		if err != nil {
			return err
		}
		if begin[s] < limit && limit <= count {
			out.Ended = append(out.Ended, s)
		}
	}
	return nil
}
