package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/bench/table"
)

// TestSpeedChart checks that the drawing is well-formed, has a bar for each rate, and leaves out
// what has none.
func TestSpeedChart(t *testing.T) {
	kind := peerKinds[0].shown
	svg := string(speedChart([]peerResult{
		{Store: "local", kind: kind, system: "slow & plain", Rates: table.One(10)},
		{Store: "local", kind: kind, system: "shardtool, views", Rates: table.One(1000)},
		{Store: "local", kind: kind, system: "zstd -dc, tar", Rates: table.One(5000)},
		{Store: "local", kind: kind, system: "broken", Reason: "it failed"},
		{Store: "s3", kind: kind, system: "remote", Rates: table.One(1)},
	}, "1 January 2030"))
	decoder := xml.NewDecoder(strings.NewReader(svg))
	bars := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 2 || strings.Index(svg, "shardtool, views") > strings.Index(svg, "slow &amp; plain") {
		t.Errorf("%d bars:\n%s", bars, svg)
	}
	for _, none := range []string{"broken", "remote", "zstd"} {
		if strings.Contains(svg, none) {
			t.Errorf("%q is drawn", none)
		}
	}
}
