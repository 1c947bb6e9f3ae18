package writer

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sys/spill"
)

// spool collects the bytes of an object that is named by their hash, so that they are produced
// once: in memory, or in a temporary file in dir if there are more than room. The zero value of the
// other fields is an empty spool. The caller ends it by close.
type spool struct {
	dir  string
	room int

	mem  []byte
	file *os.File
	sum  hash.Hash
	size int64
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if s.sum == nil {
		s.sum = sha256.New()
	}
	s.sum.Write(p)
	s.size += int64(len(p))
	if s.file == nil && len(s.mem)+len(p) <= s.room {
		s.mem = append(s.mem, p...)
		return len(p), nil
	}
	if s.file == nil {
		f, err := spill.Create(s.dir)
		if err != nil {
			return 0, err
		}
		s.file = f
		if _, err := f.Write(s.mem); err != nil {
			return 0, err
		}
		s.mem = nil
	}
	return s.file.Write(p)
}

// grow makes room in memory for n bytes, if they are to be held there.
func (s *spool) grow(n int64) {
	if n <= int64(s.room) {
		s.mem = slices.Grow(s.mem, int(n))
	}
}

// put stores the bytes, of which there is at least one, under the name that their hash gives.
func (s *spool) put(ctx context.Context, to *puts, nameOf func([32]byte) string) (format.Hash, error) {
	sum := format.Hash(s.sum.Sum(nil))
	if s.file == nil {
		return sum, to.immutable(ctx, nameOf(sum), s.mem)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return sum, err
	}
	return sum, to.named(ctx, nameOf(sum), s.size, func(to io.Writer) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{s.file}, make([]byte, 256<<10))
		return err
	})
}

func (s *spool) close() { _ = spill.Close(s.file) } // it is not needed any more
