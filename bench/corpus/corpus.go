// Package corpus makes data sets for tests and benchmarks: as large as asked,
// the same bytes on every machine, and as hard to compress as the real thing.
//
//	Text     txt             English prose, zstd makes it 2.5 to 3.5 times smaller
//	Images   jpg             nothing makes it smaller
//	Tensors  u8              numbers of a fixed count; nothing makes them smaller
//
// Sizes are lognormal about a mean. Keys look like hashes, below class folders
// of at most a thousand files, so that the order of the keys is
// independent of the order of the samples.
//
// A corpus is a function of its Options alone. Sizes, choices and bytes come from
// integer arithmetic on generators with a published algorithm (PCG, ChaCha8), so
// that neither the machine nor the Go version changes it.
package corpus

import (
	"fmt"
	"iter"
)

// folderFiles is the most files that a class folder holds.
const folderFiles = 1000

// Field is one named piece of a sample. Its name is the extension of its file.
type Field struct {
	Name string
	Data []byte
}

// Sample is a key and its fields, in order of their names. The fields and their
// bytes belong to the generator and hold until the next sample is asked for; the
// key may be kept.
type Sample struct {
	Key    string
	Fields []Field
}

// Size is the number of bytes in the sample's fields.
func (s Sample) Size() int64 {
	var n int64
	for _, f := range s.Fields {
		n += int64(len(f.Data))
	}
	return n
}

// Options define a corpus.
type Options struct {
	// Samples is the number of samples.
	Samples int
	// MeanSize is the mean size in bytes of the text or the image. Zero means
	// 3 KB for text and 100 KB for images.
	MeanSize int
	// Seed picks one of many corpora that are alike.
	Seed uint64
}

// Text yields samples of one field, txt: English prose cut from two books and put
// together anew a few words at a time. Text is whole words, so it is valid UTF-8.
func Text(o Options) iter.Seq[Sample] {
	return o.samples(3_000, 1, func(g *generator, s *Sample, _ int) {
		s.Fields = append(s.Fields, Field{"txt", g.text(0, g.size())})
	})
}

// Images yields samples of one field, jpg: the first bytes of a JPEG file, then
// random bytes. Programs take them for JPEG files, and they compress as little, but
// they cannot be decoded.
func Images(o Options) iter.Seq[Sample] {
	return o.samples(100_000, 1, func(g *generator, s *Sample, _ int) {
		s.Fields = append(s.Fields, Field{"jpg", g.image(0, g.size())})
	})
}

// Tensors yields samples of one field, u8: MeanSize random bytes each, by default as
// many as three planes of 224 by 224 have.
func Tensors(o Options) iter.Seq[Sample] {
	size := o.MeanSize
	if size == 0 {
		size = 3 * 224 * 224
	}
	return o.samples(size, 1, func(g *generator, s *Sample, _ int) {
		s.Fields = append(s.Fields, Field{"u8", g.random(0, size, "")})
	})
}

// samples yields o.Samples samples whose fields fill appends, with keys below
// folders of at most folderFiles files. Every range over it starts anew.
func (o Options) samples(mean, fields int, fill func(g *generator, s *Sample, folder int)) iter.Seq[Sample] {
	if o.MeanSize > 0 {
		mean = o.MeanSize
	}
	perFolder := folderFiles / fields
	return func(yield func(Sample) bool) {
		g := newGenerator(o.Seed, mean)
		var s Sample
		for i := range o.Samples {
			folder := i / perFolder
			s.Key = fmt.Sprintf("%04d/%016x", folder, scramble(uint64(i)+scramble(o.Seed)))
			s.Fields = s.Fields[:0]
			fill(g, &s, folder)
			if !yield(s) {
				return
			}
		}
	}
}

// scramble maps 64-bit numbers one to one onto numbers that look random: the
// finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
