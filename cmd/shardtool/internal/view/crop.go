package view

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"strings"
)

// cropping is which part of an image a program uses: the arguments of shardtool.Image in Python. They
// are not in a checkpoint, so the page of a step asks for them.
type cropping struct {
	Height, Width int
	Crop          string // center, random or none
	Flip          bool
	Scale, Ratio  [2]float64
}

// drawn is the part of an image of Of[0] × Of[1] pixels that a sample's seed chooses. It is resized to
// To[0] × To[1], and mirrored after that.
type drawn struct {
	Left, Top, Width, Height float64
	Mirrored                 bool
	Of, To                   [2]int
}

// Turn is where a mirrored image begins, so that the part stays where it is.
func (d *drawn) Turn() float64 { return 2*d.Left + d.Width }

// croppingOf reads the arguments out of a query; nil where it has no size.
func croppingOf(q url.Values) (*cropping, error) {
	size := q.Get("size")
	if size == "" {
		return nil, nil
	}
	c := &cropping{Crop: cmp.Or(q.Get("crop"), "center"), Flip: q.Get("flip") != "", Scale: [2]float64{0.08, 1}, Ratio: [2]float64{3.0 / 4, 4.0 / 3}}
	numbers := [2]float64{}
	if !pair(size, &numbers) && !pair(size+","+size, &numbers) || numbers[0] > 1<<14 || numbers[1] > 1<<14 {
		return nil, wrong("size: %q is neither a number of pixels nor a height and a width, such as 224,320", clean(size, 40))
	}
	c.Height, c.Width = int(numbers[0]), int(numbers[1])
	if c.Height < 1 || c.Width < 1 || float64(c.Height) != numbers[0] || float64(c.Width) != numbers[1] {
		return nil, wrong("size: %q are not whole pixels", clean(size, 40))
	}
	if c.Crop != "center" && c.Crop != "random" && c.Crop != "none" {
		return nil, wrong("crop: %q is not center, random or none", clean(c.Crop, 40))
	}
	for name, to := range map[string]*[2]float64{"scale": &c.Scale, "ratio": &c.Ratio} {
		if text := q.Get(name); text != "" && !pair(text, to) || to[0] > to[1] || c.Scale[1] > 1 {
			return nil, wrong("%s: %q are not the least and the greatest, such as %s; a scale is at most 1", name, clean(text, 40),
				map[string]string{"scale": "0.08,1", "ratio": "3/4,4/3"}[name])
		}
	}
	return c, nil
}

// pair reads two positive numbers: decimals or fractions.
func pair(text string, to *[2]float64) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == 'x' })
	for i, word := range words {
		n, ok := new(big.Rat).SetString(word)
		if len(words) != 2 || len(word) > 24 || strings.Trim(word, "0123456789./") != "" || !ok || n.Sign() <= 0 {
			return false
		}
		to[i], _ = n.Float64()
	}
	return len(words) == 2
}

// of draws the part of an image from a seed, with the arithmetic of Pixels._decode in
// python/src/shardtool/read/decoding.py.
func (c *cropping) of(width, height int, seed uint64) *drawn {
	draw := newTwister(seed)
	d := c.box(draw, float64(width), float64(height))
	d.Mirrored = c.Flip && draw.random() < 0.5
	d.Of, d.To = [2]int{width, height}, [2]int{c.Width, c.Height}
	return d
}

func (c *cropping) box(draw *twister, width, height float64) *drawn {
	switch c.Crop {
	case "none":
		return &drawn{Width: width, Height: height}
	case "center":
		rows, columns := float64(c.Height), float64(c.Width)
		part := min(width/columns, height/rows) * 7 / 8
		w, h := columns*part, rows*part
		return &drawn{Left: (width - w) / 2, Top: (height - h) / 2, Width: w, Height: h}
	}
	// A product that is converted is rounded, as Python does: no machine may fuse it with a sum.
	between := func(low, high float64) float64 { return low + float64((high-low)*draw.random()) }
	for range 10 {
		area := width * height * between(c.Scale[0], c.Scale[1])
		aspect := math.Exp(between(math.Log(c.Ratio[0]), math.Log(c.Ratio[1])))
		w, h := math.RoundToEven(math.Sqrt(area*aspect)), math.RoundToEven(math.Sqrt(area/aspect))
		left, top := draw.random(), draw.random()
		if 0 < w && w <= width && 0 < h && h <= height {
			return &drawn{Left: math.Trunc(left * (width - w + 1)), Top: math.Trunc(top * (height - h + 1)), Width: w, Height: h}
		}
	}
	w := min(width, max(1, math.RoundToEven(height*c.Ratio[1])))
	h := min(height, max(1, math.RoundToEven(width/c.Ratio[0])))
	return &drawn{Left: math.Floor((width - w) / 2), Top: math.Floor((height - h) / 2), Width: w, Height: h}
}

// String says what is drawn.
func (d *drawn) String() string {
	text := fmt.Sprintf("%.5g × %.5g pixels at %.5g, %.5g become %d × %d", d.Width, d.Height, d.Left, d.Top, d.To[0], d.To[1])
	if d.Mirrored {
		text += ", mirrored"
	}
	return text
}

// twister is the generator of Python's random.Random: MT19937 of M. Matsumoto and T. Nishimura,
// "Mersenne Twister", ACM TOMACS 8 (1998), seeded with the words of a number, the lowest first.
type twister struct {
	words [624]uint32
	at    int
}

func newTwister(seed uint64) *twister {
	t := &twister{}
	s := &t.words
	s[0] = 19650218
	for i := 1; i < len(s); i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	key := []uint32{uint32(seed), uint32(seed >> 32)}
	if key[1] == 0 {
		key = key[:1]
	}
	i := 1
	mix := func(by, plus uint32) {
		s[i] = s[i] ^ (s[i-1]^s[i-1]>>30)*by + plus
		if i++; i == len(s) {
			s[0], i = s[i-1], 1
		}
	}
	for k := range s {
		j := k % len(key)
		mix(1664525, key[j]+uint32(j))
	}
	for range len(s) - 1 {
		mix(1566083941, -uint32(i))
	}
	s[0] = 1 << 31
	return t
}

// word returns the next 32 bits.
func (t *twister) word() uint32 {
	s, i := &t.words, t.at
	n := len(s)
	y := s[i]&(1<<31) | s[(i+1)%n]&(1<<31-1)
	s[i] = s[(i+397)%n] ^ y>>1 ^ (y&1)*0x9908b0df
	t.at = (i + 1) % n
	y = s[i] ^ s[i]>>11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// random returns the next number in [0, 1), of 53 bits.
func (t *twister) random() float64 {
	high, low := t.word()>>5, t.word()>>6
	return float64(uint64(high)<<26|uint64(low)) / (1 << 53)
}
