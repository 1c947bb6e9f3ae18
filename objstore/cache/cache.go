// Package cache keeps on local disk what was read from a store, for hosts that read a remote data set epoch after epoch.
//
// [New] opens a folder, [Cache.Wrap] gives a store that reads through it. A cached store behaves as the one below in
// everything but where the bytes come from: Create, Delete, Stat and List go through unchanged, and nothing that the cache
// does to make room can reach the source.
//
// # Keys
//
// What is kept is the range that was asked for, under the identity of the object's content, the offset and the length. A
// reader asks for the same blocks or runs every epoch, so ranges repeat exactly; a range that is merely part of one kept
// is read from the source. The identity is what a caller of OpenAs (see [objstore.Traits]) gives, such as the shard's SHA-256; or else the
// store's address with the object's name, ETag, size and time, so that a replaced object, and an object of the same name
// in another data set, has other keys. An object without a strong ETag is read and not kept.
//
// # Folder
//
//	dir/.shardtool-cache   bytes in use; its lock (flock) is held while files come and go, never while any are read
//	dir/.alive             locked shared by every process that has the cache open
//	dir/tmp/<16 hex>       a file being written, of its full size from the start, locked by its writer
//	dir/d-<16 hex>/.live   a data set (one address); locked shared by every process that reads it
//	dir/d-<16 hex>/<2 hex>/<40 hex>-<offset>-<length>   a range: header of 64 bytes, then the bytes
//
// The header carries the identity, the range and CRC-32C checksums of itself and of the bytes, and all is checked whenever
// a file is read. So there is no fsync: a file torn by a power loss, damaged or foreign is found out, read again from the
// source and replaced. Only regular files below a marked folder, with such a path and with the header's magic (or nothing
// yet in its place) are ever removed.
//
// All locks are the kernel's and end with the process. A record that a dead process left unfinished is found by its flag
// and the folder counted again; the first process to open a cache counts it anyway, and so does one that finds it full six
// hours after the last count.
//
// # Bound
//
// Every file counts with its size rounded up to 4 KiB, files still being written too, and room is made before a file
// begins, under the lock: the sum stays within Size with any number of processes that give the same Size. Directories are
// not counted (at most 257 a data set).
//
// # What stays
//
// An epoch reads every range once, in the same or in a new random order. Throwing out what was used longest ago throws
// out what is needed soonest: with a cache smaller than the data set the hit rate is zero in the same order, and low in
// others. Holding on to what is there does as well as can be done: between two reads of one range there is always the
// turn of an epoch, so that what is found in an epoch was there at its turn, and its share is at most the share of the
// data set that fits. So a range that finds no room is not kept, and room is made only where something has gone out of
// use:
//
//   - the data set is read by no process on this host (nobody holds its .live), or, where this process is the last to hold
//     it, had no object open for ten minutes: least recently opened first;
//   - within a data set in use, a range was not read for 1.5 times the longest time in which ranges come back. That time
//     is learned from hits, and from a sample of the misses; it is what frees the ranges of replaced objects and of
//     another cut of the epoch. Until it is known nothing is dropped.
//
// The argument fails where a host reads another part of the data set each epoch, or a range twice in one: there the hit
// rate is lower than the best possible.
//
// # Trouble
//
// A folder that is full, read-only, damaged or on a file system without locks costs one warning in the log of each kind;
// reading goes on, from what is kept where that is possible and from the source otherwise.
// Writing is tried again after a pause.
package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Options change how a Cache works.
type Options struct {
	// Size is the most the cache takes, in bytes, over all processes that use the folder: they should give the same. It
	// must be positive. A folder that holds more is cut down to it by New.
	Size int64
	// Log takes the warnings; nil is slog.Default().
	Log *slog.Logger

	now func() time.Time // tests turn the clock
}

// Cache is one folder, used by this process. It may be used from many goroutines. Any number of processes (and of Caches
// in one) may share a folder.
type Cache struct {
	dir  string
	size int64
	log  *slog.Logger
	now  func() time.Time
	root *os.Root // nil when the folder cannot be used at all
	stats
	warned  [warnings]sync.Once
	flights flights
	pause   pause
	alive   *os.File

	// turn is held by the goroutine that waits for the folder's lock or has it; what follows is guarded by it.
	turn    chan struct{}
	state   *os.File // open between locks, so that a lock costs no open
	victims victims

	mu     sync.Mutex // guards groups
	groups map[string]*group
}

// New opens the cache in dir, making the folder if it is missing. The folder must be empty or a cache already: one with
// other files in it is refused. A folder that cannot be used (read-only, no permission, no space, no locks) is no error:
// the cache warns and passes reads on to the source.
//
// New takes about 4 s for each million files in the folder if no other process uses it, because they are counted.
func New(dir string, opts Options) (*Cache, error) {
	switch {
	case dir == "":
		return nil, errors.New("cache: the path is empty; give a folder")
	case opts.Size <= 0:
		return nil, fmt.Errorf("cache %s: the size is %d bytes; give a positive one", dir, opts.Size)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cache %s: %w", dir, err)
	}
	c := &Cache{dir: abs, size: opts.Size, log: opts.Log, now: opts.now, turn: make(chan struct{}, 1)}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.now == nil {
		c.now = time.Now
	}
	c.groups = map[string]*group{}
	if err := c.openFolder(); err != nil {
		return nil, err
	}
	if c.root != nil {
		c.begin()
	}
	return c, nil
}

// Close lets go of the folder: what is kept stays there for the next process. Objects that are open read on from the
// source. A second Close does nothing.
func (c *Cache) Close() error {
	if c.closed.Swap(true) || c.root == nil {
		return nil
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, c.letGo(g))
	}
	errs = append(errs, release(c.alive), release(c.state), c.root.Close())
	c.alive, c.state = nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cache %s: close: %w", c.dir, err)
	}
	return nil
}

// Wrap returns a store that reads source through the cache. Its [objstore.Traits] are those of
// source, plus OpenAs. The address of source identifies the data set, and is part of the identity of
// objects opened by Open.
func (c *Cache) Wrap(source objstore.Store) objstore.Store {
	return &store{Store: source, cache: c, group: c.groupOf(source.String())}
}

// Stats counts since New, in this process. Used is the folder's, as this process last saw it.
type Stats struct {
	Hits, HitBytes    int64 // reads served from the folder
	Misses, MissBytes int64 // reads sent to the source, whatever came of them
	Shared            int64 // reads served by another read of the same range under way
	Kept              int64 // ranges written to the folder
	Refused           int64 // ranges not kept for want of room
	Evicted           int64 // files removed to make room
	Damaged           int64 // files found damaged or foreign
	Errors            int64 // failures to read or to write the folder
	Used, Size        int64 // bytes in use, and the limit
}

type stats struct {
	closed                                               atomic.Bool
	hits, hitBytes, misses, missBytes, shared            atomic.Int64
	kept, refused, evicted, damaged, failures, usedBytes atomic.Int64
}

// Stats returns the counters. They are read one by one, so those of reads under way may not add up.
func (c *Cache) Stats() Stats {
	return Stats{
		Hits: c.hits.Load(), HitBytes: c.hitBytes.Load(),
		Misses: c.misses.Load(), MissBytes: c.missBytes.Load(),
		Shared: c.shared.Load(), Kept: c.kept.Load(), Refused: c.refused.Load(), Evicted: c.evicted.Load(),
		Damaged: c.damaged.Load(), Errors: c.failures.Load(), Used: c.usedBytes.Load(), Size: c.size,
	}
}

// usable reports whether the folder can be looked at.
func (c *Cache) usable() bool { return c.root != nil && !c.closed.Load() }
