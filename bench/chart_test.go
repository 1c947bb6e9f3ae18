package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
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

var updateChart = flag.Bool("update", false, "draw docs/speed.svg anew, from the table of docs/benchmarks.md")

// TestChartOfPage: the chart of README is drawn from the table of the page, whose rows are all in
// it, and each bar says whether it was shuffled.
func TestChartOfPage(t *testing.T) {
	page, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, summary, _, ok := between(string(page), "summary")
	chart, err := chartOf(summary)
	if !ok || err != nil || chart == nil {
		t.Fatal(ok, err)
	}
	if *updateChart {
		if err := os.WriteFile("../docs/speed.svg", chart, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile("../docs/speed.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != string(chart) {
		t.Error("docs/speed.svg is not drawn from the table of docs/benchmarks.md: run the test with -update")
	}
	bars := strings.Count(string(chart), "<rect")
	shuffled, ordered := strings.Count(string(chart), ", shuffled</text>"), strings.Count(string(chart), ", in order</text>")
	cells := 0 // of the columns of local disk
	for line := range strings.Lines(summary) {
		for i, cell := range strings.Split(line, " | ") {
			if strings.HasPrefix(line, "| ") && slices.Contains([]int{1, 3, 6, 8, 9, 10}, i) && strings.Trim(cell, "0123456789, |\n") == "" {
				cells++
			}
		}
	}
	if bars != cells || shuffled+ordered != bars || shuffled == 0 || ordered == 0 {
		t.Errorf("%d bars for %d cells, of which %d are shuffled and %d in order", bars, cells, shuffled, ordered)
	}
}
