package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

var (
	errLevels  = errors.New("its levels end before its values do")
	errIndexes = errors.New("its dictionary indexes end before its values do")
)

// runs walks data in the hybrid of run lengths and bit packing that levels and dictionary indexes are stored in, until n values
// have been seen, and tells each of how many values of what kind there are: seen gets a repeated value, or n packed ones.
func runs(p []byte, width, n int, short error, seen func(value uint64, n int, packed []byte) error) error {
	for n > 0 {
		head, k := binary.Uvarint(p)
		if k <= 0 {
			return short
		}
		p = p[k:]
		count := head >> 1
		if head&1 == 0 {
			size := (width + 7) / 8
			if len(p) < size || count > math.MaxInt32 {
				return short
			}
			var value [8]byte
			copy(value[:], p[:size])
			p = p[size:]
			take := int(min(count, uint64(n)))
			if err := seen(binary.LittleEndian.Uint64(value[:]), take, nil); err != nil {
				return err
			}
			n -= take
			continue
		}
		if width > 0 && count > uint64(len(p)/width)+1 || count > math.MaxInt32/8 { // the last group may be cut short
			return short
		}
		take := int(min(8*count, uint64(n)))
		size := min(int(count)*width, len(p))
		if (take*width+7)/8 > size {
			return short
		}
		if err := seen(0, take, p[:size]); err != nil {
			return err
		}
		p = p[size:]
		n -= take
	}
	return nil
}

// checkLevels makes sure that there are n levels, none above most, and counts those that are most. The library goes on forever
// where levels end early.
func checkLevels(p []byte, most int16, n int) (atMost int, err error) {
	width := bits.Len16(uint16(most))
	above := func(level uint64) error { return fmt.Errorf("it has a level of %d, the schema allows %d", level, most) }
	err = runs(p, width, n, errLevels, func(value uint64, n int, packed []byte) error {
		switch {
		case packed == nil && value > uint64(most):
			return above(value)
		case packed == nil && value == uint64(most):
			atMost += n
		case packed == nil:
		case width == 1:
			atMost += ones(packed, n)
		default:
			for i := range n {
				level := bitsAt(packed, i*width, width)
				if level > uint64(most) {
					return above(level)
				}
				if level == uint64(most) {
					atMost++
				}
			}
		}
		return nil
	})
	return atMost, err
}

// ones counts set bits among the first n.
func ones(p []byte, n int) int {
	count := 0
	for ; n >= 64; n -= 64 {
		count += bits.OnesCount64(binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	for ; n > 0; n -= 8 {
		b := p[0]
		if n < 8 {
			b &= 1<<n - 1
		}
		count += bits.OnesCount8(b)
		p = p[1:]
	}
	return count
}

// bitsAt reads width bits, at most 64, that begin at a bit; what lies behind p counts as zeros.
func bitsAt(p []byte, bit, width int) uint64 {
	var raw [9]byte
	at, shift := bit>>3, bit&7
	if at+9 <= len(p) {
		v := binary.LittleEndian.Uint64(p[at:]) >> shift
		if shift > 0 {
			v |= uint64(p[at+8]) << (64 - shift)
		}
		return v & (math.MaxUint64 >> (64 - width))
	}
	copy(raw[:], p[min(at, len(p)):])
	v := binary.LittleEndian.Uint64(raw[:]) >> shift
	if shift > 0 {
		v |= uint64(raw[8]) << (64 - shift)
	}
	return v & (math.MaxUint64 >> (64 - width))
}

// checkIndexes looks at the dictionary indexes of n values. The library makes room for the highest index that it meets before
// it compares it with the dictionary: where the width of indexes allows more than twice the dictionary, each is looked at.
func checkIndexes(p []byte, n, dictionary int) error {
	switch {
	case n == 0:
		return nil
	case len(p) == 0:
		return errIndexes
	case p[0] > 32:
		return fmt.Errorf("its dictionary indexes are %d bits wide, at most 32 are allowed", p[0])
	case dictionary == 0:
		return errors.New("it has values, its dictionary has none")
	}
	width := int(p[0])
	if uint64(1)<<width <= 2*uint64(dictionary) {
		return nil
	}
	return runs(p[1:], width, n, errIndexes, func(value uint64, n int, packed []byte) error {
		for i := 0; packed != nil && i < n; i++ {
			value = max(value, bitsAt(packed, i*width, width))
		}
		if value >= uint64(dictionary) {
			return fmt.Errorf("it has the dictionary index %d, the dictionary has %d values", value, dictionary)
		}
		return nil
	})
}

// appendZeroIndexes appends n dictionary indexes of 0 as one run of one bit each. Writers give a
// dictionary of one value indexes of no bits, with runs or without any, which the library does not
// read.
func appendZeroIndexes(dst []byte, n int) []byte {
	dst = binary.AppendUvarint(append(dst, 1), uint64(n)<<1)
	return append(dst, 0)
}
