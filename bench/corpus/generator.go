package corpus

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"

	"github.com/shardtool/shardtool/testdata"
)

// jfif is how a JPEG file begins: start of image, then the JFIF segment.
const jfif = "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"

// wordStarts are the offsets in testdata.Prose where a word begins, and its end.
// A word includes the white space after it.
var wordStarts = sync.OnceValue(func() []uint32 {
	var starts []uint32
	inWord := false
	for i := range len(testdata.Prose) {
		c := testdata.Prose[i]
		word := c != ' ' && c != '\n'
		if word && !inWord {
			starts = append(starts, uint32(i))
		}
		inWord = word
	}
	return append(starts, uint32(len(testdata.Prose)))
})

// generator makes the fields of one corpus, in order, in buffers that it uses
// again for the next sample.
type generator struct {
	choice *rand.PCG
	noise  *rand.ChaCha8
	base   uint64 // size at popcount 0, times 2^16
	words  []uint32
	buf    [3][]byte // by the field's place in its sample
}

func newGenerator(seed uint64, mean int) *generator {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	g := &generator{
		choice: rand.NewPCG(seed, 0x73686172), // the stream: any constant
		noise:  rand.NewChaCha8(key),
		words:  wordStarts(),
	}
	// Popcounts average 32, and so the factor ratio^popcount averages
	// ((1+ratio)/2)^64; a step's straight line adds (1+ratio)/2 once more.
	// With ratio 1.25 that is 1.125^65 = 2113.5.
	g.base = uint64(mean) << 16 * 10 / 21135
	return g
}

// size draws a size. The number of ones among 64 random bits is binomial, which
// is as good as normal, with a deviation of 4; so 1.25 to that power is lognormal,
// with a deviation of 4·ln 1.25 = 0.89 in the logarithm. Between one power and
// the next it takes a straight line.
func (g *generator) size() int {
	s := g.base
	for range bits.OnesCount64(g.choice.Uint64()) {
		s += s >> 2
	}
	s += uint64(uint32(g.choice.Uint64())) * (s >> 18) >> 16
	return int(s >> 16)
}

// text puts runs of one to four words together until they reach size bytes. Runs
// that short leave zstd about what whole books leave it, at any window: longer
// ones would be found again, whole, megabytes back.
func (g *generator) text(field, size int) []byte {
	b := g.buf[field][:0]
	last := uint64(len(g.words) - 5)
	for len(b) < size || len(b) == 0 {
		r := g.choice.Uint64()
		first, _ := bits.Mul64(r, last)
		b = append(b, testdata.Prose[g.words[first]:g.words[first+1+r&3]]...)
	}
	g.buf[field] = b
	return b
}

// image is the start of a JPEG file and random bytes, size bytes together.
func (g *generator) image(field, size int) []byte {
	return g.random(field, max(size, len(jfif)), jfif)
}

// random is size random bytes, the first of them head.
func (g *generator) random(field, size int, head string) []byte {
	b := g.buf[field]
	if cap(b) < size {
		b = make([]byte, size+size/2)
	}
	b = b[:size]
	// ChaCha8.Read never returns an error, and keeps part of a word for the
	// next call: the bytes do not depend on how they are asked for.
	_, _ = g.noise.Read(b[copy(b, head):])
	g.buf[field] = b
	return b
}
