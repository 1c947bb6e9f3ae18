package reader

import (
	"fmt"

	"github.com/shardtool/shardtool/internal/ledger"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// Place is a position of an epoch of a run, in samples or units over all ranks. The position of a
// mix counts over all its epochs.
type Place struct{ Epoch, Position uint64 }

// Checkpoint is a place in a run and all that must agree for it to mean the same place. One of its
// members is set: a checkpoint of one data set, of its samples or units, or one of a mix.
type Checkpoint struct {
	Dataset *order.Checkpoint // versions 1 and 3
	Mix     *mix.Checkpoint   // version 2
}

// DecodeCheckpoint reads the text of a checkpoint of any version. It returns the errors of
// order.DecodeCheckpoint and mix.DecodeCheckpoint.
func DecodeCheckpoint(text []byte) (Checkpoint, error) {
	if mix.IsCheckpoint(text) {
		c, err := mix.DecodeCheckpoint(text)
		return Checkpoint{Mix: &c}, err
	}
	c, err := order.DecodeCheckpoint(text)
	return Checkpoint{Dataset: &c}, err
}

// Append appends the text of the checkpoint to dst: JSON in printable ASCII without a line feed.
func (c Checkpoint) Append(dst []byte) ([]byte, error) {
	if c.Mix != nil {
		return mix.AppendCheckpoint(dst, *c.Mix)
	}
	return order.AppendCheckpoint(dst, *c.Dataset)
}

// Place returns where the run continues.
func (c Checkpoint) Place() Place {
	if c.Mix != nil {
		return Place{Position: c.Mix.Position}
	}
	return Place{c.Dataset.Epoch, c.Dataset.Position}
}

// GlobalBatch returns the batch size in use; 0 when it is not known.
func (c Checkpoint) GlobalBatch() int {
	if c.Mix != nil {
		return c.Mix.Steps.GlobalBatch
	}
	return c.Dataset.GlobalBatch
}

// Merge is ledger.Merge for checkpoints of any kind: all of one data set, or all of a mix.
func Merge(saved ...ledger.Saved[Checkpoint]) (out ledger.Saved[Checkpoint], err error) {
	one, mixed := make([]ledger.Saved[order.Checkpoint], 0, len(saved)), make([]ledger.Saved[mix.Checkpoint], 0, len(saved))
	for _, s := range saved {
		if s.Checkpoint.Mix != nil {
			mixed = append(mixed, ledger.Saved[mix.Checkpoint]{Checkpoint: *s.Checkpoint.Mix, Skipped: s.Skipped})
		} else {
			one = append(one, ledger.Saved[order.Checkpoint]{Checkpoint: *s.Checkpoint.Dataset, Skipped: s.Skipped})
		}
	}
	switch {
	case len(one) > 0 && len(mixed) > 0:
		return out, wrongKind("a mix", "one data set")
	case len(mixed) > 0:
		m, err := ledger.MergeMix(mixed...)
		return ledger.Saved[Checkpoint]{Checkpoint: Checkpoint{Mix: &m.Checkpoint}, Skipped: m.Skipped}, err
	}
	d, err := ledger.Merge(one...)
	return ledger.Saved[Checkpoint]{Checkpoint: Checkpoint{Dataset: &d.Checkpoint}, Skipped: d.Skipped}, err
}

// wrongKind refuses a checkpoint of a mix for one data set, or the other way round.
func wrongKind(is, want string) error {
	return fmt.Errorf("reader: %w", &order.MismatchError{Field: "version", Checkpoint: "that of " + is, Given: "that of " + want})
}
