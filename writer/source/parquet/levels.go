package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

var (
	errLevels  = errors.New("it has fewer levels than values")
	errIndexes = errors.New("it has fewer dictionary indexes than values")
)

// runs decodes n values of the hybrid of run lengths and bit packing that encodes levels and
// dictionary indexes. It calls seen once per run, with the repeated value or with n packed ones,
// and returns short if the data ends early.
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
		if width > 0 && count > uint64(len(p)/width)+1 || count > math.MaxInt32/8 { // the last group may be truncated
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

// checkLevels checks that there are n levels, none above most, and counts those equal to most. The
// library loops forever if levels end early.
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

// ones counts the set bits among the first n.
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

// bitsAt returns width bits, at most 64, from bit on. Bits after the end of p are 0.
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

// checkIndexes checks the dictionary indexes of n values. The library allocates for the highest
// index before it compares it with the dictionary, so each index is checked if their width allows
// more than twice the dictionary.
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

// appendZeroIndexes appends n dictionary indexes of 0 as one run of one bit each. For a dictionary
// of one value, writers store indexes of no bits, with or without runs, which the library cannot
// read.
func appendZeroIndexes(dst []byte, n int) []byte {
	dst = binary.AppendUvarint(append(dst, 1), uint64(n)<<1)
	return append(dst, 0)
}
