package order

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/internal/order/members"
)

// DecodeCheckpoint reads the text of one checkpoint. Blanks and the order of members are free;
// anything else that AppendCheckpoint does not write is refused: a member missing, unknown or out
// of range, more text, another version or algorithm. A checkpoint whose members were changed after
// it was written fails its check: the error is then ErrEdited, and the checkpoint is returned with
// it, so that a caller can name a member that does not fit either.
func DecodeCheckpoint(text []byte) (Checkpoint, error) {
	var c Checkpoint
	check, err := c.decode(text)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	_, sum, err := members.Seal(c.text())
	if err != nil {
		return Checkpoint{}, err
	}
	if check != sum {
		return c, ErrEdited
	}
	return c, nil
}

// ErrEdited is the error of a checkpoint that is well formed but not as it was written.
var ErrEdited = errors.New("checkpoint: edited or damaged since it was written, the check does not fit: use an earlier one")

func (c *Checkpoint) decode(text []byte) (check string, err error) {
	o, err := members.Parse(text, maxCheckpointRead)
	if err != nil {
		return "", err
	}
	if err := checkVersion(o); err != nil {
		return "", err
	}
	c.Seed, c.Epoch, c.Position = o.Word("seed"), o.Number("epoch"), o.Number("position")
	var sources []map[string]json.RawMessage
	var units map[string]json.RawMessage
	o.Into("shuffle", &c.Shuffle)
	o.Into("V", &c.Lanes)
	o.Into("E", &c.RunBlocks)
	o.Into("W", &c.Delay)
	o.Into("H", &c.Head)
	o.Into("T", &c.MixBlock)
	o.Into("affinity", &c.Affinity)
	o.Into("tail", &c.Tail)
	o.Into("global_batch", &c.GlobalBatch)
	o.Into("sources", &sources)
	c.Tables, c.SkipHash, c.Skipped, check = o.Text("tables"), o.Text("skip_hash"), o.Number("skipped"), o.Text("check")
	if o.Has("units") {
		o.Into("units", &units)
	}
	if err := o.End(); err != nil {
		return "", err
	}
	for _, source := range sources {
		s := members.New(source)
		c.Sources = append(c.Sources, SourceMark{s.Text("digest"), s.Number("N"), s.Number("weight"), s.Word("key")})
		if err := s.End(); err != nil {
			return "", err
		}
	}
	if units != nil {
		u := members.New(units)
		u.Is("algorithm", UnitsAlgorithm)
		c.Units = &UnitMark{Kind: u.Text("kind"), Long: u.Text("long"), By: u.Text("by"), Lengths: u.Text("lengths")}
		u.Into("size", &c.Units.Size)
		u.Into("window", &c.Units.Window)
		if err := u.End(); err != nil {
			return "", err
		}
	}
	return check, c.validate()
}

// checkVersion runs before the members are read, because the members of another version are not
// known.
func checkVersion(o *members.Object) error {
	switch version, units := o.Number("version"), o.Has("units"); {
	case o.Err() != nil:
		return errors.New("no version: this is another file, or a part of one")
	case version == 2:
		return errors.New("version 2 is for a mix of several data sets: resume with the mix")
	case version != CheckpointVersion && version != UnitsVersion:
		return fmt.Errorf("version %d, this program reads %d and %d: use the program that wrote it", version,
			CheckpointVersion, UnitsVersion)
	case units != (version == UnitsVersion):
		return fmt.Errorf("version %d with the member units: %v: it was cut or edited", version, units)
	}
	o.Is("algorithm", Algorithm)
	return o.Err()
}
