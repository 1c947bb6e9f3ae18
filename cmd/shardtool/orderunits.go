package main

import (
	"unicode/utf8"

	"github.com/shardtool/shardtool/reader/order"
)

// unitLine is the line of a unit.
type unitLine struct {
	Source   string `json:"source,omitempty"` // of a mix
	Epoch    uint64 `json:"epoch"`            // of the source
	Position uint64 `json:"position"`         // in units; of a mix, over all its epochs
	// Tokens is the sum of the lengths, Longest the largest of them.
	Tokens  uint64     `json:"tokens"`
	Longest uint32     `json:"longest"`
	Items   []itemLine `json:"items"`
	Padding bool       `json:"padding,omitempty"`
}

// itemLine is a sample in a unit, or a piece of one.
type itemLine struct {
	Shard    string `json:"shard"`
	Block    int    `json:"block"`
	Number   uint64 `json:"number"`
	Key      string `json:"key,omitempty"`
	KeyBytes []byte `json:"key_base64,omitempty"`
	Offset   uint32 `json:"offset"`
	Length   uint32 `json:"length"`
}

// add adds an item.
func (l *unitLine) add(it itemLine, cut *order.Cut) {
	it.Offset, it.Length = cut.Offset, cut.Length
	l.Tokens, l.Longest = l.Tokens+uint64(cut.Length), max(l.Longest, cut.Length)
	l.Items = append(l.Items, it)
}

// orderLine is a sample in an order, as `cat --json` prints it.
type orderLine struct {
	Source   string `json:"source,omitempty"` // in a mix
	Epoch    uint64 `json:"epoch"`            // of the source, in a mix
	Position uint64 `json:"position"`
	Shard    string `json:"shard"`
	Block    int    `json:"block"`
	Number   uint64 `json:"number"`
	Key      string `json:"key,omitempty"`
	KeyBytes []byte `json:"key_base64,omitempty"`
	Padding  bool   `json:"padding,omitempty"`
}

// keyBytes returns the bytes of a key that is not UTF-8, because a JSON string cannot hold it.
func keyBytes[K ~string | ~[]byte](key K) []byte {
	if utf8.Valid([]byte(key)) {
		return nil
	}
	return []byte(key)
}
