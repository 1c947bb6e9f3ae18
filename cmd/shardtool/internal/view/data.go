package view

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader"
)

// shardsOnPage is how many shards a page lists.
const shardsOnPage = 100

// totalsTime bounds the reading of indexes for the totals of attributes, which tables of an older
// program lack.
const totalsTime = 250 * time.Millisecond

// dataPage describes a data set.
type dataPage struct {
	Source  *Source
	In      reader.Info
	Digest  string
	Samples uint64
	InView  uint64 // samples of the view in use; as many as Samples without one
	Shards  int
	Totals  []total
	// NoTotals: the tables do not have the totals, and there was no time to read all indexes.
	NoTotals bool
	Layers   []string
	Views    []string
	Meta     []attr
	List     []shard
	pages
}

// total is the distribution of an integer attribute.
type total struct {
	Name     string
	Samples  uint64
	Min, Max int64
	Mean     float64
	Bars     []bar
}

// bar is a part of a histogram. Height is 0 to 100.
type bar struct {
	X, Y, Height int
	Text         string
}

type shard struct {
	Name    string
	Samples uint64
	Bytes   uint64
	First   uint64
}

// data describes a data set from its tables. It reads no shard if they have the totals of
// attributes.
func (s *Server) data(r *http.Request) (any, error) {
	q, ctx := s.query(r), r.Context()
	of, from := q.source(), q.number("from", 0)
	if q.err != nil {
		return nil, q.err
	}
	in := of.Set.Info()
	p := &dataPage{
		Source: of, In: in, Digest: format.DigestString(of.Set.Digest()), Samples: of.Set.NumSamples(),
		InView: of.Set.Selection().Distinct(),
		Shards: of.Set.NumShards(), Layers: of.Layers(), Views: viewNames(ctx, of.Set),
	}
	for _, name := range slices.Sorted(maps.Keys(in.Meta)) {
		p.Meta = append(p.Meta, attr{name, clean(in.Meta[name], 2000)})
	}
	short, cancel := context.WithTimeout(ctx, totalsTime)
	defer cancel()
	totals, err := of.Set.AttrTotals(short)
	if p.NoTotals = err != nil && short.Err() != nil && ctx.Err() == nil; err != nil && !p.NoTotals {
		return nil, err
	}
	for i := 0; i < len(totals) && !p.NoTotals; i++ {
		p.Totals = append(p.Totals, totalOf(&totals[i]))
	}
	return p, p.list(ctx, from)
}

// list lists the shards of the page.
func (p *dataPage) list(ctx context.Context, from uint64) error {
	from = min(from, uint64(p.Shards))
	end := min(int(from)+shardsOnPage, p.Shards)
	for i := int(from); i < end; i++ {
		info, err := p.Source.Set.Shard(ctx, i)
		if err != nil {
			return err
		}
		first, err := p.Source.Set.FirstSample(ctx, i)
		if err != nil {
			return err
		}
		p.List = append(p.List, shard{info.Name, info.Samples, info.Size, first})
	}
	p.turn(from, shardsOnPage, end < p.Shards,
		func(from uint64) string { return link("/data", "source", p.Source.Name, "from", from) })
	return nil
}

// totalOf draws the histogram of an attribute: a bar for each power of two.
func totalOf(t *metadata.AttrTotal) total {
	out := total{Name: t.Name, Samples: t.Samples, Min: t.Min, Max: t.Max}
	out.Mean, _ = new(big.Rat).SetFrac(t.Sum(), big.NewInt(max(int64(t.Samples), 1))).Float64()
	first, last, top := len(t.Counts), -1, t.Negative
	for i, n := range t.Counts {
		if n > 0 {
			first, last, top = min(first, i), i, max(top, n)
		}
	}
	add := func(n uint64, text string) {
		height := int(100 * n / max(top, 1))
		if n > 0 {
			height = max(height, 1)
		}
		out.Bars = append(out.Bars, bar{X: 14 * len(out.Bars), Y: 100 - height, Height: height, Text: text + ": " +
			humanize.Comma(int64(n))})
	}
	if t.Negative > 0 {
		add(t.Negative, "below 0")
	}
	for i := first; i <= last; i++ {
		text := "0"
		if i > 0 {
			text = fmt.Sprintf("%s to %s", humanize.Comma(int64(1)<<(i-1)), humanize.Comma(int64(uint64(1)<<i-1)))
		}
		add(t.Counts[i], text)
	}
	return out
}
