package mix

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

var checkpointMembers = []string{
	"version", "algorithm", "order", "seed", "position", "shuffle", "tail", "epoch_length", "global_batch", "steps", "at", "from",
	"fields", "sources", "segments", "left_out", "skip_hash", "skipped", "check", "units",
}

// DecodeCheckpoint reads the text of one checkpoint of a mix. Blanks and the order of members are
// free; anything else that AppendCheckpoint does not write is refused, and the error names the
// member and the source. A checkpoint whose members were changed after it was written fails its
// check: the error is then order.ErrEdited, and the checkpoint is returned with it.
func DecodeCheckpoint(text []byte) (Checkpoint, error) {
	c, check, err := decode(text)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("mix: checkpoint: %w", err)
	}
	sum, err := c.sum()
	if err != nil {
		return Checkpoint{}, err
	}
	if check != sum {
		return c, order.ErrEdited
	}
	return c, nil
}

func decode(text []byte) (c Checkpoint, check string, err error) {
	if len(text) > maxRead {
		return c, "", fmt.Errorf("%d bytes, at most %d: this is another file", len(text), maxRead)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return c, "", fmt.Errorf("cut off or not JSON: %w", err)
	}
	if err := checkVersion(members); err != nil {
		return c, "", err
	}
	r := row{members: members}
	c.Seed = r.word("seed")
	c.Position = r.number("position")
	r.into("shuffle", &c.Shuffle)
	c.Tail = order.Tail(r.text("tail"))
	c.Epoch = r.number("epoch_length")
	r.into("global_batch", &c.Steps.GlobalBatch)
	steps := r.numbers("steps")
	at := r.number("at")
	c.From = r.number("from")
	var fields []string
	r.into("fields", &fields)
	known := sourceFields
	if _, inUnits := members["units"]; inUnits {
		known = slices.Concat(sourceFields, unitFields)
	}
	var sources []json.RawMessage
	r.into("sources", &sources)
	var segments []json.RawMessage
	r.into("segments", &segments)
	var ranges []json.RawMessage
	r.into("left_out", &ranges)
	c.SkipHash = r.text("skip_hash")
	c.Skipped = r.number("skipped")
	check = r.text("check")
	if r.err != nil {
		return c, "", r.err
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
		return c, "", fmt.Errorf("segments: %d of %d sources, at most %d weights", len(segments), len(sources), MaxWeights)
	}
	c.Steps.Step, c.Steps.Position = steps[0], steps[1]
	weights, err := c.decodeSources(sources, known)
	if err != nil {
		return c, "", err
	}
	c.Segments = []Segment{{At: at, Weights: weights}}
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
func checkVersion(members map[string]json.RawMessage) error {
	r := row{members: members}
	switch version := r.number("version"); {
	case r.err == nil && version == order.CheckpointVersion:
		return fmt.Errorf("version %d is for one data set: resume with the data set", version)
	case r.err != nil || version != CheckpointVersion:
		return fmt.Errorf("version %.40s, a mix has %d: use the program that wrote it", members["version"], CheckpointVersion)
	}
	for _, c := range []struct{ member, known string }{{"algorithm", Algorithm}, {"order", order.Algorithm}, {"units", order.UnitsAlgorithm}} {
		if _, has := members[c.member]; !has && c.member == "units" { // positions hold samples
			continue
		}
		if name := r.text(c.member); r.err != nil || name != c.known {
			return fmt.Errorf("%s %.40q, this program knows %q: use the program that wrote it", c.member, name, c.known)
		}
	}
	for name := range members {
		if !slices.Contains(checkpointMembers, name) {
			return fmt.Errorf("unknown member %.40q", name)
		}
	}
	return nil
}

// decodeSources returns the current weights.
func (c *Checkpoint) decodeSources(sources []json.RawMessage, fields []string) ([]uint64, error) {
	var weights []uint64
	for i, text := range sources {
		var values []json.RawMessage
		if err := json.Unmarshal(text, &values); err != nil || len(values) != len(fields) {
			return nil, fmt.Errorf("sources: number %d is not an array of %d values", i, len(fields))
		}
		r := row{members: make(map[string]json.RawMessage, len(values))}
		for k, value := range values {
			r.members[fields[k]] = value
		}
		s, weight, err := c.decodeSource(&r)
		if err != nil {
			return nil, &SourceError{s.Name, err}
		}
		c.Sources = append(c.Sources, s)
		weights = append(weights, weight)
	}
	return weights, nil
}

func (c *Checkpoint) decodeSource(r *row) (s Source, weight uint64, err error) {
	s.Name, s.Digest, s.Tables = r.text("name"), r.text("digest"), r.text("tables")
	s.View = r.text("view")
	key := r.word("key")
	s.Units = r.number("N")
	r.into("V", &s.Lanes)
	r.into("E", &s.RunBlocks)
	r.into("W", &s.Delay)
	r.into("H", &s.Head)
	s.Affinity = order.Affinity(r.text("affinity"))
	s.MaxEpochs = r.number("max_epochs")
	s.Epoch, s.First, s.Base, weight = r.number("epoch"), r.number("first"), r.number("base"), r.number("weight")
	if _, inUnits := r.members["kind"]; inUnits {
		s.Unit.Kind, s.Unit.Long, s.Unit.By = units.Kind(r.text("kind")), units.Long(r.text("long")), r.text("by")
		r.into("size", &s.Unit.Size)
		r.into("window", &s.Unit.Window)
		s.Lengths = r.text("lengths")
	}
	switch {
	case r.err != nil:
		return s, 0, r.err
	case key != Key(c.Seed, s.Name):
		return s, 0, fmt.Errorf("key %d does not belong to the seed and the name", key)
	case s.MaxEpochs == 0:
		return s, 0, badValue("max_epochs", 0)
	}
	return s, weight, nil
}

func (c *Checkpoint) decodeSegments(segments []json.RawMessage) error {
	for i, text := range segments {
		r := row{members: map[string]json.RawMessage{"segments": text}}
		pairs := r.numbers("segments")
		if r.err != nil || len(pairs) < 3 || len(pairs)%2 == 0 {
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
		r := row{members: map[string]json.RawMessage{"left_out": text}}
		ends := r.numbers("left_out")
		if r.err != nil || len(ends) != 2 {
			return fmt.Errorf("left_out: number %d is not a pair of positions", i)
		}
		c.LeftOut = append(c.LeftOut, Range{ends[0], ends[1]})
	}
	return nil
}

// row reads members by name and keeps the first error.
type row struct {
	members map[string]json.RawMessage
	err     error
}

func (r *row) into(name string, value any) {
	text, ok := r.members[name]
	switch {
	case r.err != nil:
	case !ok || string(text) == "null":
		r.err = fmt.Errorf("no %s: it was cut or edited", name)
	default:
		if err := json.Unmarshal(text, value); err != nil {
			r.err = badValue(name, string(text[:min(len(text), 100)]))
		}
	}
}

func (r *row) number(name string) (x uint64) {
	r.into(name, &x)
	return x
}

func (r *row) text(name string) (s string) {
	r.into(name, &s)
	return s
}

// numbers is an array of integers.
func (r *row) numbers(name string) []uint64 {
	var texts []json.RawMessage
	r.into(name, &texts)
	numbers := make([]uint64, 0, len(texts))
	for _, text := range texts {
		x, err := strconv.ParseUint(string(text), 10, 64)
		if r.err == nil && err != nil {
			r.err = badValue(name, string(text[:min(len(text), 100)]))
		}
		numbers = append(numbers, x)
	}
	return numbers
}

// word is a number of 64 bits that is written as a string.
func (r *row) word(name string) uint64 {
	text := r.text(name)
	x, err := strconv.ParseUint(text, 10, 64)
	if r.err == nil && (err != nil || strconv.FormatUint(x, 10) != text) {
		r.err = badValue(name, text)
	}
	return x
}
