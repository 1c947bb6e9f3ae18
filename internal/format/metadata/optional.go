package metadata

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
)

// optional are the sections of shards that a part of the tables has only where they say something
// (SPEC 6.2).
var optional = []struct {
	kind   string
	decode func(raw []byte, shards []ShardInfo) error
}{
	{typeForeign, decodeForeign},
	{typeSidecars, fixed(typeSidecars, len(SidecarTag{}), func(s *ShardInfo, raw []byte) { copy(s.Index.Sidecar[:], raw) })},
	{typeIndexHash, fixed(typeIndexHash, 2*len(format.Hash{}), func(s *ShardInfo, raw []byte) {
		copy(s.Index.Hash.Cold[:], raw[copy(s.Index.Hash.Hot[:], raw):])
	})},
	{typePurged, fixed(typePurged, len(format.Hash{}), func(s *ShardInfo, raw []byte) { copy(s.Purged[:], raw) })},
	{section.KindLayout, decodeLayouts},
	{section.KindKeyNumbers, decodeNumbered},
}

// fixed returns the decoder of a section that has n bytes for each shard.
func fixed(kind string, n int, set func(s *ShardInfo, raw []byte)) func(raw []byte, shards []ShardInfo) error {
	return func(raw []byte, shards []ShardInfo) error {
		if len(raw) != n*len(shards) {
			return damage.Errorf("section %s has %d bytes for %d shards", kind, len(raw), len(shards))
		}
		for i := range shards {
			set(&shards[i], raw[n*i:])
		}
		return nil
	}
}

// decodeForeign decodes which shards of a part are foreign: one bit each.
func decodeForeign(bits []byte, shards []ShardInfo) error {
	if len(bits) != (len(shards)+7)/8 || len(shards)%8 != 0 && bits[len(bits)-1]>>(len(shards)%8) != 0 {
		return damage.Errorf("section %s has %d bytes for %d shards, or bits of others", typeForeign, len(bits),
			len(shards))
	}
	for i := range shards {
		shards[i].Foreign = bits[i/8]>>(i%8)&1 != 0
	}
	return nil
}
