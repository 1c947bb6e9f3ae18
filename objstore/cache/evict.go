package cache

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// hopelessFor is how long ranges are refused without a search after nothing could be removed.
	// Searches take at most 1/hopelessShare of the time.
	hopelessFor   = 100 * time.Millisecond
	hopelessShare = 32

	// A search of the data sets in use holds the lock, so it ends after lookBuckets directories or
	// lookTime.
	lookBuckets = 8
	lookTime    = 5 * time.Millisecond
)

// victims are files that may be removed. They are found one directory at a time, because there is
// no list of all files.
type victims struct {
	queue []victim
	idle  string // data set out of use that is being removed
	next  int    // next directory of idle
	hint  hint   // set when there are none
}

type victim struct {
	name string
	used time.Time
	idle bool // the data set is out of use, so used is ignored
}

// makeRoom removes ranges out of use until need more bytes fit, and reports whether they do. With
// force it also removes ranges in use. The caller holds the lock.
func (c *Cache) makeRoom(s *state, need int64, force bool) bool {
	if s.total+need <= c.size {
		return true
	}
	began := c.now()
	c.sweep(s)
	c.letGoUnused()
	// The queue may be left over from an earlier call, and its data set in use again.
	if v := &c.victims; v.idle != "" && !c.idle(v.idle) {
		v.queue, v.idle = nil, ""
	}
	if began.UnixNano()-s.counted >= int64(recount) {
		if counted, err := c.count(); err == nil {
			*s = counted
		}
	}
	for looked := 0; s.total+need > c.size; {
		if len(c.victims.queue) > 0 {
			v := c.victims.queue[0]
			c.victims.queue = c.victims.queue[1:]
			if err := c.evict(v, s); err != nil {
				c.victims.queue = nil
				c.cannotWrite(err)
				return false
			}
			continue
		}
		more := c.lookIdle() || c.lookUsed(began, &looked) || force && c.lookAny()
		if !more {
			now := c.now()
			c.victims.hint.set(need, now.Add(max(hopelessFor, hopelessShare*now.Sub(began))))
			return false
		}
	}
	if force {
		c.victims.queue = nil // their ranges are in use
	}
	return true
}

// evict removes one file, unless it was used since it was queued or does not belong to the cache.
// It returns an error if nothing can be removed at all.
func (c *Cache) evict(v victim, s *state) error {
	fi, ok := regular(c.root, v.name)
	if !ok || !v.idle && fi.ModTime().After(v.used) || !own(c.root, v.name) {
		return nil
	}
	if err := c.root.Remove(v.name); err != nil {
		return ignoreMissing(err)
	}
	s.total -= counted(v.name, fi)
	c.evicted.Add(1)
	return nil
}

// lookIdle queues the files of the next directory of a data set that no process reads. It reports
// whether there may be more to find.
func (c *Cache) lookIdle() bool {
	v := &c.victims
	if v.idle == "" || !c.idle(v.idle) {
		v.idle, v.next = c.oldestIdle(), 0
		if v.idle == "" {
			return false
		}
	}
	for ; v.next < buckets; v.next++ {
		dir := bucketDir(v.idle, v.next)
		c.queue(dir, func(fs.FileInfo) bool { return true }, true)
		if len(v.queue) > 0 {
			v.next++
			return true
		}
		_ = c.root.Remove(dir)
	}
	c.removeGroup(v.idle)
	v.idle = ""
	return true
}

// removeGroup removes the directories of a data set whose files were removed. A directory that
// contains other files stays and is skipped from then on.
func (c *Cache) removeGroup(dir string) {
	for bucket := range buckets {
		_ = c.root.Remove(bucketDir(dir, bucket))
	}
	if name := path.Join(dir, liveName); c.idle(dir) {
		if _, ok := regular(c.root, name); ok {
			_ = c.root.Remove(name)
		}
	}
	_ = c.root.Remove(dir)
}

// oldestIdle returns the data set out of use that was opened longest ago. If a .live file is
// missing, the data set was emptied before and contains only foreign files, or the file was lost
// and the ranges are still there.
func (c *Cache) oldestIdle() (oldest string) {
	var when time.Time
	_ = c.eachName(".", func(name string) bool {
		if !isGroup(name) || !c.idle(name) || !c.hasPieces(name) {
			return true
		}
		var opened time.Time
		if fi, ok := regular(c.root, path.Join(name, liveName)); ok {
			opened = fi.ModTime()
		}
		if oldest == "" || opened.Before(when) {
			oldest, when = name, opened
		}
		return true
	})
	return oldest
}

// hasPieces reports whether a data set has files to remove.
func (c *Cache) hasPieces(group string) (has bool) {
	_ = c.eachName(group, func(bucket string) bool {
		if isBucket(bucket) {
			_ = c.eachPiece(path.Join(group, bucket), func(in *os.Root, name string, _ fs.FileInfo) bool {
				has = own(in, name)
				return !has
			})
		}
		return !has
	})
	return has
}

// lookUsed queues files of this process's data sets that were not read for much longer than ranges
// take to repeat. It searches a few directories and continues there the next time.
func (c *Cache) lookUsed(now time.Time, looked *int) bool {
	v := &c.victims
	for _, g := range c.heldGroups() {
		dead, known := g.reuse.dead()
		for ; known && *looked < lookBuckets && c.now().Sub(now) < lookTime && len(v.queue) == 0; *looked++ {
			dir := bucketDir(g.dir, int(g.cursor))
			g.cursor++
			c.queue(dir, func(fi fs.FileInfo) bool { return now.Sub(fi.ModTime()) > dead }, false)
		}
	}
	return len(v.queue) > 0
}

// lookAny queues files of data sets in use, for a folder that must become smaller.
func (c *Cache) lookAny() bool {
	var groups []string
	_ = c.eachName(".", func(name string) bool {
		if isGroup(name) {
			groups = append(groups, name)
		}
		return true
	})
	for _, group := range groups {
		for bucket := range buckets {
			c.queue(bucketDir(group, bucket), func(fs.FileInfo) bool { return true }, true)
			if len(c.victims.queue) > 0 {
				return true
			}
		}
	}
	return false
}

// queue replaces the queue by the removable files of a directory, least recently used first.
func (c *Cache) queue(dir string, may func(fs.FileInfo) bool, idle bool) {
	found := c.victims.queue[:0]
	_ = c.eachPiece(dir, func(in *os.Root, name string, fi fs.FileInfo) bool {
		if may(fi) && own(in, name) {
			found = append(found, victim{name: path.Join(dir, name), used: fi.ModTime(), idle: idle})
		}
		return true
	})
	slices.SortFunc(found, func(a, b victim) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	c.victims.queue = found
}

// heldGroups returns the data sets that this process reads. The caller holds the lock.
func (c *Cache) heldGroups() (held []*group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		if g.live != nil {
			held = append(held, g)
		}
	}
	return held
}

func bucketDir(group string, bucket int) string {
	return group + "/" + string(appendHex(nil, []byte{byte(bucket)}))
}

// counted returns what a file counted when it was published, from the length in its name. If
// somebody changed its length since, it returns the smaller value, so that the sum stays an upper
// bound.
func counted(name string, fi fs.FileInfo) int64 {
	n, err := strconv.ParseUint(name[strings.LastIndexByte(name, '-')+1:], 16, 31)
	if err != nil {
		return 0
	}
	return min(charge(fi.Size()), charge(headerSize+int64(n)))
}
