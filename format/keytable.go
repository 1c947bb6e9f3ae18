package format

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

// KeyHash returns the first 8 bytes of the SHA-256 of a key as a big-endian number.
func KeyHash(key string) uint64 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(h[:])
}

// KeyEntry is a row of the keys table.
type KeyEntry struct{ Hash, Number uint64 }

// Compare orders entries by hash, then by number.
func (e KeyEntry) Compare(o KeyEntry) int {
	if e.Hash != o.Hash {
		return cmp.Compare(e.Hash, o.Hash)
	}
	return cmp.Compare(e.Number, o.Number)
}

// KeyTable is the layout of a keys table, which depends on the number of entries alone.
type KeyTable struct{ Entries uint64 }

func (t KeyTable) width() int {
	if t.Entries <= 1 {
		return 1
	}
	return (bits.Len64(t.Entries-1) + 7) / 8
}

func (t KeyTable) entryLen() int64 { return 8 + int64(t.width()) }
func (t KeyTable) groupLen() int64 { return keyGroup*t.entryLen() + 4 }

// Groups returns the number of groups.
func (t KeyTable) Groups() int64 { return int64((t.Entries + keyGroup - 1) / keyGroup) }

// Size returns the length of the whole table in bytes.
func (t KeyTable) Size() int64 {
	return KeyHeaderLen + int64(t.Entries)*t.entryLen() + 4*t.Groups()
}

// Range returns the byte range of groups [from, to).
func (t KeyTable) Range(from, to int64) (off, n int64) {
	off = KeyHeaderLen + from*t.groupLen()
	end := KeyHeaderLen + to*t.groupLen()
	if to >= t.Groups() {
		end = t.Size()
	}
	return off, end - off
}

// Guess returns the groups [from, to) that should contain a hash. Hashes are uniform, so the range
// is the expected place and six standard deviations of a binomial on both sides. One in 10^9
// look-ups has to widen it.
func (t KeyTable) Guess(hash uint64) (from, to int64) {
	p := float64(hash) / math.Pow(2, 64)
	n := float64(t.Entries)
	mean, dev := n*p, 6*math.Sqrt(n*p*(1-p))+8
	from = max(0, int64((mean-dev)/keyGroup))
	to = min(t.Groups(), int64((mean+dev)/keyGroup)+1)
	return from, max(to, from)
}

func (t KeyTable) header() []byte {
	h := append(make([]byte, 0, KeyHeaderLen), magicKeys...)
	h = binary.LittleEndian.AppendUint16(h, Major)
	h = binary.LittleEndian.AppendUint16(h, 0)
	h = binary.LittleEndian.AppendUint32(h, uint32(t.width()))
	h = binary.LittleEndian.AppendUint64(h, t.Entries)
	h = binary.LittleEndian.AppendUint32(h, keyGroup)
	return binary.LittleEndian.AppendUint32(h, Checksum(h))
}

// Decode decodes the entries of groups [from, to) from the bytes that Range names, and appends them
// to dst.
func (t KeyTable) Decode(dst []KeyEntry, src []byte, from, to int64) ([]KeyEntry, error) {
	off, n := t.Range(from, to)
	if int64(len(src)) != n {
		return dst, At(off, corruptf("%d bytes of the keys table, not %d", len(src), n))
	}
	width := t.width()
	for len(src) > 0 {
		size := min(t.groupLen(), int64(len(src)))
		body := src[:size-4]
		if Checksum(body) != binary.LittleEndian.Uint32(src[size-4:]) {
			return dst, At(off, corruptf("checksum mismatch in the keys table"))
		}
		for ; len(body) > 0; body = body[8+width:] {
			e := KeyEntry{Hash: binary.BigEndian.Uint64(body)}
			for i := range width {
				e.Number |= uint64(body[8+i]) << (8 * i)
			}
			if e.Number >= t.Entries || (len(dst) > 0 && e.Compare(dst[len(dst)-1]) <= 0) {
				return dst, At(off, corruptf("keys table is not in order"))
			}
			dst = append(dst, e)
		}
		src = src[size:]
		off += size
	}
	return dst, nil
}

// KeyHeaderLen is the length of the header that ParseKeyHeader takes.
const KeyHeaderLen = 32

// ParseKeyHeader decodes the header of a keys table. The caller compares Size with the length of
// the object.
func ParseKeyHeader(src []byte) (KeyTable, error) {
	if len(src) != KeyHeaderLen {
		return KeyTable{}, At(0, corruptf("header of %d bytes", len(src)))
	}
	t := KeyTable{Entries: binary.LittleEndian.Uint64(src[16:])}
	if t.Entries > 1<<56 { // as in tables; keeps Size inside 64 bits
		return KeyTable{}, At(0, corruptf("%d entries", t.Entries))
	}
	return t, t.CheckHeader(src)
}

// CheckHeader checks the first 32 bytes of a table. Another minor version is no error.
func (t KeyTable) CheckHeader(src []byte) error {
	want := t.header()
	if len(src) != KeyHeaderLen || !bytes.Equal(src[:8], want[:8]) {
		return At(0, corruptf("no %q", magicKeys))
	}
	if Checksum(src[:KeyHeaderLen-4]) != binary.LittleEndian.Uint32(src[KeyHeaderLen-4:]) {
		return At(0, corruptf("checksum mismatch in the header of the keys table"))
	}
	if major := binary.LittleEndian.Uint16(src[8:]); major != Major {
		return At(0, fmt.Errorf("%w: keys table of version %d: use a newer shardtool", ErrVersion, major))
	}
	if !bytes.Equal(src[12:KeyHeaderLen-4], want[12:KeyHeaderLen-4]) {
		return At(0, corruptf("the keys table does not have %d entries", t.Entries))
	}
	return nil
}

// SearchKeys returns the range [from, to) of sorted entries that have a hash. If none has, from is
// where they would be.
func SearchKeys(entries []KeyEntry, hash uint64) (from, to int) {
	from = sort.Search(len(entries), func(i int) bool { return entries[i].Hash >= hash })
	for to = from; to < len(entries) && entries[to].Hash == hash; to++ {
	}
	return from, to
}

// WriteKeyTable writes the table of exactly n entries, which ascend. It returns the first error of
// entries or w.
func WriteKeyTable(w io.Writer, n uint64, entries iter.Seq2[KeyEntry, error]) error {
	t := KeyTable{n}
	out := bufio.NewWriterSize(w, 64<<10)
	_, err := out.Write(t.header())
	if err != nil {
		return err
	}
	var last KeyEntry
	var added uint64
	buf := make([]byte, 0, t.groupLen())
	for e, err := range entries {
		if err != nil {
			return err
		}
		if added > 0 && e.Compare(last) <= 0 {
			return fmt.Errorf("format: keys table: entry %x after %x", e, last) // a bug of the caller
		}
		buf = binary.BigEndian.AppendUint64(buf, e.Hash)
		for i := range t.width() {
			buf = append(buf, byte(e.Number>>(8*i)))
		}
		last = e
		if added++; added%keyGroup == 0 || added == n {
			if _, err := out.Write(binary.LittleEndian.AppendUint32(buf, Checksum(buf))); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if added != n {
		return fmt.Errorf("format: keys table: %d entries of %d", added, n) // a bug of the caller
	}
	return out.Flush()
}
