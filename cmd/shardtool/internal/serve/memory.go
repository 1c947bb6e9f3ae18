package serve

import (
	"fmt"
	"os"
)

// memory is how a system gives memory that two processes map.
type memory struct {
	// file makes a file of a size, for which there need not be memory yet. It has no name, so that it
	// ends with the processes that have it open, however they end.
	file func(size int) (*os.File, error)
	// back takes memory for a piece of the file.
	back func(f *os.File, offset, size int64) error
	// drop gives the memory of a piece back: its bytes are gone. It is nil where only a whole file
	// gives its memory back.
	drop func(f *os.File, offset, size int64) error
}

// portable is memory on every Unix: a temporary file, into which zeros are written before it is
// used.
var portable = memory{file: temporary, back: zero}

func temporary(size int) (*os.File, error) {
	f, err := os.CreateTemp("", "shardtool-")
	if err != nil {
		return nil, fmt.Errorf("%w (TMPDIR names another folder)", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		err = f.Truncate(int64(size))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

var zeros [1 << 20]byte

func zero(f *os.File, offset, size int64) error {
	for size > 0 {
		n := min(size, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], offset); err != nil {
			return fmt.Errorf("%w (TMPDIR names another folder)", err)
		}
		offset, size = offset+n, size-n
	}
	return nil
}
