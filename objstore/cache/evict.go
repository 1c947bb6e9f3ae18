package cache

import (
	"cmp"
	"encoding/hex"
	"io/fs"
	"path"
	"slices"
	"time"
)

const (
	// hopelessFor is how long ranges are refused without a search after nothing could be removed.
	// Searches take at most 1/hopelessShare of the time.
	hopelessFor   = 100 * time.Millisecond
	hopelessShare = 32

	// A search of the data sets in use holds up other readers of this process, so it ends after
	// lookBuckets directories or lookTime.
	lookBuckets = 8
	lookTime    = 5 * time.Millisecond
)

// victims are files that may be removed. They are found one directory at a time, because there is
// no list of all files.
type victims struct {
	queue   []victim
	idle    string               // data set out of use that is being removed
	next    int                  // next directory of idle
	emptied map[string]time.Time // data sets without files since they were last opened, at that time
}

type victim struct {
	name string
	used time.Time
	idle bool // the data set is out of use, so used is ignored
}

// makeRoom removes ranges out of use until need more bytes fit, counts these, and reports whether
// they fit. With force it also removes ranges in use. The caller holds c.mu.
func (c *Cache) makeRoom(need int64, force bool) (bool, error) {
	began, looked := c.now(), -1
	for freed := int64(0); ; {
		if freed > 0 {
			if _, err := c.account(-freed); err != nil {
				return false, err
			}
		}
		if fits, err := c.account(need); fits || err != nil {
			return fits, err
		}
		v := &c.victims
		if looked < 0 {
			looked, freed = 0, c.sweep()
			c.letGoUnused()
			// The queue may be left over from an earlier call, and its data set in use again.
			if v.idle != "" && !c.idle(v.idle) {
				v.queue, v.idle = nil, ""
			}
			continue
		}
		if len(v.queue) == 0 && !c.lookIdle(force) && !c.lookUsed(began, &looked) {
			now := c.now()
			c.hint.set(need, now.Add(max(hopelessFor, hopelessShare*now.Sub(began))))
			return false, nil
		}
		for freed = 0; freed == 0 && len(v.queue) > 0; v.queue = v.queue[1:] {
			n, err := c.evict(v.queue[0])
			if err != nil {
				v.queue = nil
				return false, err
			}
			freed = n
		}
	}
}

// evict removes one file, unless it was used since it was queued or does not belong to the cache.
// It returns an error if nothing can be removed at all.
func (c *Cache) evict(v victim) (freed int64, err error) {
	fi, ok := regular(c.root, v.name)
	if !ok || !v.idle && fi.ModTime().After(v.used) || !c.own(v.name) {
		return 0, nil
	}
	if err := c.root.Remove(v.name); err != nil {
		return 0, ignoreMissing(err)
	}
	c.counts.evicted.Add(1)
	return counted(v.name, fi), nil
}

// lookIdle queues the files of the next directory of a data set that no process reads, or, with
// force, of any. It reports whether it found any.
func (c *Cache) lookIdle(force bool) bool {
	v := &c.victims
	for {
		if v.idle == "" || !force && !c.idle(v.idle) {
			if v.idle, v.next = c.oldest(false), 0; v.idle == "" && force {
				v.idle = c.oldest(true)
			}
			if v.idle == "" {
				return false
			}
		}
		for v.next < buckets {
			v.next++
			if c.queue(bucketDir(v.idle, v.next-1), func(fs.FileInfo) bool { return true }, true) {
				return true
			}
		}
		if v.emptied == nil {
			v.emptied = map[string]time.Time{}
		}
		v.emptied[v.idle] = c.openedAt(v.idle)
		v.idle = ""
	}
}

// openedAt is when a data set was last opened, or zero if its .live file is lost.
func (c *Cache) openedAt(group string) (at time.Time) {
	if fi, ok := regular(c.root, path.Join(group, liveName)); ok {
		at = fi.ModTime()
	}
	return at
}

// oldest returns the data set that was opened longest ago, of those that are not known to be empty.
// It leaves out those that a process reads, unless inUse.
func (c *Cache) oldest(inUse bool) (oldest string) {
	var when time.Time
	all, _ := c.dataSets()
	for _, name := range all {
		opened := c.openedAt(name)
		emptied, ok := c.victims.emptied[name]
		if ok && opened.Equal(emptied) || !inUse && !c.idle(name) {
			continue
		}
		if oldest == "" || opened.Before(when) {
			oldest, when = name, opened
		}
	}
	return oldest
}

// lookUsed queues files of this process's data sets that were not read for much longer than ranges
// take to repeat. It searches a few directories and continues there the next time.
func (c *Cache) lookUsed(now time.Time, looked *int) bool {
	for _, g := range c.groups {
		dead, known := g.reuse.dead()
		for ; g.live != nil && known && *looked < lookBuckets && c.now().Sub(now) < lookTime; *looked++ {
			dir := bucketDir(g.dir, int(g.cursor))
			g.cursor++
			if c.queue(dir, func(fi fs.FileInfo) bool { return now.Sub(fi.ModTime()) > dead }, false) {
				return true
			}
		}
	}
	return false
}

// queue replaces the queue by the removable files of a directory, least recently used first, and
// reports whether there are any.
func (c *Cache) queue(dir string, may func(fs.FileInfo) bool, idle bool) bool {
	v := &c.victims
	v.queue = v.queue[:0]
	found, _ := c.pieces(dir)
	for name, fi := range found {
		if may(fi) && c.own(name) {
			v.queue = append(v.queue, victim{name: name, used: fi.ModTime(), idle: idle})
		}
	}
	slices.SortFunc(v.queue, func(a, b victim) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	return len(v.queue) > 0
}

func bucketDir(group string, bucket int) string {
	return group + "/" + string(hex.AppendEncode(nil, []byte{byte(bucket)}))
}
