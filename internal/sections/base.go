package sections

import (
	"encoding/binary"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/damage"
	"github.com/shardtool/shardtool/internal/section"
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
		return nil, damage.Errorf("a layer of %d shards and %d samples on %d and %d", shards, samples, b.Shards, b.Samples)
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

// Fits returns nil if a generation of a layer with the section b, of that many shards and samples,
// can be read with the data set of the given tables. Otherwise the error wraps format.ErrMismatch.
// It reads the parts of the tables that the layer covers only where the data set has more shards.
func (b *Base) Fits(base *Tables, shards, samples uint64) error {
	if shards != uint64(b.Shards) || samples != b.Samples {
		return damage.Errorf("a layer of %d shards and %d samples on %d and %d", shards, samples, b.Shards, b.Samples)
	}
	if base.Base != nil {
		return fmt.Errorf("%w: the base is a layer itself: name the data set to which both were added", format.ErrMismatch)
	}
	digest, n, err := base.prefix(uint64(b.Shards))
	if err != nil {
		return err
	}
	if digest != b.Digest || n != b.Samples {
		return fmt.Errorf("%w: the layer was made for a data set with the digest %s (%d shards, %d samples); the first %d shards of this one, "+
			"which has %d, have %s (%d samples): open the layer with the data set that it was made for, or make it again",
			format.ErrMismatch, format.DigestString(b.Digest), b.Shards, b.Samples, b.Shards, base.Shards, format.DigestString(digest), n)
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
	for i := range m.Shards {
		samples += m.Shards[i].Samples
	}
	return m.digest(), samples, nil
}

// BaseOf returns the base of a layer on the first shards of m, which are all of them where shards
// is negative.
func BaseOf(m *Manifest, shards int, replaces []string) *Base {
	if shards < 0 {
		shards = len(m.Shards)
	}
	first := &Manifest{Shards: m.Shards[:shards]}
	b := &Base{Digest: first.digest(), Shards: uint32(shards), Replaces: replaces}
	for i := range first.Shards {
		b.Samples += first.Shards[i].Samples
	}
	return b
}
