package lines

import (
	"fmt"

	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/stream"
)

// Split limits the source to part of parts, counted from 0, and moves to its beginning. It divides
// the concatenation of the stored files into parts of equal bytes. A row belongs to the part in
// which it begins, a whole compressed file to the part in which the file begins. In a plain file
// that begins in an earlier part, the earlier rows are counted, so that keys and messages are those
// of the whole.
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
	if part == parts-1 { // empty files at the end would belong to no part otherwise
		s.end = place{file: len(s.files)}
	}
	s.over = false
	return nil
}

// locate returns the place of the first row that begins at or after a byte of the concatenated
// files.
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

// Total returns the bytes of the files, of the current part after Split, or 0 if some are
// compressed. The number of rows is not known.
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
