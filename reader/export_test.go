package reader

import (
	"context"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// What tests of package reader_test use, which read mix files.

// Data is what a source's tables tell.
type Data struct {
	Table  order.Table
	Digest string
	Tables string
}

func sourcesData(data []Data) (all []sourceData) {
	for _, d := range data {
		all = append(all, sourceData{table: d.Table, digest: d.Digest, tables: d.Tables})
	}
	return all
}

// MixOf is Spec.mix over data sets that are not there. It refuses what a run refuses.
func (s *Spec) MixOf(data []Data, c order.Choice, from *mix.Checkpoint) (mix.Mix, error) {
	x := *s
	x.Order = c
	m, err := x.mix(context.Background(), sourcesData(data), from)
	if err == nil && from == nil { // else Differences checks it
		_, err = x.plan(m, from)
	}
	return m, err
}

// ExtentOf is Spec.extent over data sets that are not there.
func (s *Spec) ExtentOf(data []Data, from *mix.Checkpoint, change bool) (epoch, end uint64, err error) {
	return s.extent(sourcesData(data), from, change)
}

// Size is the size of a source.
type Size struct{ Units, Tokens uint64 }

// Weights is Spec.weights.
func (s *Spec) Weights(sizes []Size) ([]mix.Segment, error) {
	var all []sourceSize
	for _, x := range sizes {
		all = append(all, sourceSize{x.Units, x.Tokens})
	}
	return s.weights(all)
}

// EpochLength is Spec.epochLength.
func (s *Spec) EpochLength(m mix.Mix) (uint64, error) { return s.epochLength(m) }

// Tokens are those of the sources.
func (x *Sources) Tokens() (tokens []uint64) {
	for i := range x.data {
		tokens = append(tokens, x.data[i].tokens)
	}
	return tokens
}
