// Package samplekey answers which sample has a key. A [Table] is the keys table of a data set,
// which maps hashes of keys to sample numbers (SPEC 8); [Ranges] are the keys of a stacked shard
// that a prefix and a number give (SPEC 11.3).
package samplekey

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
	"math/bits"
	"sort"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// The keys table is a list of (hash of key, sample number) in ascending order: a read by key is one
// range here and one in a shard (SPEC 8).
//
//	header 32 bytes: "SHRDKEY1" · major u16 · minor u16 · width u32 · entries u64 · group u32 · CRC-32C u32
//	groups: up to 1,024 entries of hash (8 bytes, big-endian) and number (width bytes, little-endian) · CRC-32C u32
const (
	magicKeys = "SHRDKEY1"
	keyGroup  = 1024
)

// Hash returns the first 8 bytes of the SHA-256 of a key as a big-endian number.
func Hash(key string) uint64 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(h[:])
}

// Entry is a row of the keys table.
type Entry struct{ Hash, Number uint64 }

// Compare orders entries by hash, then by number.
func (e Entry) Compare(o Entry) int {
	if e.Hash != o.Hash {
		return cmp.Compare(e.Hash, o.Hash)
	}
	return cmp.Compare(e.Number, o.Number)
}

// Table is the layout of a keys table, which depends on the number of entries alone.
type Table struct{ Entries uint64 }

func (t Table) width() int {
	if t.Entries <= 1 {
		return 1
	}
	return (bits.Len64(t.Entries-1) + 7) / 8
}

func (t Table) entryLen() int64 { return 8 + int64(t.width()) }
func (t Table) groupLen() int64 { return keyGroup*t.entryLen() + 4 }

// Groups returns the number of groups.
func (t Table) Groups() int64 { return int64((t.Entries + keyGroup - 1) / keyGroup) }

// Size returns the length of the whole table in bytes.
func (t Table) Size() int64 {
	return HeaderLen + int64(t.Entries)*t.entryLen() + 4*t.Groups()
}

// Range returns the byte range of groups [from, to).
func (t Table) Range(from, to int64) (off, n int64) {
	off = HeaderLen + from*t.groupLen()
	end := HeaderLen + to*t.groupLen()
	if to >= t.Groups() {
		end = t.Size()
	}
	return off, end - off
}

// Guess returns the groups [from, to) that should contain a hash. Hashes are uniform, so the range
// is the expected place and six standard deviations of a binomial on both sides. One in 10^9
// look-ups has to widen it.
func (t Table) Guess(hash uint64) (from, to int64) {
	p := float64(hash) / math.Pow(2, 64)
	n := float64(t.Entries)
	mean, dev := n*p, 6*math.Sqrt(n*p*(1-p))+8
	from = max(0, int64((mean-dev)/keyGroup))
	to = min(t.Groups(), int64((mean+dev)/keyGroup)+1)
	return from, max(to, from)
}

func (t Table) header() []byte {
	h := append(make([]byte, 0, HeaderLen), magicKeys...)
	h = binary.LittleEndian.AppendUint16(h, format.Major)
	h = binary.LittleEndian.AppendUint16(h, 0)
	h = binary.LittleEndian.AppendUint32(h, uint32(t.width()))
	h = binary.LittleEndian.AppendUint64(h, t.Entries)
	h = binary.LittleEndian.AppendUint32(h, keyGroup)
	return binary.LittleEndian.AppendUint32(h, codec.Checksum(h))
}

// Decode decodes the entries of groups [from, to) from the bytes that Range names, and appends them
// to dst.
func (t Table) Decode(dst []Entry, src []byte, from, to int64) ([]Entry, error) {
	off, n := t.Range(from, to)
	if int64(len(src)) != n {
		return dst, format.At(off, damage.Errorf("%d bytes of the keys table, not %d", len(src), n))
	}
	width := t.width()
	for len(src) > 0 {
		size := min(t.groupLen(), int64(len(src)))
		body := src[:size-4]
		if codec.Checksum(body) != binary.LittleEndian.Uint32(src[size-4:]) {
			return dst, format.At(off, damage.Errorf("checksum mismatch in the keys table"))
		}
		for ; len(body) > 0; body = body[8+width:] {
			e := Entry{Hash: binary.BigEndian.Uint64(body)}
			for i := range width {
				e.Number |= uint64(body[8+i]) << (8 * i)
			}
			if e.Number >= t.Entries || (len(dst) > 0 && e.Compare(dst[len(dst)-1]) <= 0) {
				return dst, format.At(off, damage.Errorf("keys table is not in order"))
			}
			dst = append(dst, e)
		}
		src = src[size:]
		off += size
	}
	return dst, nil
}

// HeaderLen is the length of the header that ParseHeader takes.
const HeaderLen = 32

// ParseHeader decodes the header of a keys table. The caller compares Size with the length of
// the object.
func ParseHeader(src []byte) (Table, error) {
	if len(src) != HeaderLen {
		return Table{}, format.At(0, damage.Errorf("header of %d bytes", len(src)))
	}
	t := Table{Entries: binary.LittleEndian.Uint64(src[16:])}
	if t.Entries > 1<<56 { // as in tables; keeps Size inside 64 bits
		return Table{}, format.At(0, damage.Errorf("%d entries", t.Entries))
	}
	return t, t.CheckHeader(src)
}

// CheckHeader checks the first 32 bytes of a table. Another minor version is no error.
func (t Table) CheckHeader(src []byte) error {
	want := t.header()
	if len(src) != HeaderLen || !bytes.Equal(src[:8], want[:8]) {
		return format.At(0, damage.Errorf("no %q", magicKeys))
	}
	if codec.Checksum(src[:HeaderLen-4]) != binary.LittleEndian.Uint32(src[HeaderLen-4:]) {
		return format.At(0, damage.Errorf("checksum mismatch in the header of the keys table"))
	}
	if major := binary.LittleEndian.Uint16(src[8:]); major != format.Major {
		return format.At(0, fmt.Errorf("%w: keys table of version %d: use a newer shardtool", format.ErrVersion, major))
	}
	if !bytes.Equal(src[12:HeaderLen-4], want[12:HeaderLen-4]) {
		return format.At(0, damage.Errorf("the keys table does not have %d entries", t.Entries))
	}
	return nil
}

// Search returns the range [from, to) of sorted entries that have a hash. If none has, from is
// where they would be.
func Search(entries []Entry, hash uint64) (from, to int) {
	from = sort.Search(len(entries), func(i int) bool { return entries[i].Hash >= hash })
	for to = from; to < len(entries) && entries[to].Hash == hash; to++ {
	}
	return from, to
}

// WriteTable writes the table of exactly n entries, which ascend. It returns the first error of
// entries or w.
func WriteTable(w io.Writer, n uint64, entries iter.Seq2[Entry, error]) error {
	t := Table{n}
	out := bufio.NewWriterSize(w, 64<<10)
	_, err := out.Write(t.header())
	if err != nil {
		return err
	}
	var last Entry
	var added uint64
	width := t.width()
	buf := make([]byte, 0, t.groupLen()+8)
	for e, err := range entries {
		if err != nil {
			return err
		}
		if added > 0 && e.Compare(last) <= 0 {
			return fmt.Errorf("keys table: entry %x after %x", e, last) // a bug of the caller
		}
		buf = binary.BigEndian.AppendUint64(buf, e.Hash)
		buf = binary.LittleEndian.AppendUint64(buf, e.Number)
		buf = buf[:len(buf)-8+width]
		last = e
		if added++; added%keyGroup == 0 || added == n {
			if _, err := out.Write(binary.LittleEndian.AppendUint32(buf, codec.Checksum(buf))); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if added != n {
		return fmt.Errorf("keys table: %d entries of %d", added, n) // a bug of the caller
	}
	return out.Flush()
}
