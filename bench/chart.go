package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/bench/table"
)

// The drawing, in pixels: a panel for each kind of data, a bar for each system, and what follows it.
const (
	chartWidth  = 900
	chartBehind = 150 // width of the figures
	chartName   = 285 // width of the names
	chartBar    = 22  // height of a bar with its gap
	chartPanel  = 52  // height of a panel's title with its gap
	chartFooter = 44
)

// chartOf draws the rates from local disk in the table of a page's summary: each bar is a cell of
// it. It returns nil for a table without such rates.
func chartOf(summary string) ([]byte, error) {
	var columns []string
	var results []peerResult
	day := ""
	for line := range strings.Lines(summary) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "- "), ":"); ok && day == "" && strings.HasPrefix(line, "- ") {
			day = first
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if columns == nil {
			columns = cells
			continue
		}
		for _, k := range shownKinds() {
			at := slices.Index(columns, columnOf(k.shown, "local"))
			if at < 0 || at >= len(cells) || cells[at] == "–" {
				continue
			}
			rate, err := strconv.ParseFloat(strings.ReplaceAll(cells[at], ",", ""), 64)
			if err != nil {
				return nil, fmt.Errorf("the summary's rate of %s: %w", cells[0], err)
			}
			results = append(results, peerResult{Store: "local", kind: k.shown, system: cells[0], Rates: table.One(rate)})
		}
	}
	if len(results) == 0 {
		return nil, nil
	}
	return speedChart(results, day), nil
}

// columnOf is the name of the column of a kind of data from a store.
func columnOf(kind, store string) string {
	return strings.ToUpper(kind[:1]) + kind[1:] + ", " + storeNames[store]
}

// shuffles reports whether a system is measured as it shuffles. The others read in order, which is
// faster for them.
func shuffles(system string) bool { return ours(system) || strings.HasSuffix(system, alsoShuffled) }

func ours(system string) bool { return strings.HasPrefix(system, "shardtool") }

// speedChart draws the rates from local disk in the steady state as an SVG, which GitHub shows in a
// page, in light and in dark. Rates of different kinds of data do not compare, so each panel has
// its own scale. Each bar says whether its samples were shuffled.
func speedChart(results []peerResult, day string) []byte {
	var body bytes.Buffer
	y := 0
	for _, k := range shownKinds() {
		var rows []peerResult
		for _, r := range results {
			if r.kind == k.shown && r.Store == "local" && len(r.Rates) > 0 && r.loads() {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			continue
		}
		slices.SortStableFunc(rows,
			func(x, y peerResult) int { return cmp.Compare(y.Rates.Median(), x.Rates.Median()) })
		y += chartPanel
		fmt.Fprintf(&body, "<text class=\"head\" x=\"0\" y=\"%d\">%s: samples per second</text>\n", y-14,
			html.EscapeString(k.shown))
		most := rows[0].Rates.Median()
		for _, r := range rows {
			width := max(1, r.Rates.Median()/most*(chartWidth-chartName-chartBehind))
			class, order := "other", "in order"
			if shuffles(r.system) {
				order = "shuffled"
			}
			if ours(r.system) {
				class = "ours"
			}
			fmt.Fprintf(&body, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", chartName-10, y+15,
				html.EscapeString(strings.TrimSuffix(r.system, alsoShuffled)))
			fmt.Fprintf(&body, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%d\"/>", class, chartName,
				y+3, width, chartBar-6)
			fmt.Fprintf(&body, "<text x=\"%.0f\" y=\"%d\">%s, %s</text>\n", chartName+width+8, y+15,
				table.Count(r.Rates.Median()), order)
			y += chartBar
		}
	}
	y += chartFooter
	fmt.Fprintf(&body, "<text class=\"note\" x=\"0\" y=\"%d\">Python batches from local disk, steady state. Shuffled: shardtool in a window of an eighth of the data, every block checked; others in theirs. In order: the</text>\n", y-22)
	fmt.Fprintf(&body, "<text class=\"note\" x=\"0\" y=\"%d\">system does not shuffle there, which is faster for it. Two cores, page cache warm, %s. Each bar is a row of the table in docs/benchmarks.md.</text>\n", y-6, day)
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Samples per second of data loaders\">\n", chartWidth, y)
	out.WriteString("<style>text{font:13px sans-serif;fill:#24292f}.head{font-weight:bold}.note{font-size:11px;fill:#57606a}.ours{fill:#0969da}.other{fill:#afb8c1}" +
		"@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.ours{fill:#4493f8}.other{fill:#656c76}}</style>\n")
	out.Write(body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}
