package reader

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// SkippedBlock is a block left out because its damage was confirmed by a second read.
type SkippedBlock struct {
	// Source is the source of a mix.
	Source string `json:"source,omitempty"`
	// Shard is the object's name, Block the block's number in it.
	Shard string `json:"shard"`
	Block int    `json:"block"`
	// First is the number of its first sample, Samples how many it has.
	First   uint64 `json:"first"`
	Samples uint64 `json:"samples"`
	// Reason is what was found.
	Reason string `json:"reason"`
}

func (s SkippedBlock) compare(o SkippedBlock) int {
	return cmp.Or(strings.Compare(s.Source, o.Source), strings.Compare(s.Shard, o.Shard), s.Block-o.Block)
}

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

// hole counts the block of one sample that is missing. It returns the error that ends the stream, if that is what it is.
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

func sorted(blocks []SkippedBlock) []SkippedBlock {
	return slices.SortedFunc(slices.Values(blocks), SkippedBlock.compare)
}

// Skipped is the ledger: the blocks that samples of the batches delivered so far were left out with, those of
// StreamOptions.Skipped included, by shard and block. It may be called from any goroutine.
func (s *Stream) Skipped() []SkippedBlock {
	s.count.mu.Lock()
	n := s.count.skipped.blocks
	s.count.mu.Unlock()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return sorted(s.ledger.blocks[:n])
}

// AppendLedger appends a ledger as text, a JSON object a line.
func AppendLedger(dst []byte, blocks []SkippedBlock) ([]byte, error) {
	for _, b := range blocks {
		line, err := json.Marshal(b)
		if err != nil {
			return dst, err
		}
		dst = append(append(dst, line...), '\n')
	}
	return dst, nil
}

// DecodeLedger reads what AppendLedger wrote.
func DecodeLedger(text []byte) (blocks []SkippedBlock, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var b SkippedBlock
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			return nil, fmt.Errorf("reader: ledger of skipped blocks, line %d: %w", i+1, err)
		}
		if b.Shard == "" || b.Block < 0 {
			return nil, errors.New("reader: ledger of skipped blocks: an entry names no block")
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}
