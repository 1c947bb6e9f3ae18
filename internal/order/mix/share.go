package mix

import "github.com/shardtool/shardtool/reader/order"

// Share is what a source gives in a range of positions, over all ranks, and before it. A data set
// that is read alone has one source without a name.
type Share struct {
	Name    string  `json:"source,omitempty"`
	Samples uint64  `json:"samples"` // of an epoch; units, of epoch 0
	Share   float64 `json:"share"`   // that its weight asks for
	// Samples before the step, and in it. Padding is not counted.
	Given      uint64  `json:"given"`
	GivenShare float64 `json:"given_share"`
	InStep     uint64  `json:"in_step"`
	StepShare  float64 `json:"step_share"`
	// Where its next sample is at the step; epoch of its last one.
	Epoch     uint64 `json:"epoch"`
	Place     uint64 `json:"place"`
	LastEpoch uint64 `json:"last_epoch"`
}

// Whole returns the one Share of a data set that is read alone, from a batch on. n is the number of
// samples or units of the batch's epoch.
func Whole(b *order.Batch, n, from, to uint64) []Share {
	s := Share{
		Samples: n, Share: 1, Given: from, GivenShare: Part(from, from), InStep: to - from, StepShare: 1,
		Epoch: b.Epoch, Place: b.Position, LastEpoch: b.NextEpoch,
	}
	if s.LastEpoch > s.Epoch && b.NextPosition == 0 {
		s.LastEpoch--
	}
	return []Share{s}
}

// Shares returns what all sources give in the positions from ≤ g < to.
func (p *Plan) Shares(from, to uint64) ([]Share, error) {
	before, err := p.Counts(nil, from)
	if err != nil {
		return nil, err
	}
	after, err := p.Counts(nil, to)
	if err != nil {
		return nil, err
	}
	weights, err := p.Weights(from)
	if err != nil {
		return nil, err
	}
	out := make([]Share, len(p.mix.Sources))
	for i := range out {
		of, s := &p.mix.Sources[i], &out[i]
		*s = Share{Name: of.Name, Samples: of.Units, Given: before[i], InStep: after[i] - before[i],
			Share: Part(weights[i], sum(weights))}
		s.GivenShare, s.StepShare = Part(before[i], from), Part(s.InStep, to-from)
		if s.Samples == 0 {
			continue
		}
		if s.Epoch, s.Place, err = of.Place(before[i]); err != nil {
			return nil, err
		}
		s.LastEpoch = s.Epoch
		if s.InStep > 0 {
			if s.LastEpoch, _, err = of.Place(after[i] - 1); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// Fractions returns the share of each weight, by number of the source.
func Fractions(weights []uint64) []float64 {
	out := make([]float64, len(weights))
	for i, w := range weights {
		out[i] = Part(w, sum(weights))
	}
	return out
}

// Part returns n / of, 0 where of is 0.
func Part(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
