package reader

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// ledger names the blocks that a stream left out.
type ledger struct {
	limit uint64 // most samples

	mu     sync.Mutex
	blocks []SkippedBlock // as they were found
	known  map[blockID]bool
	last   ledgerMark
}

type blockID struct {
	source, shard string
	block         int
}

func (s *SkippedBlock) id() blockID { return blockID{s.Source, s.Shard, s.Block} }

// ledgerMark is what the ledger was behind a batch: its first blocks.
type ledgerMark struct {
	blocks  int
	samples uint64
	hash    string // of the blocks; what a checkpoint keeps of them
}

func newLedger(in []*input, o StreamOptions) *ledger {
	l := &ledger{limit: o.MaxSkipped}
	if o.MaxSkippedShare > 0 {
		l.limit = uint64(o.MaxSkippedShare * float64(samples(in)))
	}
	for _, b := range o.Skipped {
		l.enter(b)
	}
	return l
}

// enter adds a block unless it is there; l.mu is held, or not needed yet.
func (l *ledger) enter(b SkippedBlock) {
	if id := b.id(); !l.known[id] {
		if l.known == nil {
			l.known = map[blockID]bool{}
		}
		l.known[id] = true
		l.blocks = append(l.blocks, b)
		l.last.samples += b.Samples
	}
}

// hole counts the block of one sample that is missing. It returns the error that ends the stream,
// if that is what it is.
func (l *ledger) hole(source string, p *window.Piece, r *order.Ref, cause error) error {
	j := p.Job.Shard.BlockRange(p.Job.Block+int(r.Block)-p.First, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(SkippedBlock{
		Source: source, Shard: j.Shard.Name, Block: j.Block, First: j.First, Samples: uint64(j.Shard.Rows[j.From].Samples), Reason: cause.Error(),
	})
	if l.last.samples > l.limit {
		return fmt.Errorf("%w: %d samples in %d damaged blocks, at most %d are allowed; the last: %w",
			ErrSkipped, l.last.samples, len(l.blocks), l.limit, cause)
	}
	return nil
}

// mark is the ledger as it is now.
func (l *ledger) mark() ledgerMark {
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
		l.last.blocks, l.last.hash = len(l.blocks), hex.EncodeToString(h.Sum(nil)[:16])
	}
	return l.last
}
