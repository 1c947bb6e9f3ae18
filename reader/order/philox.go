package order

// Philox4x32-10 of Random123 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011). The constants are part of the order: changing one changes every order.
const (
	philoxM0 = 0xD2511F53
	philoxM1 = 0xCD9E8D57
	philoxW0 = 0x9E3779B9 // golden ratio
	philoxW1 = 0xBB67AE85 // sqrt(3)-1
)

// Domains of WORDS (SPEC.md, "Random words"): which decision the words are for. 4 is not used, 5
// and 6 are kept for views and units, 7 is domainSeed.
const (
	domainRuns   = 1 // obj 0: the runs of an epoch; obj 1: the slots of a lane under AffinityRun
	domainSlot   = 2 // obj q: the samples of slot q
	domainTick   = 3 // obj t: the samples of tick t
	laneBits     = 24
	maxLanes     = 1 << laneBits // lanes are 0..2^24-1
	maxEpochs    = 1 << 32       // epochs are 0..2^32-1
	objRuns      = 0
	objLaneSlots = 1
)

// philox is the ten-round block function: a counter of four words and a key of two to four random
// words.
func philox(c0, c1, c2, c3, k0, k1 uint32) (uint32, uint32, uint32, uint32) {
	for range 10 {
		c0, c1, c2, c3 = philoxRound(c0, c1, c2, c3, k0, k1)
		k0, k1 = k0+philoxW0, k1+philoxW1
	}
	return c0, c1, c2, c3
}

func philoxRound(c0, c1, c2, c3, k0, k1 uint32) (uint32, uint32, uint32, uint32) {
	p0, p1 := uint64(philoxM0)*uint64(c0), uint64(philoxM1)*uint64(c2)
	return uint32(p1>>32) ^ c1 ^ k0, uint32(p1), uint32(p0>>32) ^ c3 ^ k1, uint32(p0)
}

// words is the sequence WORDS(key, dom, lane, epoch, obj).
type words struct {
	k0, k1     uint32
	obj, epoch uint32
	domLane    uint32
}

func newWords(key uint64, dom, lane, epoch, obj uint32) words {
	return words{k0: uint32(key), k1: uint32(key >> 32), obj: obj, epoch: epoch, domLane: dom<<laneBits | lane}
}

// four returns words 4b..4b+3.
func (w words) four(b uint32) [4]uint32 {
	x0, x1, x2, x3 := philox(b, w.obj, w.epoch, w.domLane, w.k0, w.k1)
	return [4]uint32{x0, x1, x2, x3}
}

// ahead puts words 4b onwards into draws, a multiple of eight of them but no more than it takes to
// have n. It returns how many these are.
func (w words) ahead(draws *[64]uint32, b uint32, n int) int {
	at := 0
	for ; at < len(draws) && at < n; at += 8 {
		w.eight((*[8]uint32)(draws[at:]), b)
		b += 2
	}
	return at
}

// eight is four for b and b+1. The processor computes both at the same time, as neither waits for
// the other.
func (w words) eight(to *[8]uint32, b uint32) {
	x0, x1, x2, x3 := b, w.obj, w.epoch, w.domLane
	y0, y1, y2, y3 := b+1, w.obj, w.epoch, w.domLane
	k0, k1 := w.k0, w.k1
	for range 5 { // two rounds each: unrolled so far, the values need not change places
		x0, x1, x2, x3 = philoxRound(x0, x1, x2, x3, k0, k1)
		y0, y1, y2, y3 = philoxRound(y0, y1, y2, y3, k0, k1)
		k0, k1 = k0+philoxW0, k1+philoxW1
		x0, x1, x2, x3 = philoxRound(x0, x1, x2, x3, k0, k1)
		y0, y1, y2, y3 = philoxRound(y0, y1, y2, y3, k0, k1)
		k0, k1 = k0+philoxW0, k1+philoxW1
	}
	*to = [8]uint32{x0, x1, x2, x3, y0, y1, y2, y3}
}

// bounded is one draw of BOUNDED(n) from the word x (Lemire, "Fast random integer generation in an
// interval", 2019). If ok is false, draw again.
func bounded(x, n uint32) (j uint32, ok bool) {
	m := uint64(x) * uint64(n)
	// (2^32-n) mod n is below n, so the division is needed only when the low half is too.
	low := uint32(m)
	return uint32(m >> 32), low >= n || low >= -n%n
}

// manyValues are more than the first cache holds, or nearly so.
const manyValues = 1 << 12

// shuffle is SHUFFLE: Fisher-Yates from the top, every permutation equally likely. a is shorter
// than 2^32. Words are drawn ahead of the swaps, which takes two fifths off the time.
func shuffle[T uint32 | uint64](a []T, w words) {
	if len(a) > manyValues {
		shuffleMany(a, w)
		return
	}
	var draws [64]uint32
	i := len(a) - 1
	for b := uint32(0); i > 0; {
		n := w.ahead(&draws, b, i)
		b += uint32(n / 4)
		for _, x := range draws[:n] {
			j, ok := bounded(x, uint32(i)+1)
			if !ok {
				continue
			}
			a[i], a[j] = a[j], a[i]
			if i--; i == 0 {
				return
			}
		}
	}
}

// shuffleMany is shuffle for arrays larger than a cache, where nearly every swap would wait for
// memory: the draws do not depend on the array, so they are made ahead, and one read of each place
// brings the lines in side by side. Four times as fast as shuffle for 3e6 values, the same
// permutation.
func shuffleMany[T uint32 | uint64](a []T, w words) {
	var draws [256]uint32 // 256 lines of 64 bytes stay in the first cache until they are swapped
	var some [64]uint32
	i := len(a) - 1
	for b := uint32(0); i > 0; {
		n, top := 0, i
		for i > 0 && n <= len(draws)-len(some) {
			k := w.ahead(&some, b, i)
			b += uint32(k / 4)
			for _, x := range some[:k] {
				j, ok := bounded(x, uint32(i)+1)
				if !ok {
					continue
				}
				draws[n] = j
				n++
				if i--; i == 0 {
					break
				}
			}
		}
		touch(a, draws[:n])
		for _, j := range draws[:n] {
			a[top], a[j] = a[j], a[top]
			top--
		}
	}
}

// touch reads a at the places. It is not inlined, as the compiler would then see that nobody wants
// the sum.
//
//go:noinline
func touch[T uint32 | uint64](a []T, places []uint32) (sum T) {
	for _, j := range places {
		sum += a[j]
	}
	return sum
}
