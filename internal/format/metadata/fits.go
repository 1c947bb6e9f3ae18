package metadata

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// Fits returns nil if a generation of a layer with the section b, of that many shards and samples,
// can be read with the data set of the given tables. Otherwise the error wraps format.ErrMismatch.
// It reads the parts of the tables that the layer covers only where the data set has more shards.
func (b *Base) Fits(base *Tables, shards, samples uint64) error {
	if shards != uint64(b.Shards) || samples != b.Samples {
		return damage.Errorf("a layer of %d shards and %d samples on %d and %d", shards, samples, b.Shards, b.Samples)
	}
	if base.Base != nil {
		return fmt.Errorf("%w: the base is a layer itself: name the data set to which both were added",
			format.ErrMismatch)
	}
	digest, n, err := base.prefix(uint64(b.Shards))
	if err != nil {
		return err
	}
	if digest != b.Digest || n != b.Samples {
		return fmt.Errorf("%w: the layer was made for a data set with the digest %s (%d shards, %d samples); the first %d shards of this one, "+
			"which has %d, have %s (%d samples): open the layer with the data set that it was made for, or make it again",
			format.ErrMismatch, format.DigestString(b.Digest), b.Shards, b.Samples, b.Shards, base.Shards,
			format.DigestString(digest), n)
	}
	return nil
}

// prefix is the digest and the number of samples of the first shards, by themselves, or of all
// where there are fewer.
func (t *Tables) prefix(shards uint64) (digest format.Hash, samples uint64, err error) {
	if shards >= t.Shards {
		return t.Digest, t.Samples, nil
	}
	var all []ShardEntry
	for part := 0; uint64(len(all)) < shards; part++ {
		infos, err := t.LoadShards(part)
		if err != nil {
			return digest, 0, err
		}
		rows, err := t.LoadSamples(part)
		if err != nil {
			return digest, 0, err
		}
		for _, s := range infos {
			e := ShardEntry{ShardInfo: s, Rows: make([]format.Row, s.Rows)}
			for i := range e.Rows {
				e.Rows[i].Samples = uint32(rows[i])
			}
			rows = rows[s.Rows:]
			all = append(all, e)
		}
	}
	m := &Manifest{Shards: all[:shards]}
	return m.digest(), SumSamples(m.Shards), nil
}
