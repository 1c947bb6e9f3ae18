package main

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inspect"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader"
)

// attrTotalJSON is a member of attribute_totals.
type attrTotalJSON struct {
	Name      string   `json:"name"`
	Samples   uint64   `json:"samples"`
	Sum       *big.Int `json:"sum"` // may have 127 bits
	Min       int64    `json:"min"`
	Max       int64    `json:"max"`
	Negative  uint64   `json:"negative"`
	Histogram []uint64 `json:"histogram"` // counts zeros, then 1, 2 to 3, 4 to 7 and so on
}

// attrTotals describes the integer attributes of a data set, or of its view.
func attrTotals(ctx context.Context, ds *reader.Dataset, view *inspect.Part) ([]attrTotalJSON, error) {
	totals, err := totalsOf(ctx, ds, view)
	out := []attrTotalJSON{}
	for _, t := range totals {
		counts := t.Counts[:]
		for len(counts) > 0 && counts[len(counts)-1] == 0 {
			counts = counts[:len(counts)-1]
		}
		out = append(out, attrTotalJSON{t.Name, t.Samples, t.Sum(), t.Min, t.Max, t.Negative, counts})
	}
	return out, err
}

func totalsOf(ctx context.Context, ds *reader.Dataset, view *inspect.Part) ([]metadata.AttrTotal, error) {
	if view != nil {
		return view.Totals, nil
	}
	return ds.AttrTotals(ctx)
}

// printAttributes prints a line for each attribute.
func printAttributes(ctx context.Context, w io.Writer, ds *reader.Dataset, view *inspect.Part) error {
	totals, err := totalsOf(ctx, ds, view)
	if err != nil {
		return err
	}
	for _, a := range ds.Info().Attributes {
		fmt.Fprintf(w, "attribute %s (%v)", shown(a.Name), a.Kind)
		i := slices.IndexFunc(totals, func(t metadata.AttrTotal) bool { return t.Name == a.Name })
		if i >= 0 && totals[i].Samples > 0 {
			fmt.Fprintf(w, ": %s", valuesText(&totals[i]))
		}
		fmt.Fprintln(w)
	}
	return nil
}

// valuesText describes the values of an integer attribute.
func valuesText(t *metadata.AttrTotal) string {
	mean, _ := new(big.Rat).SetFrac(t.Sum(), new(big.Int).SetUint64(t.Samples)).Float64()
	text := fmt.Sprintf("sum %v, mean %.1f, from %d to %d in %s", t.Sum(), mean, t.Min, t.Max,
		plural(t.Samples, "sample"))
	var h inspect.Histogram
	for i, n := range t.Counts {
		h[i] = int(n)
	}
	if t.Negative < t.Samples {
		text += "  " + sparkline(&h,
			func(i int) string { return new(big.Int).Rsh(new(big.Int).Lsh(big.NewInt(1), uint(i)), 1).String() })
	}
	if t.Negative > 0 {
		text += fmt.Sprintf(", %s below 0", countText(t.Negative))
	}
	return text
}

// sparkline draws a histogram from its least to its greatest power of two, such as
// "512 B ▂▅█▃▁ 64 KiB". edge is the text of a power of two.
func sparkline(h *inspect.Histogram, edge func(int) string) string {
	if h == nil {
		return ""
	}
	lo, hi, most := -1, 0, 0
	for i, n := range h {
		if n > 0 {
			if lo < 0 {
				lo = i
			}
			hi, most = i, max(most, n)
		}
	}
	if lo < 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(edge(lo) + " ")
	marks := []rune("▁▂▃▄▅▆▇█")
	for i := lo; i <= hi; i++ {
		if h[i] == 0 {
			b.WriteRune(' ')
			continue
		}
		b.WriteRune(marks[(h[i]*len(marks)-1)/most])
	}
	return b.String() + " " + edge(hi+1)
}

// sizeEdge is the least size of entry i of a histogram.
func sizeEdge(i int) string {
	if i == 0 {
		return "0 B"
	}
	return bytesText(1 << (i - 1))
}
