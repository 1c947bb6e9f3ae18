package codec

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/tarblock"
)

// Segment is whole members of a block that lie one after the other in a buffer: the bytes from Begin
// to End. At is the offset in the decoded block of its first byte.
type Segment struct{ Begin, End, At int }

// Segments makes every member of a format.CodecRaw frame readable where the frame lies, and returns the
// parts of stored that hold them, in the order of the block. Unlike Decode it moves next to nothing:
// most members lie within a raw block already (SPEC 3.3), and for one that does not, the shorter of
// its parts moves to the other. stored is no frame afterwards. Where its members are damaged, the
// walk over the segments finds that out.
func (d *Decoder) Segments(stored []byte, row format.Row) ([]Segment, error) {
	if row.Decoded > format.MaxFrame {
		return nil, fmt.Errorf("%w: frame decodes to %d bytes", format.ErrTooLarge, row.Decoded)
	}
	pieces, _, err := parseRawFrame(d.pieces[:0], stored, int(row.Decoded))
	d.pieces = pieces
	if err != nil {
		return nil, err
	}
	out := make([]Segment, 0, 8)
	s := members{buf: stored}
	at := 0
	add := func(begin, end int) {
		if end > begin {
			out = append(out, Segment{begin, end, at})
			at += end - begin
		}
	}
	for _, p := range pieces {
		s.scan()
		switch rest := s.end - s.whole; {
		case rest == 0:
			add(s.begin, s.end)
			s = members{stored, p.pos, p.pos, p.pos, p.pos + p.n}
		case rest <= p.n: // what is left joins the piece
			add(s.begin, s.whole)
			begin := p.pos - rest
			copy(stored[begin:p.pos], stored[s.whole:s.end])
			s = members{stored, begin, begin, begin + s.next - s.whole, p.pos + p.n}
		default: // the piece joins what is left
			s.end += copy(stored[s.end:], stored[p.pos:p.pos+p.n])
		}
	}
	add(s.begin, s.end)
	return out, nil
}

// members goes through tar in buf[begin:end].
type members struct {
	buf   []byte
	begin int
	whole int // where the whole members end
	next  int // the next header
	end   int
}

// scan finds the end of the last whole member. Where it finds damage, all is whole.
func (s *members) scan() {
	for s.end-s.next >= tarblock.RecordLen {
		h := s.buf[s.next : s.next+tarblock.RecordLen]
		size, err := tarblock.ParseSize(h[124:136])
		if err != nil {
			s.whole, s.next = s.end, s.end
			return
		}
		end := int64(s.next) + tarblock.RecordLen + size + tarblock.Padding(size)
		if end > int64(s.end) {
			return
		}
		s.next = int(end)
		if h[156] != 'L' { // a long name belongs to the member after it
			s.whole = s.next
		}
	}
}
