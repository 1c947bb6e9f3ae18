package lines

import (
	"fmt"

	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/stream"
)

// Split limits the source to one of so many parts, counted from 0, and goes to its beginning. Laid one behind the other as they are
// stored, the files are divided into parts of equal bytes: a row belongs to the part in which it begins, and all of a compressed
// file to the one in which the file begins. Of a plain file that begins in parts before, the rows before are counted, so that
// keys and messages are those of the whole.
func (s *Lines) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("lines: there is no part %d of %d: parts count from 0", part, parts)
	}
	s.halt()
	total := int64(0)
	for _, f := range s.files {
		total += f.Info.Size
	}
	bound := func(part int) int64 { return inputs.MulDiv(total, int64(part), int64(parts)) }
	s.whole, s.part = false, [2]int64{bound(part), bound(part + 1)}
	s.at, s.end = s.locate(s.part[0]), s.locate(s.part[1])
	if part == 0 {
		s.at = s.begin(0)
	}
	if part == parts-1 { // files of nothing at the end are none's otherwise
		s.end = place{file: len(s.files)}
	}
	s.over = false
	return nil
}

// locate is the place of the first row that begins at a byte of the files or behind it.
func (s *Lines) locate(at int64) place {
	before := int64(0)
	for i, f := range s.files {
		off := at - before
		before += f.Info.Size
		switch {
		case off <= 0:
			return s.begin(i)
		case off < f.Info.Size && f.coding == stream.Plain:
			return place{file: i, off: off}
		}
	}
	return place{file: len(s.files)}
}

// Total is the bytes of the files, those of the part after Split. How many rows there are is not known, nor what compressed files
// hold: with such bytes is 0.
func (s *Lines) Total() (samples, bytes int64) {
	for _, f := range s.files {
		if f.coding != stream.Plain {
			return 0, 0
		}
		bytes += f.Info.Size
	}
	if !s.whole {
		bytes = s.part[1] - s.part[0]
	}
	return 0, bytes
}
