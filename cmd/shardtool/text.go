package main

import (
	"fmt"
	"strconv"

	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/reader/order"
)

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" }

func plural[N ~int | ~int64 | ~uint64](n N, what string) string { return plain.Plural(n, what) }

func countText(n uint64) string { return plain.Count(n) }

func bytesText(n uint64) string { return plain.Bytes(n) }

func skippedText(samples uint64) string {
	if samples == 0 {
		return ""
	}
	return "; " + plural(samples, "sample") + " skipped so far"
}

func paramsText(p order.Params) string {
	if !p.Shuffle {
		return fmt.Sprintf("storage order in %d lanes, tail %s", p.Lanes, p.Tail)
	}
	runs := fmt.Sprintf("%d blocks", p.RunBlocks)
	if p.RunBlocks == 0 {
		runs = "a shard"
	}
	return fmt.Sprintf("shuffled with seed %d: %d lanes, runs of %s, delay %d, head %d, affinity %s, tail %s", p.Seed,
		p.Lanes, runs, p.Delay, p.Head, p.Affinity, p.Tail)
}

// orderJSON has the parameters of an order.
type orderJSON struct {
	Affinity  order.Affinity `json:"affinity"`
	Delay     uint32         `json:"delay"`
	Head      uint32         `json:"head"`
	Lanes     uint32         `json:"lanes"`
	RunBlocks uint32         `json:"run_blocks"`
	Seed      uint64         `json:"seed"`
	Shuffle   bool           `json:"shuffle"`
	Tail      order.Tail     `json:"tail"`
}

func newOrderJSON(p order.Params) orderJSON {
	return orderJSON{p.Affinity, p.Delay, p.Head, p.Lanes, p.RunBlocks, p.Seed, p.Shuffle, p.Tail}
}
