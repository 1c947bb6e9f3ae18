package mix

import (
	"encoding/json"
	"slices"
)

// Weights returns the weights that decide position g, by source number: the weights of its segment,
// with 0 for a source that is used up.
func (p *Plan) Weights(g uint64) ([]uint64, error) {
	w, err := p.walkTo(g)
	if err != nil {
		return nil, err
	}
	weights := slices.Clone(p.mix.Segments[w.segment].Weights)
	for s := range weights {
		if err := p.mix.Sources[s].stop(weights, s, w.base[s]); err != nil {
			return nil, err
		}
	}
	return weights, nil
}

// IsCheckpoint reports whether a text has the version of a mix's checkpoint. DecodeCheckpoint may
// still refuse it.
func IsCheckpoint(text []byte) bool {
	var of struct {
		Version int `json:"version"`
	}
	return json.Unmarshal(text, &of) == nil && of.Version == CheckpointVersion
}
