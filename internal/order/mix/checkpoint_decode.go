package mix

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/internal/order/members"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// DecodeCheckpoint reads the text of one checkpoint of a mix. Blanks and the order of members are
// free; anything else that AppendCheckpoint does not write is refused, and the error names the
// member and the source. A checkpoint whose members were changed after it was written fails its
// check: the error is then order.ErrEdited, and the checkpoint is returned with it.
func DecodeCheckpoint(text []byte) (Checkpoint, error) {
	c, check, err := decode(text)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	_, sum, err := members.Seal(c.text())
	if err != nil {
		return Checkpoint{}, err
	}
	if check != sum {
		return c, order.ErrEdited
	}
	return c, nil
}

func decode(text []byte) (c Checkpoint, check string, err error) {
	r, err := members.Parse(text, maxRead)
	if err != nil {
		return c, "", err
	}
	if err := checkVersion(r); err != nil {
		return c, "", err
	}
	c.Seed = r.Word("seed")
	c.Position = r.Number("position")
	r.Into("shuffle", &c.Shuffle)
	c.Tail = order.Tail(r.Text("tail"))
	c.Epoch = r.Number("epoch_length")
	r.Into("global_batch", &c.Steps.GlobalBatch)
	var stepsText json.RawMessage
	r.Into("steps", &stepsText)
	steps := members.Numbers(stepsText)
	at := r.Number("at")
	c.From = r.Number("from")
	var fields []string
	r.Into("fields", &fields)
	known := sourceFields
	if r.Has("units") {
		known = slices.Concat(sourceFields, unitFields)
	}
	var sources [][]json.RawMessage
	r.Into("sources", &sources)
	var segments, ranges []json.RawMessage
	r.Into("segments", &segments)
	var steered []uint64
	if c.Steered = r.Has("steered"); c.Steered {
		var text json.RawMessage
		r.Into("steered", &text)
		steered = members.Numbers(text)
	}
	r.Into("left_out", &ranges)
	c.SkipHash = r.Text("skip_hash")
	c.Skipped = r.Number("skipped")
	check = r.Text("check")
	if err := r.End(); err != nil {
		return c, "", err
	}
	switch {
	case len(steps) != 2:
		return c, "", errors.New("steps: give a step and a position")
	case !slices.Equal(fields, known):
		return c, "", fmt.Errorf("fields: they are not %v", known)
	case len(sources) > MaxSources:
		return c, "", fmt.Errorf("sources: %d of them, at most %d", len(sources), MaxSources)
	case len(segments) >= MaxSegments:
		return c, "", fmt.Errorf("segments: %d of them, at most %d", len(segments), MaxSegments-1)
	case (len(segments)+1)*len(sources) > MaxWeights: // before there is room for them
		return c, "", fmt.Errorf("segments: %d of %d sources, at most %d weights", len(segments), len(sources),
			MaxWeights)
	}
	c.Steps.Step, c.Steps.Position = steps[0], steps[1]
	weights, err := c.decodeSources(sources, known)
	if err != nil {
		return c, "", err
	}
	c.Segments = []Segment{{At: at, Weights: weights}}
	if c.Steered && !slices.Equal(steered, c.Segments[0].text()) {
		return c, "", errors.New("steered: it is not the current segment")
	}
	if err := c.decodeSegments(segments); err != nil {
		return c, "", err
	}
	if err := c.decodeRanges(ranges); err != nil {
		return c, "", err
	}
	return c, check, c.validate()
}

// checkVersion runs before the members are read, because the members of another version are not
// known.
func checkVersion(r *members.Object) error {
	switch version := r.Number("version"); {
	case r.Err() == nil && version == order.CheckpointVersion:
		return fmt.Errorf("version %d is for one data set: resume with the data set", version)
	case r.Err() != nil || version != CheckpointVersion:
		return fmt.Errorf("version %.40s, a mix has %d: use the program that wrote it", r.Raw("version"),
			CheckpointVersion)
	}
	r.Is("algorithm", Algorithm)
	r.Is("order", order.Algorithm)
	if r.Has("units") { // else positions hold samples
		r.Is("units", order.UnitsAlgorithm)
	}
	return r.Err()
}

// decodeSources returns the current weights.
func (c *Checkpoint) decodeSources(sources [][]json.RawMessage, fields []string) ([]uint64, error) {
	var weights []uint64
	for i, values := range sources {
		if len(values) != len(fields) {
			return nil, fmt.Errorf("sources: number %d is not an array of %d values", i, len(fields))
		}
		of := make(map[string]json.RawMessage, len(values))
		for k, value := range values {
			of[fields[k]] = value
		}
		s, weight, err := c.decodeSource(members.New(of))
		if err != nil {
			return nil, &SourceError{s.Name, err}
		}
		c.Sources = append(c.Sources, s)
		weights = append(weights, weight)
	}
	return weights, nil
}

func (c *Checkpoint) decodeSource(r *members.Object) (s Source, weight uint64, err error) {
	s.Name, s.Digest, s.Tables = r.Text("name"), r.Text("digest"), r.Text("tables")
	s.View = r.Text("view")
	key := r.Word("key")
	s.Units = r.Number("N")
	r.Into("V", &s.Lanes)
	r.Into("E", &s.RunBlocks)
	r.Into("W", &s.Delay)
	r.Into("H", &s.Head)
	s.Affinity = order.Affinity(r.Text("affinity"))
	s.MaxEpochs = r.Number("max_epochs")
	s.Epoch, s.First, s.Base, weight = r.Number("epoch"), r.Number("first"), r.Number("base"), r.Number("weight")
	if r.Has("kind") {
		s.Unit.Kind, s.Unit.Long, s.Unit.By = units.Kind(r.Text("kind")), units.Long(r.Text("long")), r.Text("by")
		r.Into("size", &s.Unit.Size)
		r.Into("window", &s.Unit.Window)
		s.Lengths = r.Text("lengths")
	}
	switch {
	case r.Err() != nil:
		return s, 0, r.Err()
	case key != Key(c.Seed, s.Name):
		return s, 0, fmt.Errorf("key %d does not belong to the seed and the name", key)
	case s.MaxEpochs == 0:
		return s, 0, members.Bad("max_epochs", 0)
	}
	return s, weight, nil
}

func (c *Checkpoint) decodeSegments(segments []json.RawMessage) error {
	for i, text := range segments {
		pairs := members.Numbers(text)
		if len(pairs) < 3 || len(pairs)%2 == 0 {
			return fmt.Errorf("segments: number %d is not a position with pairs of a source and its weight", i)
		}
		g := Segment{At: pairs[0], Weights: make([]uint64, len(c.Sources))}
		for k := 1; k < len(pairs); k += 2 {
			s, w := pairs[k], pairs[k+1]
			if s >= uint64(len(c.Sources)) || w == 0 || k > 1 && s <= pairs[k-2] {
				return fmt.Errorf("segments: the segment at %d: source %d with weight %d: give sources that there are, in ascending order, and weights above 0", g.At, s, w)
			}
			g.Weights[s] = w
		}
		c.Segments = append(c.Segments, g)
	}
	return nil
}

func (c *Checkpoint) decodeRanges(ranges []json.RawMessage) error {
	for i, text := range ranges {
		ends := members.Numbers(text)
		if len(ends) != 2 {
			return fmt.Errorf("left_out: number %d is not a pair of positions", i)
		}
		c.LeftOut = append(c.LeftOut, Range{ends[0], ends[1]})
	}
	return nil
}
