package ledger

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// Saved is the state that one rank saves after a step: its checkpoint, an order.Checkpoint or a
// mix.Checkpoint, and the ledger of the blocks that it skipped.
type Saved[Checkpoint any] struct {
	Checkpoint Checkpoint
	Skipped    []Block
}

// Merge returns the one state of a job whose ranks saved these after the same step: the place,
// which they share, and the blocks that any of them skipped. A rank finds only the damage in its
// own part of each batch. A job that resumes from the state of one rank forgets the blocks of the
// others, and counts skipped samples from a wrong number.
//
// The result depends neither on the order of the states nor on how often one is given. Merging
// results of Merge gives the same as merging all their states. An error wraps order.ErrMismatch
// when the states differ in their place or order, and when a ledger does not list what its
// checkpoint counts.
func Merge(saved ...Saved[order.Checkpoint]) (Saved[order.Checkpoint], error) {
	return merge(saved, sameStep, func(c *order.Checkpoint) (uint64, *string, *uint64) {
		return c.Sources[0].Samples, &c.SkipHash, &c.Skipped
	})
}

// MergeMix is Merge for a mix.
func MergeMix(saved ...Saved[mix.Checkpoint]) (Saved[mix.Checkpoint], error) {
	return merge(saved, sameMixStep, func(c *mix.Checkpoint) (samples uint64, _ *string, _ *uint64) {
		return c.MostSamples(), &c.SkipHash, &c.Skipped
	})
}

// merge is Merge for checkpoints of any type. same compares two of them. skips returns the samples
// of the data and what was skipped.
func merge[C any](saved []Saved[C], same func(a, b *C) error,
	skips func(*C) (samples uint64, hash *string, skipped *uint64)) (out Saved[C], err error) {
	if len(saved) == 0 {
		return out, fmt.Errorf("merge: %w: there is none", order.ErrMismatch)
	}
	known := union{}
	for i := range saved {
		c := &saved[i].Checkpoint
		if err := same(&saved[0].Checkpoint, c); err != nil {
			return out, err
		}
		samples, _, skipped := skips(c)
		if err := known.add(saved[i].Skipped, samples, *skipped); err != nil {
			return out, err
		}
	}
	out.Checkpoint = saved[0].Checkpoint
	_, hash, skipped := skips(&out.Checkpoint)
	blocks, m := known.ledger()
	out.Skipped, *hash, *skipped = blocks, m.Hash, m.Samples
	return out, nil
}

// union is the blocks that any rank skipped.
type union map[blockID]Block

// ledger lists the blocks in the order of a ledger.
func (u union) ledger() ([]Block, Mark) {
	var l Ledger
	for _, b := range u {
		l.enter(b)
	}
	m := l.Mark()
	return l.Blocks(m), m
}

// add adds a ledger over data with that number of samples, of which its checkpoint counts some as
// skipped.
func (u union) add(blocks []Block, samples, skipped uint64) error {
	listed, left := map[blockID]bool{}, samples
	for _, b := range blocks {
		id := b.id()
		if have, ok := u[id]; ok {
			if have.First != b.First || have.Samples != b.Samples {
				return fmt.Errorf("merge: %w: the ledgers disagree on block %d of shard %s: give the states of one job",
					order.ErrMismatch, b.Block, b.Shard)
			}
			b.Reason = min(have.Reason, b.Reason) // the same one in any order of the states
		}
		u[id] = b
		if !listed[id] {
			listed[id] = true
			if b.Samples > left {
				return fmt.Errorf("merge: %w: the ledger lists more samples than the data set has: it was edited",
					order.ErrMismatch)
			}
			left -= b.Samples
		}
	}
	// A ledger is written before its checkpoint, so it may list more, never less.
	if n := samples - left; n < skipped {
		return fmt.Errorf("merge: %w: the checkpoint counts %d skipped samples, its ledger lists %d: keep the ledger with the checkpoint", order.ErrMismatch, skipped, n)
	}
	return nil
}

// sameMixStep is sameStep for a mix.
func sameMixStep(a, b *mix.Checkpoint) error {
	return sameMembers([]member{
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
		{"steered", a.Steered, b.Steered},
	})
}

// member is a member of two checkpoints.
type member struct {
	name string
	x, y any
}

// sameMembers returns an error for the first member that differs.
func sameMembers(members []member) error {
	for _, m := range members {
		if !m.same() {
			return fmt.Errorf("merge: %w to another one: %s is %v in one and %v in the other: give the checkpoints of one step of one job",
				order.ErrMismatch, m.name, m.x, m.y)
		}
	}
	return nil
}

// same compares values if they are comparable, because different values may have equal texts. It
// compares the texts of lists.
func (m *member) same() bool {
	if t := reflect.TypeOf(m.x); t != nil && t.Comparable() {
		return m.x == m.y
	}
	return fmt.Sprint(m.x) == fmt.Sprint(m.y)
}

// sameStep returns an error if two checkpoints differ in anything but what was skipped.
func sameStep(a, b *order.Checkpoint) error {
	if len(a.Sources) != 1 || len(b.Sources) != 1 {
		return fmt.Errorf("merge: %w: a checkpoint has exactly one source", order.ErrMismatch)
	}
	var differs *order.MismatchError
	if errors.As(a.Params.Compare(b.Params), &differs) {
		return sameMembers([]member{{differs.Field, differs.Checkpoint, differs.Given}})
	}
	return sameMembers([]member{
		{"digest", a.Sources[0].Digest, b.Sources[0].Digest},
		{"sources", a.Sources[0], b.Sources[0]},
		{"epoch", a.Epoch, b.Epoch},
		{"position", a.Position, b.Position},
		{"global_batch", a.GlobalBatch, b.GlobalBatch},
		{"tables", a.Tables, b.Tables},
	})
}
