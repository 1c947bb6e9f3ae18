package reader

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
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
	known := union{}
	for i := range saved {
		c := &saved[i].Checkpoint
		if err := sameStep(&out.Checkpoint, c); err != nil {
			return Saved{}, err
		}
		if err := known.add(saved[i].Skipped, c.Sources[0].Samples, c.Skipped); err != nil {
			return Saved{}, err
		}
	}
	blocks, m := known.ledger()
	out.Skipped, out.Checkpoint.SkipHash, out.Checkpoint.Skipped = blocks, m.hash, m.samples
	return out, nil
}

// SavedMix is what one rank that reads a mix saves after a step, as Saved.
type SavedMix struct {
	Checkpoint mix.Checkpoint
	Skipped    []SkippedBlock
}

// MergeMix is Merge for a mix.
func MergeMix(saved ...SavedMix) (SavedMix, error) {
	if len(saved) == 0 {
		return SavedMix{}, fmt.Errorf("reader: merge: %w: there is none", order.ErrMismatch)
	}
	out := SavedMix{Checkpoint: saved[0].Checkpoint}
	known := union{}
	for i := range saved {
		c := &saved[i].Checkpoint
		if err := sameMixStep(&out.Checkpoint, c); err != nil {
			return SavedMix{}, err
		}
		var samples uint64
		for k := range c.Sources {
			samples += c.Sources[k].Units
		}
		if c.InUnits() { // of several samples each
			samples = math.MaxUint64
		}
		if err := known.add(saved[i].Skipped, samples, c.Skipped); err != nil {
			return SavedMix{}, err
		}
	}
	blocks, m := known.ledger()
	out.Skipped, out.Checkpoint.SkipHash, out.Checkpoint.Skipped = blocks, m.hash, m.samples
	return out, nil
}

// union is the blocks that any rank skipped.
type union map[blockID]SkippedBlock

// ledger lists the blocks in the order of a ledger.
func (u union) ledger() (blocks []SkippedBlock, _ ledgerMark) {
	var l ledger
	for _, b := range u {
		blocks = append(blocks, b)
		l.enter(b)
	}
	slices.SortFunc(blocks, SkippedBlock.compare)
	return blocks, l.mark()
}

// add adds a ledger over data of so many samples, of which its checkpoint counts some as skipped.
func (u union) add(blocks []SkippedBlock, samples, skipped uint64) error {
	listed, left := map[blockID]bool{}, samples
	for _, b := range blocks {
		id := b.id()
		if have, ok := u[id]; ok {
			if have.First != b.First || have.Samples != b.Samples {
				return fmt.Errorf("reader: merge: %w: the ledgers disagree on block %d of shard %s: give those of one job", order.ErrMismatch, b.Block, b.Shard)
			}
			b.Reason = min(have.Reason, b.Reason) // either: what matters is that it does not depend on the order
		}
		u[id] = b
		if !listed[id] {
			listed[id] = true
			if b.Samples > left {
				return fmt.Errorf("reader: merge: %w: the ledger lists more samples than the data set has: it was edited", order.ErrMismatch)
			}
			left -= b.Samples
		}
	}
	// A ledger may be ahead of its checkpoint, as it is written first; it is never behind.
	if n := samples - left; n < skipped {
		return fmt.Errorf("reader: merge: %w: the checkpoint counts %d skipped samples, its ledger lists %d: keep the ledger with the checkpoint", order.ErrMismatch, skipped, n)
	}
	return nil
}

// sameMixStep is sameStep for a mix.
func sameMixStep(a, b *mix.Checkpoint) error {
	members := []struct {
		name string
		x, y any
	}{
		{"seed", a.Seed, b.Seed},
		{"position", a.Position, b.Position},
		{"from", a.From, b.From},
		{"shuffle", a.Shuffle, b.Shuffle},
		{"tail", a.Tail, b.Tail},
		{"epoch_length", a.Epoch, b.Epoch},
		{"steps", a.Steps, b.Steps},
		{"left_out", a.LeftOut, b.LeftOut},
		{"sources", a.Sources, b.Sources},
		{"segments", a.Segments, b.Segments},
	}
	for _, m := range members {
		if x, y := fmt.Sprint(m.x), fmt.Sprint(m.y); x != y {
			return differ(m.name, x, y)
		}
	}
	return nil
}

func differ(name string, x, y any) error {
	return fmt.Errorf("reader: merge: %w to another one: %s is %v in one and %v in the other: give the checkpoints of one step of one job",
		order.ErrMismatch, name, x, y)
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
			return differ(m.name, m.x, m.y)
		}
	}
	return nil
}
