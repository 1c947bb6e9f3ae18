// Package mixfile reads mix files: YAML, or JSON, which names the sources of a mix, their shares
// and how these change. The caller opens the data sets; package mix of reader/order does the
// arithmetic.
//
//	sources:
//	  web:  {data: "s3://bucket/web#clean", weight: 0.6}
//	  code: {data: "s3://bucket/code", weight: 0.3, max_epochs: 4}
//	  math: {data: "/data/math", where: "score >= 3", weight: 0.1}
//	epoch: 10_000_000
//	segments:
//	  - {at: 50_000_000, weights: {web: 0.3, code: 0.3, math: 0.4}}
package mixfile

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// File is what a mix file contains.
type File struct {
	Name     string   // of the file, for errors
	Sources  []Source // in ascending order of names
	Segments []Segment
	// Temperature is p/q; the sources then have no shares. nil: none is given.
	Temperature *[2]int
	// Count names the integer attribute whose sum shares count, such as tokens; empty: they count
	// samples.
	Count string
	// Units is the length of an epoch, or Rule the rule for it. Neither is given: Epoch finds it.
	Units uint64
	Rule  mix.EpochRule

	epochLine int // 0: the file gives none
}

// Source is a source of a mix file.
type Source struct {
	Name  string
	Line  int    // of the file
	Data  string // where the data set is
	Where string // an expression that chooses samples
	Keys  string // a file with the keys of the samples chosen
	// Share is nil where none is given.
	Share     *big.Rat
	MaxEpochs uint64 // 0: none is given
	Order     Order
}

// Order is what a source fixes of its order. 0 and "" leave it open.
type Order struct {
	Lanes, RunBlocks, Delay, Head uint32
	Affinity                      order.Affinity
	WholeShards                   bool
}

// Segment is shares that hold from a position on, by number of the source.
type Segment struct {
	At     uint64
	Shares []*big.Rat
	line   int
}

// Size is what the weights depend on of a source.
type Size struct {
	Units  uint64 // of an epoch
	Tokens uint64 // in them, the sum of Count; only shares of tokens need it
}

// Weights are the segments of the mix: the weights that the shares give sources of these sizes.
func (f *File) Weights(sizes []Size) ([]mix.Segment, error) {
	first, err := f.first(sizes)
	if err != nil {
		return nil, err
	}
	segments := []mix.Segment{{Weights: first}}
	for i, g := range f.Segments {
		weights, err := f.quantize(g.Shares, sizes)
		if err != nil {
			return nil, f.fail(g.line, fmt.Sprintf("segments[%d].weights", i), err)
		}
		segments = append(segments, mix.Segment{At: g.At, Weights: weights})
	}
	return segments, nil
}

// first is the weights at position 0.
func (f *File) first(sizes []Size) ([]uint64, error) {
	shares := make([]*big.Rat, len(f.Sources))
	weights := make([]uint64, len(f.Sources))
	for i := range f.Sources {
		var err error
		switch s := &f.Sources[i]; {
		case f.Temperature != nil:
			shares[i], err = mix.Temperature(sizes[i].Units, f.Temperature[0], f.Temperature[1])
		case s.Share != nil:
			shares[i] = s.Share
		default:
			shares[i] = new(big.Rat)
		}
		if err != nil {
			return nil, f.fail(0, "temperature", err)
		}
		weights[i] = sizes[i].Units
	}
	if !f.weighted() {
		return weights, nil // each sample once in an epoch
	}
	weights, err := f.quantize(shares, sizes)
	if err != nil {
		return nil, f.located(0, "sources", err)
	}
	return weights, nil
}

// weighted reports whether the file has shares for position 0.
func (f *File) weighted() bool {
	return f.Temperature != nil || slices.ContainsFunc(f.Sources, func(s Source) bool { return s.Share != nil })
}

func (f *File) quantize(shares []*big.Rat, sizes []Size) ([]uint64, error) {
	names := make([]string, len(shares))
	shares = slices.Clone(shares)
	for i := range shares {
		names[i] = f.Sources[i].Name
		if f.Count == "" {
			continue
		}
		var err error
		if shares[i], err = mix.PerToken(shares[i], sizes[i].Tokens, sizes[i].Units); err != nil {
			return nil, &mix.SourceError{Source: names[i], Err: err}
		}
	}
	return mix.Quantize(names, shares)
}

// Epoch is the length of an epoch of a mix that has everything but that.
func (f *File) Epoch(m mix.Mix) (uint64, error) {
	switch {
	case f.Units > 0:
		return f.Units, nil
	case f.Rule == "" && !f.weighted():
		var total uint64
		for _, w := range m.Segments[0].Weights {
			total += w
		}
		return total, nil
	case f.Rule == "":
		return m.EpochLength(mix.EpochAll)
	}
	return m.EpochLength(f.Rule)
}

// Error is an error in a mix file.
type Error struct {
	File   string
	Line   int    // from 1; 0: the error is not about one line
	Member string // such as sources.web.weight
	Err    error
}

// Error names file, line and member.
func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Member != "" {
		at += ": " + e.Member
	}
	return fmt.Sprintf("%s: %v", at, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func (f *File) fail(line int, member string, err error) error {
	return &Error{f.Name, line, member, err}
}
