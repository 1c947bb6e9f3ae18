package reader

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/reader/order"
)

// SkippedBlock is a block left out because its damage was confirmed by a second read.
type SkippedBlock struct {
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
	if c := strings.Compare(s.Shard, o.Shard); c != 0 {
		return c
	}
	return s.Block - o.Block
}

// ledger names the blocks that a stream left out.
type ledger struct {
	limit uint64 // most samples

	mu      sync.Mutex
	blocks  []SkippedBlock // in order
	samples uint64
}

func newLedger(d *Dataset, o StreamOptions) *ledger {
	l := &ledger{limit: o.MaxSkipped}
	if o.MaxSkippedShare > 0 {
		l.limit = uint64(o.MaxSkippedShare * float64(d.tables.Samples))
	}
	for _, b := range o.Skipped {
		l.enter(b)
	}
	return l
}

// enter adds a block unless it is there; l.mu is held, or not needed yet.
func (l *ledger) enter(b SkippedBlock) {
	at, there := slices.BinarySearchFunc(l.blocks, b, SkippedBlock.compare)
	if !there {
		l.blocks = slices.Insert(l.blocks, at, b)
		l.samples += b.Samples
	}
}

// hole counts one sample of a damaged block. It returns the error that ends the stream, if that is what it is.
func (l *ledger) hole(p *piece, r *order.Ref, cause error) error {
	if !confirmed(cause) {
		return cause
	}
	block := p.job.block + int(r.Block) - p.first
	rows := p.job.shard.rows
	entry := SkippedBlock{Shard: p.job.shard.Name, Block: block, First: r.Number - uint64(r.Index), Reason: cause.Error()}
	for i, n := 0, -1; i < len(rows); i++ {
		if rows[i].Samples > 0 {
			if n++; n == block {
				entry.Samples = uint64(rows[i].Samples)
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(entry)
	if l.samples > l.limit {
		return fmt.Errorf("%w: %d samples in %d damaged blocks, at most %d are allowed; the last: %w", ErrSkipped, l.samples, len(l.blocks), l.limit, cause)
	}
	return nil
}

// mark is what a checkpoint keeps of the ledger.
func (l *ledger) mark() (hash string, samples uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.blocks) == 0 {
		return "", 0
	}
	h := sha256.New()
	for _, b := range l.blocks {
		fmt.Fprintf(h, "%s\x00%d\n", b.Shard, b.Block)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), l.samples
}

// Skipped is the ledger: the blocks left out so far, those of StreamOptions.Skipped included, by shard and block. It may be
// called from any goroutine.
func (s *Stream) Skipped() []SkippedBlock {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return slices.Clone(s.ledger.blocks)
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
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if line == "" && len(text) == 0 {
			return nil, nil
		}
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
