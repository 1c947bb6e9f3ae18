package reader

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func sorted(blocks []SkippedBlock) []SkippedBlock {
	return slices.SortedFunc(slices.Values(blocks), SkippedBlock.compare)
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
