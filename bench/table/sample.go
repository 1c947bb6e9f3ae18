package table

import "slices"

// Sample is repeated readings of one figure, at least one.
type Sample []float64

// One is a figure that was read once.
func One(v float64) Sample { return Sample{v} }

// Median is the mean of the middle two of an even number: the upper one alone would flatter.
func (s Sample) Median() float64 {
	c := slices.Sorted(slices.Values(s))
	return (c[(len(c)-1)/2] + c[len(c)/2]) / 2
}

// Over divides pair by pair.
func (s Sample) Over(base Sample) Sample {
	out := make(Sample, len(s))
	for i := range s {
		out[i] = s[i] / base[i]
	}
	return out
}

// By divides by one number.
func (s Sample) By(n float64) Sample {
	out := make(Sample, len(s))
	for i := range s {
		out[i] = s[i] / n
	}
	return out
}
