package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// layoutStacked is the only kind of layout so far.
const layoutStacked = 1

// appendLayouts encodes the layouts of the shards of a part: how many there are, each, and for each
// shard its number from 1, or 0 for an ordinary one. ok is false where all are ordinary.
func appendLayouts(shards []ShardEntry) (raw []byte, ok bool) {
	number := map[string]uint32{}
	var list, of []byte
	for i := range shards {
		n := uint32(0)
		if l := shards[i].Layout; l != nil {
			text := appendLayout(nil, l)
			if n = number[string(text)]; n == 0 {
				n = uint32(len(number) + 1)
				number[string(text)] = n
				list = append(list, text...)
			}
		}
		of = binary.LittleEndian.AppendUint32(of, n)
	}
	return append(append(appendUint32(nil, uint32(len(number))), list...), of...), len(number) > 0
}

// decodeLayouts decodes what appendLayouts encoded.
func decodeLayouts(raw []byte, shards []ShardInfo) error {
	r := section.Reader{Src: raw}
	n := r.U32()
	var list []*stacked.Layout
	for range n {
		l, err := readLayout(&r)
		if err != nil {
			return fmt.Errorf("section %s: %w", section.KindLayout, err)
		}
		list = append(list, l)
	}
	for i := range shards {
		k := r.U32()
		switch {
		case r.Err != nil || uint64(k) > uint64(len(list)):
			return damage.Errorf("section %s has layout %d of %d", section.KindLayout, k, len(list))
		case k > 0 && shards[i].Foreign:
			return damage.Errorf("section %s: another tool's archive is not stacked", section.KindLayout)
		case k > 0:
			shards[i].Layout = list[k-1]
		}
	}
	return r.End()
}

// appendNumbered encodes the ranges of the shards of a part. ok is false where there are none.
func appendNumbered(shards []ShardEntry) (raw []byte, ok bool) {
	for i := range shards {
		raw = appendRanges(raw, shards[i].Numbered)
		ok = ok || len(shards[i].Numbered) > 0
	}
	return raw, ok
}

func decodeNumbered(raw []byte, shards []ShardInfo) (err error) {
	r := section.Reader{Src: raw}
	for i := range shards {
		if shards[i].Numbered, err = readRanges(&r, shards[i].Samples); err != nil {
			return err
		}
	}
	return r.End()
}

// appendLayout encodes a layout. A nil one is not encoded.
func appendLayout(dst []byte, l *stacked.Layout) []byte {
	dst = appendUint32(dst, layoutStacked)
	dst = appendUint32(dst, uint32(len(l.Fields)))
	for i := range l.Fields {
		f := &l.Fields[i]
		dst = section.AppendString(section.AppendString(dst, f.Name), f.DType)
		dst = append(dst, byte(len(f.Shape)))
		for _, d := range f.Shape {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(d))
		}
	}
	return dst
}

// readLayout decodes a layout and checks it.
func readLayout(r *section.Reader) (*stacked.Layout, error) {
	kind, n := r.U32(), r.U32()
	if r.Err == nil && kind != layoutStacked {
		return nil, fmt.Errorf("%w: layout of kind %d: use a newer shardtool", format.ErrVersion, kind)
	}
	l := &stacked.Layout{}
	for range n {
		f := stacked.Field{Name: r.Str(), DType: r.Str()}
		for range r.U8() {
			d := r.U64()
			if d > format.MaxFrame {
				return nil, damage.Errorf("field %q has a dimension of %d", f.Name, d)
			}
			f.Shape = append(f.Shape, int64(d))
		}
		if r.Err != nil {
			break
		}
		l.Fields = append(l.Fields, f)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	return l, nil
}

// decodeLayout decodes the section of a shard, whose samples have these fields.
func decodeLayout(raw []byte, s *Schema) (*stacked.Layout, error) {
	r := section.Reader{Src: raw}
	l, err := readLayout(&r)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", section.KindLayout, err)
	}
	same := len(l.Fields) == len(s.Fields) && len(s.Shapes) == 1 && len(s.Shapes[0]) == len(s.Fields)
	for i := range l.Fields {
		same = same && l.Fields[i].Name == s.Fields[i]
	}
	if !same {
		return nil, damage.Errorf("section %s has other fields than section %s", section.KindLayout, typeSchema)
	}
	return l, nil
}

// leastBytes returns the fewest decoded bytes of a block that n samples take.
func leastBytes(l *stacked.Layout, n uint64) uint64 {
	if l == nil {
		return n * tarblock.RecordLen
	}
	return n * uint64(l.Row())
}

func appendRanges(dst []byte, rs samplekey.Ranges) []byte {
	dst = appendUint32(dst, uint32(len(rs)))
	for i := range rs {
		r := &rs[i]
		dst = section.AppendString(dst, r.Prefix)
		dst = binary.LittleEndian.AppendUint64(dst, r.First)
		dst = append(dst, r.Digits)
		dst = binary.LittleEndian.AppendUint64(dst, r.Count)
	}
	return dst
}

// readRanges decodes the ranges of a shard of that many samples; none where its keys are not
// numbered.
func readRanges(r *section.Reader, samples uint64) (rs samplekey.Ranges, err error) {
	n := r.U32()
	for range n {
		k := samplekey.Range{Prefix: r.Str(), First: r.U64(), Digits: r.U8(), Count: r.U64()}
		if r.Err != nil {
			return nil, r.Err
		}
		if err := k.Check(); err != nil {
			return nil, fmt.Errorf("section %s: %w", section.KindKeyNumbers, err)
		}
		if k.Count > samples {
			return nil, damage.Errorf("section %s has more than %d keys", section.KindKeyNumbers, samples)
		}
		samples -= k.Count
		rs = append(rs, k)
	}
	if r.Err == nil && n > 0 && samples > 0 {
		return nil, damage.Errorf("section %s lacks %d keys", section.KindKeyNumbers, samples)
	}
	return rs, r.Err
}

func appendUint32(dst []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(dst, v) }
