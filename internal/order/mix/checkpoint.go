package mix

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/shardtool/shardtool/internal/order/members"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/reader/order"
)

// CheckpointVersion is the version of a mix's checkpoint. The checkpoint of one data set, in
// package order, has version 1.
const CheckpointVersion = 2

// Sizes of a checkpoint (SPEC.md, "Checkpoint of a mix").
const (
	checkpointBase    = 2 << 10
	checkpointSource  = 320 // for each source
	checkpointView    = 16  // more for each that is a view
	checkpointUnits   = 176 // more for each where positions hold units
	checkpointSegment = 24  // for each pending segment, and for each source that it names
	maxRead           = 16 << 20
	maxDigest         = 71 // "sha256:" and 64 hexadecimal digits
	maxTables         = 29 // "manifest-", 16 hexadecimal digits, ".bin"
	maxHash           = 128
)

// Checkpoint is a place in a mix and all that must agree for it to mean the same place. It counts
// units delivered to the consumer, never units read ahead. The checkpoint of any rank restores all
// ranks.
type Checkpoint struct {
	// Mix is the mix from its current segment on: that segment, the pending ones, and every source
	// with its current epoch.
	Mix
	Position uint64 // units delivered, over all ranks and all epochs of the mix
	// Steps is the last change of the batch size. Its GlobalBatch is the one in use, for the next
	// start to take when none is given; 0 when unknown.
	Steps   Steps
	LeftOut []Range // positions left out, such as steps that a user skips
	// SkipHash and Skipped are the hash and length of the ledger of skipped samples; "" and 0 when
	// nothing was skipped.
	SkipHash string
	Skipped  uint64
}

// Same returns the source of the checkpoint whose positions hold the same samples as s, or
// units of a kind made of them; nil if it has none.
func (c *Checkpoint) Same(s *Source, kind units.Kind) *Source {
	for i := range c.Sources {
		x := &c.Sources[i]
		if x.Name == s.Name && x.Digest == s.Digest && x.View == s.View && x.Unit.Kind == kind &&
			(kind != "" || x.Units == s.Units) {
			return x
		}
	}
	return nil
}

// UnitsOf returns the units of a source, or of another one without their window if it has none; nil
// if positions hold samples.
func (c *Checkpoint) UnitsOf(name string) (p *units.Params) {
	for _, x := range c.Sources {
		switch {
		case x.Unit.Kind == "":
		case x.Name == name:
			return &x.Unit
		case p == nil:
			p = &x.Unit
			p.Window = 0
		}
	}
	return p
}

// MostSamples returns the most samples that the sources can have; of units, which have several
// samples each, the number is not known.
func (c *Checkpoint) MostSamples() (n uint64) {
	if c.InUnits() {
		return math.MaxUint64
	}
	for k := range c.Sources {
		n += c.Sources[k].Units
	}
	return n
}

// Checkpoint returns the checkpoint of a position. Steps, LeftOut and the ledger are left for the
// caller to fill in.
func (p *Plan) Checkpoint(position uint64) (Checkpoint, error) {
	w, err := p.walkTo(position)
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{Mix: p.mix, Position: position}
	c.From, c.Segments = w.began, p.mix.Segments[w.segment:]
	c.Sources = make([]Source, len(p.mix.Sources))
	for s, j := range w.counts(nil, position) {
		if c.Sources[s], err = p.mix.Sources[s].at(j); err != nil {
			return Checkpoint{}, err
		}
		c.Sources[s].Base = w.given[s]
	}
	return c, nil
}

// Begin moves the checkpoint to the beginning of an epoch of the mix. Epochs that begin before the
// current segment are refused. The positions in between count as given. From a place before the
// last change of the batch size, steps are numbered from 0 again.
func (c *Checkpoint) Begin(epoch uint64) error {
	position, ok := times(epoch, c.Epoch, 0)
	if !ok {
		return fmt.Errorf("there is no epoch %d", epoch)
	}
	if position < c.From {
		return fmt.Errorf("epoch %d begins at position %d, before the mix changed at %d: use an earlier checkpoint",
			epoch, position, c.From)
	}
	if c.Position = position; position < c.Steps.Position {
		c.Steps = Steps{Position: position, GlobalBatch: c.Steps.GlobalBatch}
	}
	return nil
}

// checkpointText is the text of a checkpoint: one JSON object with exactly these members and a
// check, as in package order. Sources and segments are arrays, because otherwise the names of
// members would be most of the text.
type checkpointText struct {
	Version     int         `json:"version"`
	Algorithm   string      `json:"algorithm"`
	Order       string      `json:"order"`
	Units       string      `json:"units,omitempty"` // where positions hold units
	Seed        string      `json:"seed"`
	Position    uint64      `json:"position"`
	Shuffle     bool        `json:"shuffle"`
	Tail        order.Tail  `json:"tail"`
	Epoch       uint64      `json:"epoch_length"`
	GlobalBatch int         `json:"global_batch"`
	Steps       [2]uint64   `json:"steps"` // step and position of the last change of global_batch
	At          uint64      `json:"at"`
	From        uint64      `json:"from"`
	Fields      []string    `json:"fields"`
	Sources     [][]any     `json:"sources"`
	Segments    [][]uint64  `json:"segments"` // pending: at, then number and weight of each source of weight > 0
	Steered     []uint64    `json:"steered,omitempty"`
	LeftOut     [][2]uint64 `json:"left_out"`
	SkipHash    string      `json:"skip_hash"`
	Skipped     uint64      `json:"skipped"`
}

// sourceFields names the elements of a source's array.
var sourceFields = []string{
	"name", "digest", "tables", "view", "key", "N", "V", "E", "W", "H", "affinity", "max_epochs", "epoch", "first",
	"base", "weight",
}

// unitFields follow them where positions hold units.
var unitFields = []string{"kind", "size", "long", "window", "by", "lengths"}

// fields returns the names of the fields of the checkpoint's sources.
func (c *Checkpoint) fields() []string {
	if c.anyUnits() {
		return slices.Concat(sourceFields, unitFields)
	}
	return sourceFields
}

// anyUnits reports whether any source, of weight 0 too, has units.
func (c *Checkpoint) anyUnits() bool {
	return slices.ContainsFunc(c.Sources, func(s Source) bool { return s.inUnits() })
}

// AppendCheckpoint appends the text of a checkpoint to dst: JSON in printable ASCII without blanks
// or a line feed, at most 2 KiB, 320 bytes for each source (16 more for a view, 176 more for
// units), and 24 bytes for each pending segment and each source that it names. It refuses what
// DecodeCheckpoint would.
func AppendCheckpoint(dst []byte, c Checkpoint) ([]byte, error) {
	if err := c.validate(); err != nil {
		return dst, fmt.Errorf("checkpoint: %w", err)
	}
	text, _, err := members.Seal(c.text())
	return append(dst, text...), err
}

// text returns the text of the checkpoint without its check.
func (c *Checkpoint) text() checkpointText {
	t := checkpointText{
		Version: CheckpointVersion, Algorithm: Algorithm, Order: order.Algorithm, Seed: strconv.FormatUint(c.Seed, 10),
		Position: c.Position, Shuffle: c.Shuffle, Tail: c.Tail, Epoch: c.Epoch,
		GlobalBatch: c.Steps.GlobalBatch, Steps: [2]uint64{c.Steps.Step, c.Steps.Position},
		At: c.Segments[0].At, From: c.From, Fields: c.fields(), Segments: [][]uint64{}, LeftOut: [][2]uint64{},
		SkipHash: c.SkipHash, Skipped: c.Skipped,
	}
	if c.anyUnits() {
		t.Units = order.UnitsAlgorithm
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		values := []any{
			s.Name, s.Digest, s.Tables, s.View, strconv.FormatUint(Key(c.Seed, s.Name), 10), s.Units, s.Lanes,
			s.RunBlocks, s.Delay, s.Head,
			s.Affinity, s.maxEpochs(), s.Epoch, s.First, s.Base, c.Segments[0].Weights[i],
		}
		if t.Units != "" {
			values = append(values, s.Unit.Kind, s.Unit.Size, s.Unit.Long, s.Unit.Window, s.Unit.By, s.Lengths)
		}
		t.Sources = append(t.Sources, values)
	}
	for i := range c.Segments[1:] {
		t.Segments = append(t.Segments, c.Segments[i+1].text())
	}
	if c.Steered {
		t.Steered = c.Segments[0].text()
	}
	for _, r := range c.LeftOut {
		t.LeftOut = append(t.LeftOut, [2]uint64{r.From, r.To})
	}
	return t
}

// text returns the position of a segment, and number and weight of each source of weight > 0.
func (g *Segment) text() []uint64 {
	out := []uint64{g.At}
	for s, w := range g.Weights {
		if w > 0 {
			out = append(out, uint64(s), w)
		}
	}
	return out
}

func (c *Checkpoint) validate() error {
	if err := c.Mix.validate(); err != nil {
		return err
	}
	for i := range c.Segments[1:] {
		if at := c.Segments[i+1].At; at < c.Position {
			return fmt.Errorf("segment at %d: it begins before position %d", at, c.Position)
		}
	}
	switch {
	case c.Position < c.From || c.Position > maxPosition:
		return members.Bad("position", c.Position)
	case c.Steps.GlobalBatch < 0 || c.Steps.GlobalBatch > math.MaxInt32:
		return members.Bad("global_batch", c.Steps.GlobalBatch)
	case c.Steps.Position > maxPosition:
		return members.Bad("steps", c.Steps.Position)
	case !plain.InJSON(c.SkipHash, maxHash):
		return members.Bad("skip_hash", c.SkipHash)
	}
	return checkRanges(c.LeftOut)
}
