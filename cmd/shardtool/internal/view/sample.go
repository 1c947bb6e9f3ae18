package view

import (
	"net/http"

	"github.com/shardtool/shardtool/format"
)

// samplePage is one sample.
type samplePage struct {
	Source       *Source
	Card         card
	Next, Before string
	Of           uint64
}

// sample shows one sample.
func (s *Server) sample(r *http.Request) (any, error) {
	q, ctx := r.URL.Query(), r.Context()
	of, err := s.source(q)
	if err != nil {
		return nil, err
	}
	n, err := number(q, "n", 0)
	if err != nil {
		return nil, err
	}
	p := &samplePage{Source: of, Of: of.Set.NumSamples()}
	if n >= p.Of {
		return nil, missing("there is no sample number %d: the data set has %d, counted from 0", n, p.Of)
	}
	p.Card = s.card(ctx, of, n)
	at := func(n uint64) string { return link("/sample", "source", of.Name, "n", n) }
	if n > 0 {
		p.Before = at(n - 1)
	}
	if n+1 < p.Of {
		p.Next = at(n + 1)
	}
	return p, nil
}

// dataPage describes a data set.
type dataPage struct {
	Source     *Source
	Generation uint64
	Digest     string
	Format     string
	Samples    uint64
	InView     uint64 // samples of the view in use; as many as Samples without one
	Shards     int
	Blocks     uint64
	Bytes      uint64
	Decoded    uint64
	Removed    int
	Purged     int
	Fields     []format.FieldTotal
	Attrs      []format.Attribute
	Totals     []total
	Views      []string
	Meta       []attr
	List       []shard
	From       int
	Next       string
	Before     string
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
