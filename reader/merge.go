package reader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/reader/order"
)

// Saved is what one rank saves after a step: its checkpoint, and the ledger of the blocks that it
// skipped.
type Saved struct {
	Checkpoint order.Checkpoint
	Skipped    []SkippedBlock
}

// Merge returns the one state of a job whose ranks saved these after the same step: the place,
// which they share, and the blocks that any of them skipped. A rank finds only the damage in its
// own part of each batch, so a job that goes on from the state of one rank forgets the blocks of
// the others, and its limit of skipped samples counts from a wrong number.
//
// The result depends neither on the order of the states nor on how often one is given, and merging
// results of Merge is merging what they were made of. An error wraps order.ErrMismatch when the
// states differ in their place or order, and when a ledger does not list what its checkpoint
// counts.
func Merge(saved ...Saved) (Saved, error) {
	if len(saved) == 0 {
		return Saved{}, fmt.Errorf("reader: merge: %w: there is none", order.ErrMismatch)
	}
	out := Saved{Checkpoint: saved[0].Checkpoint}
	known := map[blockID]SkippedBlock{}
	for i := range saved {
		if err := sameStep(&out.Checkpoint, &saved[i].Checkpoint); err != nil {
			return Saved{}, err
		}
		if err := saved[i].into(known); err != nil {
			return Saved{}, err
		}
	}
	var l ledger
	for _, b := range known {
		out.Skipped = append(out.Skipped, b)
		l.enter(b)
	}
	slices.SortFunc(out.Skipped, SkippedBlock.compare)
	m := l.mark()
	out.Checkpoint.SkipHash, out.Checkpoint.Skipped = m.hash, m.samples
	return out, nil
}

// into adds the blocks of a ledger to known.
func (s *Saved) into(known map[blockID]SkippedBlock) error {
	listed, left := map[blockID]bool{}, s.Checkpoint.Sources[0].Samples
	for _, b := range s.Skipped {
		id := b.id()
		if have, ok := known[id]; ok {
			if have.First != b.First || have.Samples != b.Samples {
				return fmt.Errorf("reader: merge: %w: the ledgers disagree on block %d of shard %s: give those of one job", order.ErrMismatch, b.Block, b.Shard)
			}
			b.Reason = min(have.Reason, b.Reason) // either: what matters is that it does not depend on the order
		}
		known[id] = b
		if !listed[id] {
			listed[id] = true
			if b.Samples > left {
				return fmt.Errorf("reader: merge: %w: the ledger lists more samples than the data set has: it was edited", order.ErrMismatch)
			}
			left -= b.Samples
		}
	}
	// A ledger may be ahead of its checkpoint, as it is written first; it is never behind.
	if n := s.Checkpoint.Sources[0].Samples - left; n < s.Checkpoint.Skipped {
		return fmt.Errorf("reader: merge: %w: the checkpoint counts %d skipped samples, its ledger lists %d: keep the ledger with the checkpoint", order.ErrMismatch, s.Checkpoint.Skipped, n)
	}
	return nil
}

// sameStep returns an error unless two checkpoints differ in nothing but what was skipped.
func sameStep(a, b *order.Checkpoint) error {
	if len(a.Sources) != 1 || len(b.Sources) != 1 {
		return fmt.Errorf("reader: merge: %w: a checkpoint has exactly one source", order.ErrMismatch)
	}
	type member struct {
		name string
		x, y any
	}
	members := []member{
		{"digest", a.Sources[0].Digest, b.Sources[0].Digest},
		{"sources", a.Sources[0], b.Sources[0]},
		{"epoch", a.Epoch, b.Epoch},
		{"position", a.Position, b.Position},
		{"global_batch", a.GlobalBatch, b.GlobalBatch},
		{"tables", a.Tables, b.Tables},
	}
	var differs *order.MismatchError
	if errors.As(a.Params.Compare(b.Params), &differs) {
		members = []member{{differs.Field, differs.Checkpoint, differs.Given}}
	}
	for _, m := range members {
		if m.x != m.y {
			return fmt.Errorf("reader: merge: %w to another one: %s is %v in one and %v in the other: give the checkpoints of one step of one job",
				order.ErrMismatch, m.name, m.x, m.y)
		}
	}
	return nil
}
