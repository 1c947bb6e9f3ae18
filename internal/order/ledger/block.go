package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Block is a block left out because its damage was confirmed by a second read.
type Block struct {
	// Source is the source of a mix.
	Source string `json:"source,omitempty"`
	// Shard is the object's name, Block the block's number in it.
	Shard string `json:"shard"`
	Block int    `json:"block"`
	// First is the number of its first sample in storage order, Samples how many it has.
	First   uint64 `json:"first"`
	Samples uint64 `json:"samples"`
	// Reason is the error of the second read.
	Reason string `json:"reason"`
}

// blockID tells blocks apart: shards of two sources may have the same name.
type blockID struct {
	source, shard string
	block         int
}

func (b *Block) id() blockID { return blockID{b.Source, b.Shard, b.Block} }

func (b Block) compare(o Block) int {
	return cmp.Or(strings.Compare(b.Source, o.Source), strings.Compare(b.Shard, o.Shard), b.Block-o.Block)
}

// Append appends the text of a ledger to dst: one JSON object a line.
func Append(dst []byte, blocks []Block) ([]byte, error) {
	for _, b := range blocks {
		line, err := json.Marshal(b)
		if err != nil {
			return dst, err
		}
		dst = append(append(dst, line...), '\n')
	}
	return dst, nil
}

// Decode reads what Append wrote.
func Decode(text []byte) (blocks []Block, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var b Block
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			return nil, fmt.Errorf("ledger of skipped blocks, line %d: %w", i+1, err)
		}
		if b.Shard == "" || b.Block < 0 {
			return nil, fmt.Errorf("ledger of skipped blocks, line %d: it names no block", i+1)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}
