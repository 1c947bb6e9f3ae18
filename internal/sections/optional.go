package sections

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/damage"
)

// The sections of shards that a part of the tables has only where they say something (SPEC 6.2).

// decodeForeign decodes which shards of a part are foreign: one bit each.
func decodeForeign(bits []byte, shards []ShardInfo) error {
	if len(bits) != (len(shards)+7)/8 || len(shards)%8 != 0 && bits[len(bits)-1]>>(len(shards)%8) != 0 {
		return damage.Errorf("section %s has %d bytes for %d shards, or bits of others", typeForeign, len(bits), len(shards))
	}
	for i := range shards {
		shards[i].Foreign = bits[i/8]>>(i%8)&1 != 0
	}
	return nil
}

// decodeSidecars decodes the tags in the names of a part's sidecars.
func decodeSidecars(tags []byte, shards []ShardInfo) error {
	const n = len(SidecarTag{})
	if len(tags) != n*len(shards) {
		return damage.Errorf("section %s has %d bytes for %d shards", typeSidecars, len(tags), len(shards))
	}
	for i := range shards {
		copy(shards[i].Index.Sidecar[:], tags[n*i:])
	}
	return nil
}

// decodeIndexHashes decodes the identities of a part's indexes.
func decodeIndexHashes(raw []byte, shards []ShardInfo) error {
	if len(raw) != 2*len(format.Hash{})*len(shards) {
		return damage.Errorf("section %s has %d bytes for %d shards", typeIndexHash, len(raw), len(shards))
	}
	for i := range shards {
		raw = raw[copy(shards[i].Index.Hash.Hot[:], raw):]
		raw = raw[copy(shards[i].Index.Hash.Cold[:], raw):]
	}
	return nil
}

// decodePurged decodes the identities of a part's purged shards.
func decodePurged(raw []byte, shards []ShardInfo) error {
	if len(raw) != len(format.Hash{})*len(shards) {
		return damage.Errorf("section %s has %d bytes for %d shards", typePurged, len(raw), len(shards))
	}
	for i := range shards {
		raw = raw[copy(shards[i].Purged[:], raw):]
	}
	return nil
}
