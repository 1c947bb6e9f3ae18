// Package ledger lists the blocks that a job left out because they are damaged.
//
//	stream: a damaged block ──▶ Ledger.Skip ──▶ Mark of each batch ──▶ checkpoint: count and hash
//	                                         └▶ Blocks ──▶ Append: the file beside the checkpoint
//	checkpoints and ledgers of all ranks ──▶ Merge ──▶ one state, to resume from
//
// A checkpoint has no room for the blocks: it has the number of their samples and a hash of their
// names, and the job keeps the text of the ledger beside it.
package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull is returned if more samples were skipped than the limit allows.
var ErrFull = errors.New("too many samples skipped")

// Ledger is the list of one stream. It may be used by several goroutines at once. The zero value is
// empty, and its limit is 0 samples.
type Ledger struct {
	limit uint64 // samples

	mu     sync.Mutex
	blocks []Block // as they were found
	known  map[blockID]bool
	last   Mark
}

// Mark is the state of a ledger after a batch.
type Mark struct {
	// Samples counts the samples of all blocks listed.
	Samples uint64
	// Hash is the hash of the blocks for checkpoints; empty for none. It does not depend on their
	// order.
	Hash string

	blocks int
}

// New returns a ledger that accepts at most limit samples. It begins with the blocks that an
// earlier run of the job skipped.
func New(limit uint64, skipped []Block) *Ledger {
	l := &Ledger{limit: limit}
	for _, b := range skipped {
		l.enter(b)
	}
	return l
}

// enter adds a block unless it is listed. The caller holds l.mu, or is the only one to know l.
func (l *Ledger) enter(b Block) {
	if id := b.id(); !l.known[id] {
		if l.known == nil {
			l.known = map[blockID]bool{}
		}
		l.known[id] = true
		l.blocks = append(l.blocks, b)
		l.last.Samples += b.Samples
	}
}

// Skip lists a block unless it is listed already. The error wraps ErrFull and the cause when the
// ledger has more samples than its limit.
func (l *Ledger) Skip(b Block, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(b)
	if l.last.Samples > l.limit {
		return fmt.Errorf("%w: %d samples in %d damaged blocks, at most %d are allowed; the last: %w",
			ErrFull, l.last.Samples, len(l.blocks), l.limit, cause)
	}
	return nil
}

// Mark returns the present state.
func (l *Ledger) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.blocks != len(l.blocks) {
		h := sha256.New()
		for _, b := range sorted(l.blocks) {
			if b.Source != "" {
				fmt.Fprintf(h, "%s\x00", b.Source)
			}
			fmt.Fprintf(h, "%s\x00%d\n", b.Shard, b.Block)
		}
		l.last.blocks, l.last.Hash = len(l.blocks), hex.EncodeToString(h.Sum(nil)[:16])
	}
	return l.last
}

// Blocks returns the blocks that were listed at a mark, in ascending order of source, shard and
// block.
func (l *Ledger) Blocks(at Mark) []Block {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sorted(l.blocks[:at.blocks])
}

func sorted(blocks []Block) []Block {
	return slices.SortedFunc(slices.Values(blocks), Block.compare)
}
