package reader

import (
	"math"

	"github.com/shardtool/shardtool/objstore"
)

// Fetches estimates how many times all ranks together fetch in an epoch what the sources hold, where
// no rank fetches a block twice: 1 if each block is fetched by one of them. more is how many bytes are
// fetched again. What is in a local store or goes through a cache is not fetched, and what streams
// share (Tuning.Share) is fetched once.
func (s *Stream) Fetches() (times float64, more uint64) {
	once, all := 0., 0.
	for _, in := range s.inputs {
		if in.Dataset == nil || in.share == 0 {
			continue
		}
		_, stored := in.sums()
		once += stored
		all += stored * in.fetches(&s.opts, float64(s.split.World))
	}
	return all / max(once, 1), uint64(max(all-once, 0))
}

// fetches returns how many ranks fetch a block of a source, in the mean.
func (in *input) fetches(o *StreamOptions, world float64) float64 {
	far := false
	for i := range in.parts {
		traits := objstore.TraitsOf(in.parts[i].source.Store)
		far = far || traits.Remote() && traits.OpenAs == nil
	}
	if !far || in.shares(o) {
		return 1
	}
	p, perBlock := in.plan.Params(), float64(in.tables.Samples)/float64(max(in.tables.Blocks, 1))
	if !p.Shuffle { // a rank takes neighbours
		return min(world, 1+perBlock*world/float64(max(o.GlobalBatch, 1)))
	}
	ranks := max(world/float64(p.Lanes), float64(o.group()), 1) // that draw from a lane
	if in.plan.Whole() {
		ranks = world
	}
	return ranks * (1 - math.Pow(1-1/ranks, perBlock)) // the samples of a block are dealt to them at random
}
