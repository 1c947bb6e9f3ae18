package npy

import "math"

// Half decodes a number of IEEE 754 binary16.
func Half(b uint16) float64 {
	sign, exponent, fraction := float64(1), int(b>>10&31), float64(b&1023)
	if b>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1+fraction/1024, exponent-15)
}
