// Package cache keeps ranges read from a store on local disk, for hosts that read a remote data set
// epoch after epoch.
//
// [New] opens a folder; [Cache.Wrap] returns a store that reads through it. The wrapped store
// behaves like its source except for where the bytes are read from: Create, Delete, Stat and List
// go to the source unchanged, and making room in the cache never affects the source.
//
// # Keys
//
// The unit is the range that was requested, or each part of it where the reader names parts: the
// blocks of a run. Its key is the identity of the object's content, the offset and the length. Blocks
// are the same in every order and whatever they are read with; another range that is only part of a
// cached one is read from the source. The identity is the
// one given to OpenAs (see [objstore.Traits]), such as the shard's SHA-256. For objects opened by
// Open it is the store's address with the object's name, ETag, size and time, so that a replaced
// object, or an object of the same name in another data set, has other keys. Objects without a
// strong ETag are not cached.
//
// # Folder
//
//	dir/.shardtool-cache   bytes in use; locked (flock) while this number is read and written
//	dir/.alive             locked shared by every process that has the cache open
//	dir/tmp/<16 hex>       a range that a process fetches, locked by that process; it has its full
//	                       size from the moment when there is room for it
//	dir/d-<16 hex>/.live   a data set (one address); locked shared by every process that reads it
//	dir/d-<16 hex>/<2 hex>/<40 hex>-<offset>-<length>   a range: header of 64 bytes, then the bytes
//
// The header contains the identity, the range and CRC-32C checksums of itself and of the bytes. All
// are verified whenever a file is read, so there is no fsync: a file that is torn by a power
// failure, damaged or foreign is detected, read again from the source and replaced. Only regular
// files below a marked folder, with such a path and with the header's magic (or no bytes written in
// its place) are ever removed.
//
// # Many processes
//
// A range that several processes of a host want is fetched once. The one that locks its file in tmp
// fetches it, writes the file and renames it; the others wait for that, and then read the range
// from the folder. They wait about four times as long as fetches took recently, at least 5 s and
// at most 10 s. Then they read from the source, and store nothing.
//
// All locks belong to the kernel and end with the process. If a process dies while it fetches, one
// that waits takes over the lock, the file and its room. A process changes the number of bytes in
// use before a file grows and after a file is gone, so a death between the two leaves it too large,
// never too small. The first process to open a cache counts the files.
//
// # Bound
//
// Every file counts with its size rounded up to 4 KiB, including files being written. Room is made
// before a range is fetched, so the sum stays within Size for any number of processes that give the
// same Size; with different ones, each stores only while the sum is within its own. Directories are
// not counted (at most 257 for each data set).
//
// # Eviction
//
// An epoch reads every range once, in the same or in a new random order. Evicting the least
// recently used range evicts the one that is needed soonest: with a cache smaller than the data
// set, the hit rate is zero if the order stays the same, and low otherwise. Keeping the ranges that
// are cached is optimal: a range is read once in each epoch, so the hit rate is at most the share
// of the data set that fits. Therefore a range for which there is no room is not cached, and only
// ranges out of use are evicted:
//
//   - ranges of a data set that no process on this host reads (nobody holds its .live), or of which
//     the only reading process had no object open for ten minutes; the data set that was opened
//     longest ago first;
//   - within a data set in use, ranges not read for 1.5 times the longest time between two reads of
//     a range. That time is learned from hits and from a sample of the misses. It frees the ranges
//     of replaced objects and of another split of the epoch. Until it is known, nothing is evicted.
//
// The argument does not hold if a host reads another part of the data set in each epoch, or a range
// twice in one epoch: there the hit rate is lower than the best possible.
//
// # Trouble
//
// A folder that is full, read-only, damaged or on a file system without locks causes one warning of
// each kind in the log. Reads continue, from the cache where possible and from the source
// otherwise. Writes are retried after a pause.
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

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// Options configure a Cache.
type Options struct {
	// Size is the most that the cache holds in bytes, for all processes that use the folder
	// together; they should give the same value. It must be positive. New reduces a larger folder
	// to it.
	Size int64
	// Log receives the warnings. Nil means slog.Default().
	Log *slog.Logger

	now func() time.Time // replaced by tests
}

// Cache is one folder, used by this process. Many goroutines may use it. Any number of processes,
// and of Caches in one process, may share a folder.
type Cache struct {
	dir     string
	size    int64
	log     *slog.Logger
	now     func() time.Time
	root    *os.Root // nil when the folder cannot be used at all
	counts  counts
	closed  atomic.Bool
	warned  [warnings]sync.Once
	flights flights
	pause   pause
	hint    hint
	slowest atomic.Int64  // of this process's recent fetches, in nanoseconds
	least   time.Duration // leastPatience, except in tests
	alive   *os.File      // locked shared until Close

	mu      sync.Mutex // guards the fields below, and serializes changes of the record
	victims victims
	groups  map[string]*group
}

// leastPatience and mostPatience bound the wait for the fetch of another process.
const (
	leastPatience = 5 * time.Second
	mostPatience  = 10 * time.Second
)

// New opens the cache in dir and makes the folder if it is missing. It refuses a folder that is not
// a cache and contains other files. A folder that cannot be used (read-only, no permission, no
// space, no locks) is not an error: the cache logs a warning and reads from the source.
//
// If no other process uses the folder, New counts its files, which takes about 4 s for each
// million.
func New(dir string, opts Options) (*Cache, error) {
	switch {
	case dir == "":
		return nil, errors.New("the path is empty; give a folder")
	case opts.Size <= 0:
		return nil, fmt.Errorf("cache %s: the size is %d bytes; give a positive one", dir, opts.Size)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cache %s: %w", dir, err)
	}
	c := &Cache{dir: abs, size: opts.Size, log: opts.Log, now: opts.now, least: leastPatience,
		groups: map[string]*group{}}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.now == nil {
		c.now = time.Now
	}
	if err := c.openFolder(); err != nil {
		return nil, err
	}
	if c.root != nil {
		if err := c.begin(); err != nil {
			c.cannotWrite(err)
		}
	}
	return c, nil
}

// Close releases the folder, whose ranges stay for the next process. Open objects read from the
// source from then on. A second Close does nothing.
func (c *Cache) Close() error {
	if c.closed.Swap(true) || c.root == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, c.letGo(g))
	}
	errs = append(errs, filelock.Release(c.alive), c.root.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cache %s: close: %w", c.dir, err)
	}
	return nil
}

// Stats counts since New, in this process. Used is the folder's size when this process last saw it.
type Stats struct {
	Hits, HitBytes    int64 // reads served from the folder
	Misses, MissBytes int64 // reads sent to the source, successful or not
	Shared            int64 // reads served by a concurrent read of the same range
	Kept              int64 // ranges written to the folder
	Refused           int64 // ranges not cached for lack of room
	Evicted           int64 // files removed to make room
	Damaged           int64 // files found damaged or foreign
	Errors            int64 // failures to read or to write the folder
	Used, Size        int64 // bytes in use, and the limit
}

type counts struct {
	hits, hitBytes, misses, missBytes, shared            atomic.Int64
	kept, refused, evicted, damaged, failures, usedBytes atomic.Int64
}

// Stats returns the counters. They are read one by one, so they may be inconsistent while reads are
// in progress.
func (c *Cache) Stats() Stats {
	return Stats{
		Hits: c.counts.hits.Load(), HitBytes: c.counts.hitBytes.Load(),
		Misses: c.counts.misses.Load(), MissBytes: c.counts.missBytes.Load(),
		Shared: c.counts.shared.Load(), Kept: c.counts.kept.Load(), Refused: c.counts.refused.Load(),
		Evicted: c.counts.evicted.Load(),
		Damaged: c.counts.damaged.Load(), Errors: c.counts.failures.Load(), Used: c.counts.usedBytes.Load(),
		Size: c.size,
	}
}

// usable reports whether the folder can be read.
func (c *Cache) usable() bool { return c.root != nil && !c.closed.Load() }
