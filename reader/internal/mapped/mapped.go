// Package mapped uses blocks of plain shards where the page cache has them, without a copy in memory
// of the stream.
//
// Such bytes are the file's: another program can change them or cut them off at any moment. What is
// delivered is what was checked all the same:
//
//	Open: the file's version ── Blocks.Check: checksums ── Copy: into memory of the batch, then
//	the version again: an equal one tells that nothing has changed since the first
//
// Where the version differs, Copy compares the checksums of the blocks that it copies from, and
// copies again. So a file that got another name, owner or mode is still delivered, and one with
// other content is not: Copy returns objstore.ErrChanged with the shard and the block.
package mapped

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore"
)

// File is a mapped shard. Several goroutines may use it.
type File struct {
	shard   string
	object  objstore.Mapper
	mem     []byte
	version objstore.Version
	rows    []format.Row
	checked []atomic.Uint64 // a bit for each of rows whose checksum was compared
	stale   atomic.Bool
}

// Open maps an object, which stays open as long as the File is used. rows are those of the shard.
func Open(shard string, object objstore.Mapper, rows []format.Row) (*File, error) {
	mem, version, err := object.Map()
	if err != nil {
		return nil, err
	}
	return &File{shard: shard, object: object, mem: mem, version: version, rows: rows, checked: make([]atomic.Uint64, (len(rows)+63)/64)}, nil
}

// Has reports whether the file was opened with these rows. Tables may name an object twice, with
// other rows: what was compared of one shard tells nothing of the other.
func (f *File) Has(rows []format.Row) bool {
	return len(rows) == len(f.rows) && (len(rows) == 0 || &rows[0] == &f.rows[0] || slices.Equal(rows, f.rows))
}

// Blocks are consecutive blocks of a File.
type Blocks struct {
	*File
	// Rows are those of the blocks, the first of which is row From of the shard; Block is the number
	// of its block, and Offset is where it begins.
	Rows   []format.Row
	From   int
	Block  int
	Offset int64
	Source int // of the stream, for errors
}

// Error is that of Copy, with the source of the blocks that it is about.
type Error struct {
	Source int
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// size returns the bytes of the blocks.
func (b *Blocks) size() (n int) {
	for i := range b.Rows {
		n += int(b.Rows[i].Stored)
	}
	return n
}

// Bytes returns the bytes of the blocks, one after another; nil where the file has not as many.
func (b *Blocks) Bytes() []byte {
	n := b.size()
	if b.Offset < 0 || int64(n) > int64(len(b.mem))-b.Offset {
		return nil
	}
	return b.mem[b.Offset:][:n:n]
}

// Usable compares the blocks with their checksums, unless that was done since the file was opened,
// and runs open on their bytes. It reports whether that went well: else the blocks are to be read.
// Blocks that would have to be read from disk are not usable, and none are while the system takes
// pages of the cache away.
func (b *Blocks) Usable(open func(decoded []byte) error) bool {
	look()
	mem := b.Bytes()
	if len(mem) == 0 || Pressed() || !b.cached(len(mem)) {
		return false
	}
	failed := error(nil)
	err := guard([]*File{b.File}, func() {
		if failed = b.sum(false); failed == nil {
			failed = open(mem)
		}
	})
	return err == nil && failed == nil
}

// cached reports whether the n bytes of the blocks are in the page cache. Of blocks that were used
// before it asks for the ends: what was read together mostly leaves together, and asking takes time.
func (b *Blocks) cached(n int) bool {
	for i := range b.Rows {
		if at := b.From + i; b.checked[at/64].Load()&(1<<(at%64)) == 0 {
			return b.object.Cached(b.Offset, n)
		}
	}
	return b.object.Cached(b.Offset, 1) && b.object.Cached(b.Offset+int64(n)-1, 1)
}

// Changed reports whether the file may have changed since it was opened. Open it again then.
func (f *File) Changed() bool {
	v, err := f.object.Version()
	return err != nil || v != f.version
}

// Stale reports whether Copy found that the file has changed. Blocks are better read then: Copy
// compares their checksums each time.
func (f *File) Stale() bool { return f.stale.Load() }

// sum compares the rows with their checksums: all of them, or those that were not yet compared.
func (b *Blocks) sum(all bool) error {
	mem, block, offset := b.Bytes(), b.Block-1, b.Offset
	if b.Rows[0].Samples == 0 {
		block++
	}
	for i, row := range b.Rows {
		if row.Samples > 0 {
			block++
		}
		seen, bit := &b.checked[(b.From+i)/64], uint64(1)<<((b.From+i)%64)
		if all || seen.Load()&bit == 0 {
			if err := codec.CheckFrameSum(codec.UpdateChecksum(0, mem[:row.Stored]), row); err != nil {
				return format.Place{Shard: b.shard, Block: block, Offset: offset}.Wrap(err)
			}
			seen.Or(bit)
		}
		mem, offset = mem[row.Stored:], offset+int64(row.Stored)
	}
	return nil
}

// Copy tries again that often where files change all the time, after a pause each.
var tries = 250 // fewer in tests

const pause = 20 * time.Millisecond

// Copy runs copy, which copies from files into memory that nothing else uses meanwhile. When it
// returns nil, the copies are of bytes that were compared with their checksums. from returns the
// blocks that are copied from, and is called only where a file has changed.
func Copy(files []*File, from func() []*Blocks, copy func()) error {
	if len(files) == 0 {
		copy()
		return nil
	}
	begin := time.Now()
	fault := guard(files, copy)
	if time.Since(begin) > slow {
		look()
	}
	changed := false
	for _, f := range files {
		if f.Changed() {
			changed = true
			f.stale.Store(true)
		}
	}
	if fault == nil && !changed {
		return nil
	}
	last := files[0]
	for try := range tries {
		versions, late := settled(files)
		if late == nil || try == 0 { // other content is an error at once
			for _, b := range from() {
				if err := b.again(); err != nil {
					return err
				}
			}
		}
		if late == nil && guard(files, copy) == nil {
			if late = other(files, versions); late == nil {
				return nil
			}
		}
		if late != nil {
			last = late
		}
		time.Sleep(pause)
	}
	err := format.InShard(last.shard, fmt.Errorf("%w again and again while it was read", objstore.ErrChanged))
	for _, b := range from() {
		if b.File == last {
			return &Error{b.Source, err}
		}
	}
	return err
}

// settled returns the versions of files, and a file that changed a moment ago; nil where all are as
// they were for a while.
func settled(files []*File) (versions []objstore.Version, late *File) {
	versions = make([]objstore.Version, len(files))
	for i, f := range files {
		var err error
		if _, versions[i], err = f.object.Map(); err != nil {
			return nil, f
		}
	}
	return versions, nil
}

// other returns a file that has another version; nil where all have these.
func other(files []*File, versions []objstore.Version) *File {
	for i, f := range files {
		if v, err := f.object.Version(); err != nil || v != versions[i] {
			return f
		}
	}
	return nil
}

// again compares all checksums of blocks whose file has changed.
func (b *Blocks) again() error {
	failed := error(nil)
	if err := guard([]*File{b.File}, func() { failed = b.sum(true) }); err != nil {
		failed = format.Place{Shard: b.shard, Block: b.Block, Offset: b.Offset}.Wrap(err)
	}
	if failed == nil {
		return nil
	}
	failed = fmt.Errorf("%w: %w in place while it was read: pack into new files, and put them in place of the old ones by renaming", failed, objstore.ErrChanged)
	return &Error{b.Source, failed}
}

// errFault is what touching bytes that a file no longer has becomes.
var errFault = fmt.Errorf("%w: the file is shorter than when it was opened, or cannot be read: %w", format.ErrCorrupt, io.ErrUnexpectedEOF)

// guard runs f. It returns errFault when f touched bytes of files that the system cannot provide.
func guard(files []*File, f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		at, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		})
		if !ok || !slices.ContainsFunc(files, func(f *File) bool { return f.has(at.Addr()) }) {
			panic(r)
		}
		err = errFault
	}()
	f()
	return nil
}

// has reports whether an address is in the mapping.
func (f *File) has(addr uintptr) bool {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(f.mem)))
	return addr >= begin && addr < begin+uintptr(len(f.mem))
}
