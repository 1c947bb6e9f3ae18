package curate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// maxWeight bounds a weight: larger ones are no weights but mistakes.
const maxWeight = 1e300

// weigh makes v, a subset, a view with weights. Samples that are not chosen have weight 0.
func (m *maker) weigh(ctx context.Context, v *viewfile.View) error {
	s := m.spec
	var err error
	if s.Balance != "" {
		v.Weights, v.Classes, err = m.balance(ctx, v.Chosen)
	} else {
		v.Weights, err = m.values(ctx, v.Chosen)
	}
	if err != nil {
		return err
	}
	v.Chosen = nil
	for _, u := range v.Weights {
		if u > 0 {
			m.report.Chosen++
		}
	}
	v.Draws = cmp.Or(s.Draws, m.report.Chosen)
	if m.report.Chosen == 0 {
		return fmt.Errorf("%w: all weights are 0", ErrEmpty)
	}
	m.report.Samples = v.Draws
	return nil
}

// values reads weights from an attribute or from scores.
func (m *maker) values(ctx context.Context, chosen []byte) ([]uint32, error) {
	w := make([]float64, m.d.NumSamples())
	for i := range w {
		w[i] = math.NaN() // no value
	}
	var err error
	if m.spec.Scores != nil {
		err = m.scores(ctx, w)
	} else {
		err = m.column(ctx, w)
	}
	if err != nil {
		return nil, err
	}
	var without uint64
	var some []uint64
	for i := range w {
		switch has := chosen[i/8]>>(i%8)&1 != 0; {
		case !has:
			w[i] = 0
		case w[i] == w[i]:
		case m.spec.Default != nil:
			w[i] = *m.spec.Default
		default:
			if without++; without <= mostNamed {
				some = append(some, uint64(i))
			}
		}
	}
	if without > 0 {
		missing := Missing{Count: without}
		for _, number := range some {
			key, err := m.keyOf(ctx, number)
			if err != nil {
				return nil, err
			}
			missing.Some = append(missing.Some, key)
		}
		return nil, hint.With(missingf("%d samples have no weight:%s; give a default, or choose samples that have one",
			without, missing.String()), hint.Option("default"))
	}
	return m.quantize(w), nil
}

// column reads weights from an attribute.
func (m *maker) column(ctx context.Context, w []float64) error {
	name := m.spec.Weight
	a, ok := m.d.HasAttribute(name)
	if !ok {
		return specf("%w", hint.Optionf("weight", "%s", noAttribute(m.d.Info().Attributes, name)))
	}
	if a.Kind == format.AttrLabel {
		return specf("%w", hint.Optionf("weight", "the attribute %s is a label: weights are numbers", name))
	}
	return m.eachShard(ctx, []string{name}, func(first uint64, columns []metadata.AttrColumn, samples int) error {
		if columns[0].Name == "" {
			return nil
		}
		for i := range samples {
			v, there := columns[0].At(i)
			if !there {
				continue
			}
			x := v.Number
			if v.Kind == format.AttrInteger {
				x = float64(v.Integer)
			}
			if err := checkWeight(x); err != nil {
				key, kerr := m.keyOf(ctx, first+uint64(i))
				if kerr != nil {
					return kerr
				}
				return specf("%w", hint.Optionf("weight", "the %s of sample %d, key %q, is %v: %w", name,
					first+uint64(i), key, x, err))
			}
			w[first+uint64(i)] = x
		}
		return nil
	})
}

func checkWeight(x float64) error {
	switch {
	case x != x:
		return fmt.Errorf("not a number")
	case x < 0:
		return fmt.Errorf("weights are not negative")
	case x > maxWeight:
		return fmt.Errorf("weights are at most %v", maxWeight)
	}
	return nil
}

// quantize makes weights integers below 2^32. Integers that are small enough stay as they are.
// Others are multiplied by a power of two that brings the largest to 2^31 or more, and rounded
// down: their proportions are exact to 2^-31 of the largest. No weight above 0 becomes 0.
func (m *maker) quantize(w []float64) []uint32 {
	largest, whole := 0., true
	for _, x := range w {
		largest = max(largest, x)
		whole = whole && x == math.Trunc(x)
	}
	u := make([]uint32, len(w))
	most := 32 // bits of a weight; the sum stays below 2^63
	for uint64(len(w))>>(63-most) > 0 {
		most--
	}
	shift := 0
	if _, exponent := math.Frexp(largest); !whole || exponent > most {
		shift = most - exponent
	}
	for i, x := range w {
		if x > 0 {
			u[i] = uint32(math.Ldexp(x, shift))
			if u[i] == 0 {
				u[i] = 1
				m.report.Raised++
			}
		}
	}
	return u
}

// balance returns the class of each sample, which is the class of its value, counted from 1, or 0
// for none, and the weights of the classes.
func (m *maker) balance(ctx context.Context, chosen []byte) ([]uint32, []uint64, error) {
	name := m.spec.Balance
	if _, ok := m.d.HasAttribute(name); !ok {
		return nil, nil, specf("%w", hint.Optionf("balance", "%s", noAttribute(m.d.Info().Attributes, name)))
	}
	class := make([]uint32, m.d.NumSamples())
	numbers := map[string]uint32{}
	var counts []uint64
	var mu sync.Mutex
	err := m.eachShard(ctx, []string{name}, func(first uint64, columns []metadata.AttrColumn, samples int) error {
		c := &columns[0]
		own := map[uint64]uint32{} // by value as it is stored
		values, absent := c.Raw()
		mu.Lock()
		defer mu.Unlock()
		for i := range samples {
			number := first + uint64(i)
			if chosen[number/8]>>(number%8)&1 == 0 {
				continue
			}
			if c.Name == "" || absent != nil && absent[i/8]>>(i%8)&1 != 0 {
				m.report.WithoutValue++
				continue
			}
			k, known := own[values[i]]
			if !known {
				text := valueText(c, i)
				if k, known = numbers[text]; !known {
					counts = append(counts, 0)
					k = uint32(len(counts))
					numbers[text] = k
				}
				own[values[i]] = k
			}
			counts[k-1]++
			class[number] = k
		}
		return nil
	})
	return class, proportions(counts, m.spec.Temperature[0], max(m.spec.Temperature[1], 1)), err
}

func valueText(c *metadata.AttrColumn, i int) string {
	v, _ := c.At(i)
	return fmt.Sprint(metadata.Value(v))
}

// proportions returns weights of classes with these numbers of samples at temperature p/q, in
// proportion to c^(p/q). They add up to less than 2^62.
//
// Where all proportions are rational they are exact. If they are not, the number of draws that is
// expected of a class is whole for none, because sums of roots are then irrational: the weights are
// then as fine as the limit allows, and rounded down. All is computed in integers.
func proportions(counts []uint64, p, q int) []uint64 {
	var divisor uint64
	for _, c := range counts {
		for a := c; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	powers, roots := map[uint64]*big.Int{}, map[uint64]uint64{}
	exact, sum := true, uint64(0)
	for _, c := range counts {
		if powers[c] == nil {
			powers[c] = power(c/divisor, p)
			roots[c] = root(powers[c], q)
			exact = exact && power(roots[c], q).Cmp(powers[c]) == 0
		}
		sum += roots[c] + 1
	}
	if shift := 62 - bits.Len64(sum); !exact && shift > 0 {
		for c, x := range powers {
			roots[c] = root(new(big.Int).Lsh(x, uint(shift*q)), q)
		}
	}
	weights := make([]uint64, len(counts))
	for k, c := range counts {
		weights[k] = roots[c]
	}
	return weights
}

func power(x uint64, n int) *big.Int {
	return new(big.Int).Exp(new(big.Int).SetUint64(x), big.NewInt(int64(n)), nil)
}

// root returns the largest u below 2^62 with u^q ≤ x.
func root(x *big.Int, q int) uint64 {
	low, high := uint64(0), min(uint64(1)<<(x.BitLen()/q+1), 1<<62)-1
	for low < high {
		middle := (low + high + 1) / 2
		if power(middle, q).Cmp(x) <= 0 {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// Made describes the spec, for the label of a view.
func (s *Spec) Made() map[string]string {
	made := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			made[name] = value
		}
	}
	set("where", strings.Join(s.Where, " and "))
	for name, list := range map[string]*KeyList{"keys": s.Keys, "without_keys": s.WithoutKeys} {
		if list != nil {
			made[name] = list.Name
		}
	}
	set("weight", s.Weight)
	if s.Scores != nil {
		made["weight"] = s.Scores.Name
	}
	set("balance", s.Balance)
	if s.Temperature[1] > 0 {
		made["temperature"] = fmt.Sprintf("%d/%d", s.Temperature[0], s.Temperature[1])
	}
	if s.Draws > 0 {
		made["draws"] = fmt.Sprint(s.Draws)
	}
	return made
}
