package uniformity

import "github.com/shardtool/shardtool/reader/order"

// inflation adds up the variance inflation of batches, or of ranks' parts of them.
//
// For a draw of g of N samples without replacement, the count c of a label of share p has the mean
// g·p and the variance g·p·(1−p)·(N−g)/(N−1), the hypergeometric distribution. The inflation is the
// mean over the labels of (c − g·p)² divided by that. With w = 1/(p·(1−p)) it is (Σ w·c² − 2g·Σ
// w·p·c + g²·Σ w·p²)·(N−1)/(g·(N−g)) over the number of labels, so only the labels in the batch
// need be visited.
type inflation struct {
	weight []float64 // w; 0 for a label that all samples have, or none
	share  []float64 // p
	square float64   // Σ w·p²
	labels float64   // that have a weight
	count  []int     // c, of the part at hand

	parts int     // of the batch at hand
	sum   float64 // over them
	first []float64
	rest  float64 // sum over the batches after those
	n     int

	together int // batches that are measured as one
	pool     []order.Ref
	pooled   int // batches in pool
}

// firstBatches are counted apart: the shuffle begins in them.
const firstBatches = 10

func newInflation(l *Labels, together int) inflation {
	f := inflation{weight: make([]float64, l.Len()), share: make([]float64, l.Len()), count: make([]int, l.Len()),
		together: together}
	for i, c := range l.count {
		p := ratio(c, l.total)
		f.share[i] = p
		if v := p * (1 - p); v > 0 {
			f.weight[i] = 1 / v
			f.square += p * p / v
			f.labels++
		}
	}
	return f
}

// batch adds a batch that is no more than one part.
func (f *inflation) batch(l *Labels, refs []order.Ref) {
	if f.together > 1 {
		f.pool = append(f.pool, refs...)
		if f.pooled++; f.pooled < f.together {
			return
		}
		refs, f.pool, f.pooled = f.pool, f.pool[:0], 0
	}
	f.part(l, refs)
	f.next()
}

// part adds a part of the batch at hand.
func (f *inflation) part(l *Labels, refs []order.Ref) {
	g, n := float64(len(refs)), float64(l.total)
	if g == 0 || g >= n || f.labels == 0 {
		return
	}
	var squares, products float64
	for i := range refs {
		x := l.Of(refs[i].Number)
		squares += float64(2*f.count[x]+1) * f.weight[x] // (c+1)² − c²
		products += f.weight[x] * f.share[x]
		f.count[x]++
	}
	for i := range refs {
		f.count[l.Of(refs[i].Number)] = 0
	}
	f.sum += (squares - 2*g*products + g*g*f.square) * (n - 1) / (g * (n - g)) / f.labels
	f.parts++
}

// next ends the batch at hand.
func (f *inflation) next() {
	if f.parts == 0 {
		return
	}
	v := f.sum / float64(f.parts)
	f.sum, f.parts = 0, 0
	if len(f.first) < firstBatches {
		f.first = append(f.first, v)
		return
	}
	f.rest += v
	f.n++
}

// mean returns the mean over the batches after the first ten, or over all if there are no more.
func (f *inflation) mean() (v float64) {
	if f.n > 0 {
		return f.rest / float64(f.n)
	}
	for _, x := range f.first {
		v += x / float64(len(f.first))
	}
	return v
}
