package tarblock

import (
	"bytes"
	"slices"

	"github.com/shardtool/shardtool/format"
)

// Builder lays out the members of a block. It is for one goroutine. Reset prepares it for the
// next block.
type Builder struct {
	// Buf is the block's decoded bytes so far.
	Buf []byte
	// Cuts are the offsets at which members begin, Payloads the offsets of their contents.
	// AppendFrame takes both.
	Cuts, Payloads []int
}

// Reset removes all members and keeps the memory.
func (b *Builder) Reset() {
	b.Buf, b.Cuts, b.Payloads = b.Buf[:0], b.Cuts[:0], b.Payloads[:0]
}

// Member appends a header, room for size bytes of payload and the padding, and returns the
// payload's offset in Buf. The room is undefined until the caller fills it; the padding is zero.
func (b *Builder) Member(name string, size int) int {
	b.Cuts = append(b.Cuts, len(b.Buf))
	b.Buf = AppendHeader(b.Buf, name, int64(size))
	at := len(b.Buf)
	b.Payloads = append(b.Payloads, at)
	end := at + size
	full := end + int(Padding(int64(size)))
	if full > cap(b.Buf) { // append's steps of a quarter would copy large members again and again
		b.Buf = append(make([]byte, 0, max(full, 2*cap(b.Buf))), b.Buf...)
	}
	b.Buf = b.Buf[:full]
	clear(b.Buf[end:])
	return at
}

// Raw appends room for size bytes without a header, for payloads that become rows, and returns its
// offset in Buf.
func (b *Builder) Raw(size int) int {
	at := len(b.Buf)
	b.Cuts, b.Payloads = append(b.Cuts, at), append(b.Payloads, at)
	b.Buf = slices.Grow(b.Buf, size)[:at+size]
	return at
}

// SampleIter iterates over the samples of a whole decoded block; its Walker's Partial must not be
// set. It allocates only for names of more than 100 bytes.
//
//	it := tarblock.SampleIter{Walker: tarblock.Walker{Buf: decoded}}
//	for it.Next() { use(it.Key, it.Fields) }
//	if err := it.Err(); err != nil { … }
type SampleIter struct {
	Walker Walker
	// Key and Fields are the sample that Next found. The next call reuses Fields.
	Key    []byte
	Fields []format.FieldView
	// Offset is the offset of the sample's first header.
	Offset int64

	next    Member
	pending bool
	err     error
}

// Next finds the next sample: the adjacent members of one key.
func (it *SampleIter) Next() bool {
	if it.err != nil || (!it.pending && !it.advance()) {
		return false
	}
	key, field := it.next.split()
	it.Key, it.Offset, it.Fields = key, it.next.Header, it.Fields[:0]
	for {
		m := &it.next
		it.Fields = append(it.Fields,
			format.FieldView{Name: field, Data: it.Walker.Buf[m.Payload : m.Payload+m.Size : m.Payload+m.Size]})
		it.pending = false
		if !it.advance() {
			return it.err == nil
		}
		if key, field = it.next.split(); !bytes.Equal(key, it.Key) {
			return true
		}
	}
}

func (it *SampleIter) advance() bool {
	it.pending, it.err = it.Walker.Next(&it.next)
	return it.pending
}

// Err returns the error that ended the iteration, with the offset in the decoded block.
func (it *SampleIter) Err() error { return it.err }

// ClearBlock appends to b a block without the content of some of its samples: they have new keys,
// and zeros in place of their payloads. cleared returns the new key of the block's sample number i,
// and whether it is one of them. The block must be one that a Writer made.
func (b *Builder) ClearBlock(decoded []byte, cleared func(i int) (key string, ok bool)) error {
	w := Walker{Buf: decoded}
	var m Member
	last, sample := []byte(nil), -1
	for {
		ok, err := w.Next(&m)
		if err != nil || !ok {
			return err
		}
		key, field := format.SplitName(m.Name)
		if sample < 0 || string(key) != string(last) {
			sample++
			last = append(last[:0], key...)
		}
		if name, ok := cleared(sample); ok {
			at := b.Member(format.JoinName(name, string(field)), int(m.Size))
			clear(b.Buf[at : at+int(m.Size)])
			continue
		}
		b.Cuts = append(b.Cuts, len(b.Buf))
		b.Payloads = append(b.Payloads, len(b.Buf)+int(m.Payload-m.Header))
		b.Buf = append(b.Buf, decoded[m.Header:m.End()]...)
	}
}
