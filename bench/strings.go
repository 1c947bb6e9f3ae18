package main

import (
	"fmt"

	"github.com/shardtool/shardtool/bench/table"
)

// strings compares text delivered as Python's str with other systems at their best settings. The
// others run shuffled, as ours does, and not shuffled.
func (b *bench) strings() error {
	if b.others("strings") == "" {
		return nil
	}
	p := &peersBench{bench: b, group: "strings", noS3: "not measured"}
	lit, arrow := "LitData "+release("litdata"), "Hugging Face datasets "+release("datasets")+", Arrow"
	const packed, plain, alone = "shardtool, compressed", "shardtool, plain tars", "str of bytes in memory"
	kind := peerKind{"str", "text 3 KB as str", "txt", 256, []string{"local"}, nil, peerText}
	results, err := p.measure(kind, []peerSystem{{"str packed", packed}, {"str plain", plain}, {"str litdata", lit},
		{"str litdata shuffled", lit + ", shuffled"},
		{"str arrow", arrow}, {"str arrow shuffled", arrow + ", shuffled"}, {"str alone", alone}})
	if err != nil {
		return err
	}
	rates := map[string]table.Sample{}
	for _, r := range results {
		if rates[r.system] = r.Rates; len(r.Rates) == 0 {
			return fmt.Errorf("%s: %s", r.system, r.Reason)
		}
	}
	for _, other := range []string{lit, arrow} {
		for _, ours := range []string{plain, packed} {
			p.Info(p.group, kind.shown+": "+ours+" / "+other, table.One(rates[ours].Median()/rates[other].Median()),
				"x", "theirs does not shuffle")
			p.AtLeast(p.group, kind.shown+": "+ours+" / "+other+", shuffled",
				table.One(rates[ours].Median()/rates[other+", shuffled"].Median()), "x", 3,
				fmt.Sprintf("the limit, making the str of bytes in memory, is %.3g x",
					rates[alone].Median()/rates[other+", shuffled"].Median()))
		}
	}
	return nil
}
