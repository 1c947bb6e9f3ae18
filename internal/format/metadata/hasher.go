package metadata

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"iter"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// ShardHasher computes a shard's identity: the SHA-256 of its blocks' hashes in order. The same
// samples cut in the same way have the same identity, compressed or plain, at any level (SPEC 7).
// The zero value is ready.
type ShardHasher struct{ h hash.Hash }

// Add adds the next block's hash.
func (s *ShardHasher) Add(block format.Hash) {
	if s.h == nil {
		s.h = sha256.New()
	}
	s.h.Write(block[:])
}

// Sum returns the identity of the blocks so far.
func (s *ShardHasher) Sum() (h format.Hash) {
	if s.h == nil {
		return sha256.Sum256(nil)
	}
	s.h.Sum(h[:0])
	return h
}

// HashIndex returns the identity of an index that AppendTail returned.
func HashIndex(tail []byte) IndexHash {
	cold := skipHeader + int(binary.LittleEndian.Uint32(tail[4:]))
	return IndexHash{Hot: sha256.Sum256(tail[cold:]), Cold: sha256.Sum256(tail[:cold])}
}

// Check compares the identity of an index with the one in the tables. A hash that is zero on either
// side is not compared.
func (want IndexHash) Check(got IndexHash) error {
	for _, h := range [][2]format.Hash{{want.Hot, got.Hot}, {want.Cold, got.Cold}} {
		if h[0] != h[1] && h[0] != (format.Hash{}) && h[1] != (format.Hash{}) {
			return fmt.Errorf("%w: the index has the hash %v, the tables say %v: the shard was replaced by one with other attributes, "+
				"sizes or notes; restore it from a copy", format.ErrMismatch, h[1], h[0])
		}
	}
	return nil
}

// digestPrefix begins the input of a data set's digest.
const digestPrefix = "shardtool-content-1\n"

// Digest is the identity of a data set of n shards: of their contents, in order, and of how samples
// are cut into blocks. Names, codec, level and metadata are not part of it, so that packing again
// with another level keeps every checkpoint valid (SPEC 7).
func Digest(n int, shards iter.Seq[*ShardEntry]) (sum format.Hash) {
	h := sha256.New()
	h.Write([]byte(digestPrefix))
	buf := binary.LittleEndian.AppendUint64(nil, uint64(n))
	for s := range shards {
		buf = binary.LittleEndian.AppendUint64(buf, s.Samples)
		buf = binary.LittleEndian.AppendUint64(buf, s.Blocks)
		for _, r := range s.Rows {
			if r.Samples > 0 {
				buf = appendUint32(buf, r.Samples)
			}
		}
		h.Write(append(buf, s.Hash[:]...))
		buf = buf[:0]
	}
	h.Write(buf)
	h.Sum(sum[:0])
	return sum
}

// digest is the identity of the manifest's shards.
func (m *Manifest) digest() format.Hash {
	return Digest(len(m.Shards), func(yield func(*ShardEntry) bool) {
		for i := range m.Shards {
			if !yield(&m.Shards[i]) {
				return
			}
		}
	})
}

// hashRanges returns what the hash of a stacked shard with numbered keys covers beside its blocks,
// which do not hold the keys.
func hashRanges(rs samplekey.Ranges) format.Hash { return format.BlockHash(appendRanges(nil, rs)) }

// AddKeys adds the numbered keys of a stacked shard, after its blocks. Others are in the blocks.
func (s *ShardHasher) AddKeys(l *stacked.Layout, rs samplekey.Ranges) {
	if l != nil && len(rs) > 0 {
		s.Add(hashRanges(rs))
	}
}
