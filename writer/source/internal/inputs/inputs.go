// Package inputs holds what sources of files have in common: the list of files as it was when the
// source was opened, the beginnings of their keys, and their division into parts.
package inputs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"math/bits"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/input/pinned"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/source"
)

// File is a file of a source.
type File struct {
	source.Input
	// Stem is the beginning of its samples' keys.
	Stem string
	// Info is what the store reported when the source was opened.
	Info objstore.Info
	// Constants are columns of the path; see Hive. All files of a source have them in one order.
	Constants []Constant
	// Remote reports whether a request to the store takes long.
	Remote bool
}

// Files returns one File per input and gives each a Path. Info is not set.
func Files(inputs []source.Input) []File {
	files := make([]File, len(inputs))
	for i, in := range inputs {
		in.Path = cmp.Or(in.Path, in.Name)
		files[i] = File{Input: in, Remote: objstore.TraitsOf(in.Store).Remote()}
	}
	return files
}

// Open opens the file for the first time and sets Info. Reads fail with objstore.ErrChanged once
// the file is another one.
func (f *File) Open(ctx context.Context) (obj objstore.Object, err error) {
	obj, f.Info, err = pinned.Open(ctx, f.Store, f.Name)
	return obj, err
}

// Reopen opens the file again. It, or each read, fails with objstore.ErrChanged if the file is not
// the one that Open opened.
func (f *File) Reopen(ctx context.Context) (objstore.Object, error) {
	return pinned.Reopen(ctx, f.Store, f.Name, f.Info)
}

// Version tells info apart from another file of its name and size: by the ETag, or by the
// modification time on this machine, where a copy of a file is the same file. A store that is an
// archive tells its files apart itself, because their times may be made up.
func (f *File) Version(info objstore.Info) string {
	if s, ok := f.Store.(interface{ Version(objstore.Info) string }); ok {
		return s.Version(info)
	}
	if f.Remote {
		return info.ETag
	}
	return fmt.Sprint(info.ModTime.UnixNano())
}

// Fingerprint begins the fingerprint of a source with its options.
func Fingerprint(opt any) (hash.Hash, error) {
	options, err := json.Marshal(opt) // encodes maps in order of keys
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", options)
	return h, nil
}

// Survey calls look for the numbers 0 to n-1, up to limit of them at a time. When one fails, it
// cancels the contexts of higher numbers only, and returns the error of the lowest number that
// failed, so that the same damage gives the same error.
func Survey(ctx context.Context, n, limit int, look func(ctx context.Context, i int) error) error {
	var work errgroup.Group
	work.SetLimit(limit)
	var mu sync.Mutex
	lowest, failed := n, error(nil)
	running := map[int]context.CancelFunc{}
	begin := func(i int) (context.Context, bool) {
		mu.Lock()
		defer mu.Unlock()
		if i > lowest {
			return nil, false
		}
		at, cancel := context.WithCancel(ctx)
		running[i] = cancel
		return at, true
	}
	end := func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		running[i]()
		delete(running, i)
		if err == nil || i > lowest {
			return
		}
		lowest, failed = i, err
		for j, cancel := range running {
			if j > i {
				cancel()
			}
		}
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		work.Go(func() error {
			if at, ok := begin(i); ok {
				end(i, look(at, i))
			}
			return nil
		})
	}
	_ = work.Wait()
	return cmp.Or(failed, ctx.Err())
}

// MulDiv returns ⌊a × b ÷ c⌋ for a quotient that fits, although the product may not.
func MulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(quotient)
}

// Run returns which of n consecutive units are a part: from begin up to, and not including, end. A
// unit belongs to part ⌊first × parts ÷ total⌋, where first is the sum of the sizes before it.
// Empty units at the end belong to the last part, or to part 0 if all are empty.
func Run(n int, size func(i int) int64, part, parts int) (begin, end int) {
	first, total := int64(0), int64(0)
	for i := range n {
		total += size(i)
	}
	for i := range n {
		of := 0
		if first < total {
			of = int(MulDiv(first, int64(parts), total))
		} else if total > 0 {
			of = parts - 1
		}
		if of < part {
			begin = i + 1
		}
		if of <= part {
			end = i + 1
		}
		first += size(i)
	}
	return begin, end
}
