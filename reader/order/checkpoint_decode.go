package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

var (
	checkpointMembers = []string{
		"version", "algorithm", "seed", "epoch", "position", "shuffle", "V", "E", "W", "H", "T", "affinity", "tail",
		"global_batch", "sources", "tables", "skip_hash", "skipped", "check",
	}
	sourceMembers = []string{"digest", "N", "weight", "key"}
	unitsMembers  = []string{"algorithm", "kind", "size", "long", "window", "by", "lengths"}
)

// DecodeCheckpoint reads the text of one checkpoint. Blanks and the order of members are free;
// anything else that AppendCheckpoint does not write is refused: a member missing, unknown or out
// of range, more text, another version or algorithm. A checkpoint whose members were changed after
// it was written fails its check: the error is then ErrEdited, and the checkpoint is returned with
// it, so that a caller can name a member that does not fit either.
func DecodeCheckpoint(text []byte) (Checkpoint, error) {
	if len(text) > maxCheckpointRead {
		return Checkpoint{}, fmt.Errorf("order: checkpoint: %d bytes, at most %d: this is another file", len(text), maxCheckpointRead)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return Checkpoint{}, fmt.Errorf("order: checkpoint: cut off or not JSON: %w", err)
	}
	if err := checkVersion(members); err != nil {
		return Checkpoint{}, err
	}
	wanted := checkpointMembers
	if _, units := members["units"]; units {
		wanted = append(slices.Clone(wanted), "units")
	}
	if err := checkMembers(members, wanted); err != nil {
		return Checkpoint{}, err
	}
	var sources []map[string]json.RawMessage
	if err := json.Unmarshal(members["sources"], &sources); err != nil {
		return Checkpoint{}, fmt.Errorf("order: checkpoint: sources: %w", err)
	}
	for _, s := range sources {
		if err := checkMembers(s, sourceMembers); err != nil {
			return Checkpoint{}, err
		}
	}
	if text, units := members["units"]; units {
		if err := checkUnits(text); err != nil {
			return Checkpoint{}, err
		}
	}
	var t checkpointText
	if err := json.Unmarshal(text, &t); err != nil {
		return Checkpoint{}, fmt.Errorf("order: checkpoint: %w", err)
	}
	c, err := t.checkpoint()
	if err != nil {
		return Checkpoint{}, err
	}
	check, err := c.sum()
	if err != nil {
		return Checkpoint{}, err
	}
	if t.Check != check {
		return c, ErrEdited
	}
	return c, nil
}

// ErrEdited is the error of a checkpoint that is well formed but not as it was written.
var ErrEdited = errors.New("order: checkpoint: edited or damaged since it was written, the check does not fit: use an earlier one")

// checkVersion comes before the members, because the members of another version are not known.
func checkVersion(members map[string]json.RawMessage) error {
	var version uint64
	if err := json.Unmarshal(members["version"], &version); err != nil {
		return errors.New("order: checkpoint: no version: this is another file, or a part of one")
	}
	if version == 2 {
		return errors.New("order: checkpoint: version 2 is for a mix of several data sets: resume with the mix")
	}
	if version != CheckpointVersion && version != UnitsVersion {
		return fmt.Errorf("order: checkpoint: version %d, this program reads %d and %d: use the program that wrote it", version, CheckpointVersion, UnitsVersion)
	}
	if _, units := members["units"]; units != (version == UnitsVersion) {
		return fmt.Errorf("order: checkpoint: version %d with the member units: %v: it was cut or edited", version, units)
	}
	var algorithm string
	if err := json.Unmarshal(members["algorithm"], &algorithm); err != nil {
		return errors.New("order: checkpoint: no algorithm")
	}
	if algorithm != Algorithm {
		return fmt.Errorf("order: checkpoint: algorithm %.40q, this program knows %q: use the program that wrote it", algorithm, Algorithm)
	}
	return nil
}

// checkUnits checks the names of the members of units, and their algorithm first.
func checkUnits(text json.RawMessage) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return fmt.Errorf("order: checkpoint: units: %w", err)
	}
	var algorithm string
	if err := json.Unmarshal(members["algorithm"], &algorithm); err != nil || algorithm != UnitsAlgorithm {
		return fmt.Errorf("order: checkpoint: units: algorithm %.40q, this program knows %q: use the program that wrote it", algorithm, UnitsAlgorithm)
	}
	return checkMembers(members, unitsMembers)
}

// checkMembers wants exactly the names, spelled exactly so: encoding/json alone takes any case and
// none.
func checkMembers(members map[string]json.RawMessage, names []string) error {
	for _, name := range names {
		if value, ok := members[name]; !ok || string(value) == "null" {
			return fmt.Errorf("order: checkpoint: no %s: it was cut or edited", name)
		}
	}
	for name := range members {
		if !slices.Contains(names, name) {
			return fmt.Errorf("order: checkpoint: unknown member %.40q", name)
		}
	}
	return nil
}

func (t *checkpointText) checkpoint() (Checkpoint, error) {
	seed, err := parseWord("seed", t.Seed)
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{
		Params: Params{
			Seed: seed, Shuffle: t.Shuffle, Lanes: t.Lanes, RunBlocks: t.RunBlocks, Delay: t.Delay, Head: t.Head,
			MixBlock: t.MixBlock, Affinity: t.Affinity, Tail: t.Tail,
		},
		Epoch: t.Epoch, Position: t.Position, GlobalBatch: t.GlobalBatch,
		Tables: t.Tables, SkipHash: t.SkipHash, Skipped: t.Skipped,
	}
	for _, s := range t.Sources {
		key, err := parseWord("key", s.Key)
		if err != nil {
			return Checkpoint{}, err
		}
		c.Sources = append(c.Sources, SourceMark{Digest: s.Digest, Samples: s.Samples, Weight: s.Weight, Key: key})
	}
	if u := t.Units; u != nil {
		c.Units = &UnitMark{u.Kind, u.Size, u.Long, u.Window, u.By, u.Lengths}
	}
	return c, c.validate()
}

func parseWord(name, text string) (uint64, error) {
	x, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(x, 10) != text {
		return 0, badMember(name, text)
	}
	return x, nil
}
