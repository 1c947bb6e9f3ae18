package reader

import (
	"fmt"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
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

// tables names the generation that a checkpoint has of a source; "" for none.
func (c *Checkpoint) tables(source string) string {
	switch {
	case c == nil:
		return ""
	case c.Mix == nil:
		return c.Dataset.Tables
	}
	for i := range c.Mix.Sources {
		if was := &c.Mix.Sources[i]; was.Name == source {
			return was.Tables
		}
	}
	return ""
}

// of refuses a checkpoint of a mix for one data set, and the other way round. A nil checkpoint is
// of either.
func (c *Checkpoint) of(mixed bool) error {
	switch {
	case c == nil || (c.Dataset == nil) == mixed:
		return nil
	case mixed:
		return fmt.Errorf("%w: it has version 1 or 3, which are for one data set; the version of a mix is 2: resume with the data set", order.ErrMismatch)
	}
	return fmt.Errorf("%w: it has version 2, which is for a mix of several data sets: resume with the mix",
		order.ErrMismatch)
}

// Merge is ledger.Merge for checkpoints of any kind: all of one data set, or all of a mix.
func Merge(saved ...ledger.Saved[Checkpoint]) (out ledger.Saved[Checkpoint], err error) {
	one := make([]ledger.Saved[order.Checkpoint], 0, len(saved))
	mixed := make([]ledger.Saved[mix.Checkpoint], 0, len(saved))
	for _, s := range saved {
		if err := s.Checkpoint.of(saved[0].Checkpoint.Dataset == nil); err != nil {
			return out, err
		}
		if of := s.Checkpoint.Mix; of != nil {
			mixed = append(mixed, ledger.Saved[mix.Checkpoint]{Checkpoint: *of, Skipped: s.Skipped})
		} else {
			one = append(one, ledger.Saved[order.Checkpoint]{Checkpoint: *s.Checkpoint.Dataset, Skipped: s.Skipped})
		}
	}
	if len(mixed) > 0 {
		m, err := ledger.MergeMix(mixed...)
		return ledger.Saved[Checkpoint]{Checkpoint: Checkpoint{Mix: &m.Checkpoint}, Skipped: m.Skipped}, err
	}
	d, err := ledger.Merge(one...)
	return ledger.Saved[Checkpoint]{Checkpoint: Checkpoint{Dataset: &d.Checkpoint}, Skipped: d.Skipped}, err
}
