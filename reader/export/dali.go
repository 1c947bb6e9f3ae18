package export

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// record is the size of a tar record.
const record = 512

// daliVersion is the version of the index that DALI 1.x reads.
const daliVersion = "v1.2"

// daliIndex returns the index of an archive: the number of samples, then a line per sample with,
// for each member, its extension, the offset and size of its payload, and its name. Words are
// separated by spaces, so names cannot contain any. Removed samples, whose keys are empty, are not
// in the archive.
func daliIndex(ix *metadata.ShardIndex) ([]byte, error) {
	kept := 0
	for _, key := range ix.Keys.All() {
		if key != "" {
			kept++
		}
	}
	out := fmt.Appendf(nil, "%s %d\n", daliVersion, kept)
	for s := range members(ix) {
		if strings.ContainsFunc(s.key, unicode.IsSpace) {
			return nil, fmt.Errorf("%w: key %q has a space, which DALI's index cannot hold: pack the data set again with other keys", ErrName, s.key)
		}
		for i, f := range s.fields {
			out = daliMember(out, i, s.key, f, s.offsets[i])
		}
		out = append(out, '\n')
	}
	return out, nil
}

// place is where an archive has a sample: its key, from which byte to which, and its members with
// the offsets of their payloads. It is valid until the next step.
type place struct {
	key      string
	from, to int64
	fields   []format.FieldSize
	offsets  []int64
}

// members finds the places of the samples in an archive without removed samples, whose keys are
// empty. Of a foreign archive, only the offsets are known.
func members(ix *metadata.ShardIndex) iter.Seq[*place] {
	return func(yield func(*place) bool) {
		at := ix.Cursors([]int{0})[0]
		var s place
		sample, member := 0, 0
		var first, begin, offset int64 // beginning of the block, of the next row, and of the next member
		var cut int64                  // bytes of removed samples so far
		for _, r := range ix.Rows {
			if r.Samples > 0 && ix.Layout == nil { // rows become members without a gap
				first, offset = begin, begin
			}
			begin += int64(r.Decoded)
			for range r.Samples {
				s.key = ix.Keys.At(sample)
				s.fields = at.Fields(s.fields[:0])
				s.offsets = s.offsets[:0]
				from := offset
				for _, f := range s.fields {
					switch {
					case ix.Foreign:
						offset = first + int64(ix.Gaps[member])
					case ix.Layout != nil:
						offset += tarblock.MemberLen(format.JoinName(s.key, f.Name),
							f.Size) - (f.Size+record-1)/record*record
					case ix.Gaps != nil:
						offset += int64(ix.Gaps[member])
					default:
						offset += record
					}
					s.offsets = append(s.offsets, offset-cut)
					offset += (f.Size + record - 1) / record * record
					member++
				}
				sample++
				if s.key == "" {
					cut += offset - from
					continue
				}
				if s.from, s.to = from-cut, offset-cut; !yield(&s) {
					return
				}
			}
		}
	}
}

// daliMember appends the words of a sample's i-th member.
func daliMember(out []byte, i int, key string, f format.FieldSize, offset int64) []byte {
	if i > 0 {
		out = append(out, ' ')
	}
	out = strconv.AppendInt(append(append(out, f.Name...), ' '), offset, 10)
	out = strconv.AppendInt(append(out, ' '), f.Size, 10)
	return append(append(out, ' '), format.JoinName(key, f.Name)...)
}

// field rejects fields that a form cannot name.
func (f Form) field(name string) error {
	switch {
	case f != Tar && name == "":
		return fmt.Errorf("%w: some samples have a field without a name, and %s needs an extension: pack again with another name for it, or without it", ErrName, f)
	case (f == hf || f == croissant) && !utf8.ValidString(name):
		return fmt.Errorf("%w: field %q is not UTF-8, and %s has names as text: pack again with another name for it, or without it", ErrName, name, f)
	case f == DALI && strings.ContainsFunc(name, unicode.IsSpace):
		return fmt.Errorf("%w: field %q has a space, which DALI's index cannot hold: pack again with another name for it", ErrName, name)
	}
	return nil
}
