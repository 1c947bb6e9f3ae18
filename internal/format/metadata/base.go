package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
)

// typeBase is the section of a layer (SPEC 12). It is not critical: a reader that does not know
// layers reads one as a data set.
const typeBase = "BASE"

// Base names the data set to whose samples a layer adds fields.
type Base struct {
	// Digest is the digest of the base's first Shards shards, by themselves.
	Digest format.Hash
	Shards uint32
	// Samples is the number of samples in these shards.
	Samples uint64
	// Replaces are the fields and attributes of the base, or of another layer, in whose place the
	// layer's are delivered. The names ascend.
	Replaces []string
}

// maxReplaces bounds the names that a layer replaces, in bytes together: few bytes can stand for
// long names.
const maxReplaces = 1 << 20

// section is the section of a layer's base.
func (b *Base) section() section.Raw {
	s := section.Raw{Kind: typeBase, Raw: append([]byte(nil), b.Digest[:]...)}
	s.Raw = appendUint32(s.Raw, b.Shards)
	s.Raw = binary.LittleEndian.AppendUint64(s.Raw, b.Samples)
	s.Raw = appendUint32(s.Raw, uint32(len(b.Replaces)))
	var cuts []int // short texts: pieces of their own would only be longer
	s.Raw = section.AppendStrings(s.Raw, b.Replaces, &cuts)
	return s
}

// decodeBase decodes the base of a layer whose tables have that many shards and samples: all that
// the base has, or in the manifest of a part some of them.
func decodeBase(raw []byte, shards, samples uint64) (*Base, error) {
	r := section.Reader{Src: raw}
	b := &Base{}
	copy(b.Digest[:], r.Take(len(b.Digest)))
	b.Shards, b.Samples = r.U32(), r.U64()
	n := r.U32()
	// A name has at least one byte.
	if r.Err != nil || uint64(n) > uint64(len(r.Src)) {
		return nil, damage.Errorf("section %s has %d names in %d bytes", typeBase, n, len(raw))
	}
	if shards > uint64(b.Shards) || samples > b.Samples {
		return nil, damage.Errorf("a layer of %d shards and %d samples on %d and %d", shards, samples, b.Shards,
			b.Samples)
	}
	var err error
	if b.Replaces, err = section.DecodeStrings(r.Src, int(n), maxReplaces); err != nil {
		return nil, fmt.Errorf("section %s: %w", typeBase, err)
	}
	return b, b.check()
}

func (b *Base) check() error {
	last, total := "", 0
	for _, name := range b.Replaces {
		total += len(name)
		if name <= last || len(name) > format.MaxName || total > maxReplaces {
			return damage.Errorf("section %s has the name %.100q after %.100q", typeBase, name, last)
		}
		last = name
	}
	return nil
}

// BaseOf returns the base of a layer on the first shards of m, which are all of them where shards
// is negative.
func BaseOf(m *Manifest, shards int, replaces []string) *Base {
	if shards < 0 {
		shards = len(m.Shards)
	}
	first := &Manifest{Shards: m.Shards[:shards]}
	return &Base{Digest: first.digest(), Shards: uint32(shards), Samples: SumSamples(first.Shards), Replaces: replaces}
}
