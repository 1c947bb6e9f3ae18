package order

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/shardtool/shardtool/internal/order/members"
	"github.com/shardtool/shardtool/internal/sys/plain"
)

// CheckpointVersion is the version of the checkpoint this package writes where positions count
// samples, and UnitsVersion where they count units. Package mix has version 2.
const (
	CheckpointVersion = 1
	UnitsVersion      = 3
)

// Sizes of a checkpoint (SPEC.md, "Checkpoint").
const (
	// MaxCheckpoint bounds the text AppendCheckpoint writes, in bytes; MaxUnitsCheckpoint the text
	// of units.
	MaxCheckpoint      = 1 << 10
	MaxUnitsCheckpoint = 3 << 9
	// maxCheckpointRead leaves room for the blanks another tool may have put in.
	maxCheckpointRead = 16 << 10
	maxName           = 128 // digest, tables, skip_hash; three of them and all numbers stay below MaxCheckpoint
)

// Checkpoint is a place in an order and all that must agree for it to mean the same place. It
// counts samples delivered to the consumer, never samples read ahead. The checkpoint of any rank
// restores all ranks.
type Checkpoint struct {
	Params
	Epoch    uint64
	Position uint64 // samples delivered of the epoch, over all ranks; below N
	// GlobalBatch is the batch size in use, for the next start to take when none is given. 0 when
	// unknown.
	GlobalBatch int
	// Sources are the data sets, one today.
	Sources []SourceMark
	// Units are the parameters of units; nil where positions count samples.
	Units *UnitMark
	// Tables names the tables object of the data set's generation: a resume opens the newest one
	// with the same samples. It is not compared: the same content packed with another codec has
	// other tables.
	Tables string
	// SkipHash and Skipped are the hash and length of the ledger of skipped samples; "" and 0 when
	// nothing was skipped.
	SkipHash string
	Skipped  uint64
}

// SourceMark identifies one source in a checkpoint.
type SourceMark struct {
	Digest  string
	Samples uint64 // N
	Weight  uint64 // share of the mix; 1 for a single source
	Key     uint64 // of the source's random words; the seed for a single source
}

// UnitMark has the parameters of units in a checkpoint. Package units has the meaning of the
// members; Lengths is the hash of all lengths.
type UnitMark struct {
	Kind    string
	Size    uint32
	Long    string
	Window  uint32
	By      string
	Lengths string
}

// Checkpoint returns the checkpoint of a place: position 0..N of an epoch. GlobalBatch, Tables and
// the ledger are left for the caller to fill in.
func (p *Plan) Checkpoint(epoch, position uint64) (Checkpoint, error) {
	epoch, position, err := p.checkPlace(epoch, position)
	if err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{
		Params: p.params, Epoch: epoch, Position: position,
		Sources: []SourceMark{{Digest: p.digest, Samples: p.total, Weight: 1, Key: p.params.Seed}},
	}, nil
}

// The text of a checkpoint: one JSON object with exactly these members and a check, see
// members.Seal. Numbers that programs read as floating point and that use all their bits are
// strings.
type checkpointText struct {
	Version     int              `json:"version"`
	Algorithm   string           `json:"algorithm"`
	Seed        string           `json:"seed"`
	Epoch       uint64           `json:"epoch"`
	Position    uint64           `json:"position"`
	Shuffle     bool             `json:"shuffle"`
	Lanes       uint32           `json:"V"`
	RunBlocks   uint32           `json:"E"`
	Delay       uint32           `json:"W"`
	Head        uint32           `json:"H"`
	MixBlock    uint32           `json:"T"`
	Affinity    Affinity         `json:"affinity"`
	Tail        Tail             `json:"tail"`
	GlobalBatch int              `json:"global_batch"`
	Sources     []sourceMarkText `json:"sources"`
	Units       *unitMarkText    `json:"units,omitempty"` // of version 3 alone
	Tables      string           `json:"tables"`
	SkipHash    string           `json:"skip_hash"`
	Skipped     uint64           `json:"skipped"`
}

type sourceMarkText struct {
	Digest  string `json:"digest"`
	Samples uint64 `json:"N"`
	Weight  uint64 `json:"weight"`
	Key     string `json:"key"`
}

// UnitsAlgorithm names how units are formed. A change of a single bit of any units needs another
// name.
const UnitsAlgorithm = "units/1"

type unitMarkText struct {
	Algorithm string `json:"algorithm"`
	Kind      string `json:"kind"`
	Size      uint32 `json:"size"`
	Long      string `json:"long"`
	Window    uint32 `json:"window"`
	By        string `json:"by"`
	Lengths   string `json:"lengths"`
}

// AppendCheckpoint appends the text of a checkpoint to dst: JSON in printable ASCII without blanks
// or a line feed, at most MaxCheckpoint bytes. It refuses what DecodeCheckpoint would.
func AppendCheckpoint(dst []byte, c Checkpoint) ([]byte, error) {
	if err := c.validate(); err != nil {
		return dst, fmt.Errorf("checkpoint: %w", err)
	}
	text, _, err := members.Seal(c.text())
	return append(dst, text...), err
}

// text is the checkpoint without its check.
func (c *Checkpoint) text() checkpointText {
	t := checkpointText{
		Version: CheckpointVersion, Algorithm: Algorithm, Seed: strconv.FormatUint(c.Seed, 10),
		Epoch: c.Epoch, Position: c.Position,
		Shuffle: c.Shuffle, Lanes: c.Lanes, RunBlocks: c.RunBlocks, Delay: c.Delay, Head: c.Head, MixBlock: c.MixBlock,
		Affinity: c.Affinity, Tail: c.Tail, GlobalBatch: c.GlobalBatch,
		Tables: c.Tables, SkipHash: c.SkipHash, Skipped: c.Skipped,
	}
	for _, s := range c.Sources {
		t.Sources = append(t.Sources, sourceMarkText{s.Digest, s.Samples, s.Weight, strconv.FormatUint(s.Key, 10)})
	}
	if u := c.Units; u != nil {
		t.Version = UnitsVersion
		t.Units = &unitMarkText{UnitsAlgorithm, u.Kind, u.Size, u.Long, u.Window, u.By, u.Lengths}
	}
	return t
}

func (c *Checkpoint) validate() error {
	if err := c.Params.validate(); err != nil {
		return err
	}
	if len(c.Sources) != 1 {
		return fmt.Errorf("sources: %d of them, this version reads exactly one", len(c.Sources))
	}
	s := c.Sources[0]
	switch {
	case s.Weight != 1:
		return members.Bad("weight", s.Weight)
	case s.Key != c.Seed:
		return members.Bad("key", s.Key)
	case s.Samples > math.MaxInt64:
		return members.Bad("N", s.Samples)
	case c.Units == nil && c.Position > 0 && c.Position >= s.Samples, c.Position > math.MaxInt64:
		return members.Bad("position", c.Position)
	case c.Epoch > maxEpochs || c.Epoch == maxEpochs && c.Position > 0:
		return members.Bad("epoch", c.Epoch)
	case c.GlobalBatch < 0 || c.GlobalBatch > math.MaxInt32:
		return members.Bad("global_batch", c.GlobalBatch)
	case !plain.InJSON(s.Digest, maxName):
		return members.Bad("digest", s.Digest)
	case !plain.InJSON(c.Tables, maxName):
		return members.Bad("tables", c.Tables)
	case !plain.InJSON(c.SkipHash, maxName):
		return members.Bad("skip_hash", c.SkipHash)
	}
	return c.Units.validate()
}

func (u *UnitMark) validate() error {
	switch {
	case u == nil:
		return nil
	case u.Kind != "pack" && u.Kind != "bucket":
		return members.Bad("kind", u.Kind)
	case u.Size < 1 || u.Size > math.MaxInt32:
		return members.Bad("size", u.Size)
	case !slices.Contains([]string{"error", "split", "truncate", "drop"}, u.Long):
		return members.Bad("long", u.Long)
	case u.Window < 1 || u.Window > 1<<20:
		return members.Bad("window", u.Window)
	case !plain.InJSON(u.By, maxName):
		return members.Bad("by", u.By)
	case !plain.InJSON(u.Lengths, 32):
		return members.Bad("lengths", u.Lengths)
	}
	return nil
}
