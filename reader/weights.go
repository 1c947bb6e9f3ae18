package reader

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/shardtool/shardtool/internal/order/mix"
)

// sourceSize is the size of a source, on which the weights depend.
type sourceSize struct {
	units  uint64 // of an epoch
	tokens uint64 // in them, the sum of Spec.Count; only shares of tokens need it
}

// weights returns the segments of the mix: the weights that the shares give sources of these sizes.
func (s *Spec) weights(sizes []sourceSize) ([]mix.Segment, error) {
	first, err := s.firstWeights(sizes)
	if err != nil {
		return nil, err
	}
	segments := []mix.Segment{{Weights: first}}
	for i, g := range s.Segments {
		weights, err := s.quantize(g.Shares, sizes)
		if err != nil {
			return nil, s.fail(g.Line, fmt.Sprintf("segments[%d].weights", i), err)
		}
		segments = append(segments, mix.Segment{At: g.At, Weights: weights})
	}
	return segments, nil
}

// firstWeights returns the weights at position 0.
func (s *Spec) firstWeights(sizes []sourceSize) ([]uint64, error) {
	shares := make([]*big.Rat, len(s.Sources))
	weights := make([]uint64, len(s.Sources))
	for i := range s.Sources {
		var err error
		switch x := &s.Sources[i]; {
		case s.Temperature != nil:
			shares[i], err = mix.Temperature(sizes[i].units, s.Temperature[0], s.Temperature[1])
		case x.Share != nil:
			shares[i] = x.Share
		default:
			shares[i] = new(big.Rat)
		}
		if err != nil {
			return nil, s.fail(0, "temperature", err)
		}
		weights[i] = sizes[i].units
	}
	if !s.weighted() {
		return weights, nil // each sample once in an epoch
	}
	weights, err := s.quantize(shares, sizes)
	if err != nil {
		return nil, s.located(0, "sources", err)
	}
	return weights, nil
}

// weighted reports whether the spec has shares for position 0.
func (s *Spec) weighted() bool {
	return s.Temperature != nil || slices.ContainsFunc(s.Sources, func(x SourceSpec) bool { return x.Share != nil })
}

func (s *Spec) quantize(shares []*big.Rat, sizes []sourceSize) ([]uint64, error) {
	names := make([]string, len(shares))
	shares = slices.Clone(shares)
	for i := range shares {
		names[i] = s.Sources[i].Name
		if s.Count == "" {
			continue
		}
		var err error
		if shares[i], err = mix.PerToken(shares[i], sizes[i].tokens, sizes[i].units); err != nil {
			return nil, &mix.SourceError{Source: names[i], Err: err}
		}
	}
	return mix.Quantize(names, shares)
}

// counts reports whether a share of source i counts an attribute.
func (s *Spec) counts(i int) bool {
	share := s.Sources[i].Share
	return s.Count != "" && (s.Temperature != nil || share != nil && share.Sign() > 0 ||
		slices.ContainsFunc(s.Segments, func(g Segment) bool { return g.Shares[i].Sign() > 0 }))
}

// epochLength returns the length of an epoch of a mix that has everything else.
func (s *Spec) epochLength(m mix.Mix) (uint64, error) {
	switch {
	case s.Length.Units > 0:
		return s.Length.Units, nil
	case s.Length.Rule == "" && !s.weighted():
		var total uint64
		for _, w := range m.Segments[0].Weights {
			total += w
		}
		return total, nil
	case s.Length.Rule == "":
		return m.EpochLength(mix.EpochAll)
	}
	return m.EpochLength(s.Length.Rule)
}
