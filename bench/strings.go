package main

import (
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/bench/table"
)

// stringsKind is the data of the group, and alsoShuffled the end of the name of another system that
// shuffles as ours does.
var stringsKind = peerKind{"str", "text 3 KB as str", "txt", 256, []string{"local"}, nil, peerText}

const alsoShuffled = ", shuffled"

// shownKinds are all kinds of data that other systems are measured on.
func shownKinds() []peerKind { return append(slices.Clip(peerKinds), stringsKind) }

// strings compares text delivered as Python's str with other systems at their best settings. The
// others run shuffled, as ours does, and not shuffled.
func (b *bench) strings() error {
	if b.others("strings") == "" {
		return nil
	}
	p := &peersBench{bench: b, group: "strings", noS3: "not measured"}
	lit, arrow := "LitData "+release("litdata"), "Hugging Face datasets "+release("datasets")+", map-style"
	const packed, plain = "shardtool, compressed", "shardtool, plain tars"
	kind := stringsKind
	results, err := p.measure(kind, []peerSystem{{"str packed", packed}, {"str plain", plain}, {"str litdata", lit},
		{"str litdata shuffled", lit + alsoShuffled},
		{"str arrow", arrow}, {"str arrow shuffled", arrow + alsoShuffled}, {"str alone", inMemory}})
	if err != nil {
		return err
	}
	b.peers = append(b.peers, results...)
	rates := map[string]table.Sample{}
	for _, r := range results {
		if rates[r.system] = r.Rates; len(r.Rates) == 0 {
			return fmt.Errorf("%s: %s", r.system, r.Reason)
		}
	}
	for _, r := range []struct {
		ours, other string
		goal        float64
	}{{packed, lit, 2.5}, {plain, lit, 2.5}, {packed, arrow, 1.2}, {plain, arrow, 2}} {
		p.Info(p.group, kind.shown+": "+r.ours+" / "+r.other,
			table.One(rates[r.ours].Median()/rates[r.other].Median()), "x", "theirs does not shuffle")
		shuffled := rates[r.other+alsoShuffled].Median()
		p.AtLeast(p.group, kind.shown+": "+r.ours+" / "+r.other+alsoShuffled, table.One(rates[r.ours].Median()/shuffled),
			"x", r.goal, fmt.Sprintf("the limit, making the str of bytes in memory, is %.3g x", rates[inMemory].Median()/shuffled))
	}
	return nil
}
