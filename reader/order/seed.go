package order

// domainSeed is the domain of WORDS for the seeds of samples (SPEC.md, "Seeds of samples").
const domainSeed = 7

// SampleSeed is the seed for what a program draws at random for one sample, such as a crop. It is a
// function of the key of the source's random words (the seed of an order read alone), the epoch of
// the source and the sample's number in storage order, so it is the same on every rank, in every
// worker and after every resume. draw counts from 0 the times that the sample is listed in its
// block; it is 0 but for a view with weights. Numbers are below 2^56, epochs below 2^32.
func SampleSeed(key, epoch, number uint64, draw uint32) uint64 {
	w := newWords(key, domainSeed, uint32(number>>32), uint32(epoch), uint32(number))
	four := w.four(draw / 2) // words 2d and 2d+1 are one half of block d div 2
	at := draw % 2 * 2
	return uint64(four[at]) | uint64(four[at+1])<<32
}
