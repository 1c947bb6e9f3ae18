package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// unusedAfter is how long a process claims a data set of which it has no open object.
const unusedAfter = 10 * time.Minute

// group is one data set: the objects of one address.
type group struct {
	dir   string // folder of the data set
	reuse reuse

	open     atomic.Int64 // number of open objects
	closedAt atomic.Int64 // when the last one was closed, in nanoseconds since 1970
	held     atomic.Bool  // whether live is locked

	// live is locked shared while this process reads the data set. cursor is the next directory to
	// search for ranges out of use. Cache.turn guards both.
	live   *os.File
	cursor byte
}

// groupOf returns the group of an address, and marks it as in use.
func (c *Cache) groupOf(address string) *group {
	sum := sha256.Sum256([]byte(address))
	dir := fmt.Sprintf("%s%x", groupPrefix, sum[:groupHash])
	c.mu.Lock()
	g := c.groups[dir]
	if g == nil {
		g = &group{dir: dir}
		g.closedAt.Store(c.now().UnixNano())
		c.groups[dir] = g
	}
	c.mu.Unlock()
	c.markLive(g)
	return g
}

// opened and closedOne count the open objects of a data set.
func (c *Cache) opened(g *group) {
	g.open.Add(1)
	c.markLive(g)
}

func (c *Cache) closedOne(g *group) {
	g.closedAt.Store(c.now().UnixNano())
	g.open.Add(-1)
}

// markLive takes the shared lock that marks the data set as in use, unless this process holds it.
func (c *Cache) markLive(g *group) {
	if g.held.Load() || !c.usable() || !c.pause.over(c.now()) {
		return
	}
	err := c.locked(context.Background(), func(*state) error { return c.hold(g) })
	if err != nil {
		c.cannotWrite(err)
	}
}

// hold is markLive for a caller that holds the folder's lock. The file's modification time is when
// the data set was last opened, so that the oldest one is evicted first.
func (c *Cache) hold(g *group) error {
	if g.live != nil {
		return nil
	}
	name := path.Join(g.dir, liveName)
	if err := c.makeParent(name); err != nil {
		return err
	}
	file, err := c.root.OpenFile(name, os.O_RDWR|os.O_CREATE|filelock.OpenNonblock, fileMode)
	if err != nil {
		return err
	}
	held, err := filelock.Try(file, false)
	if err != nil || !held {
		return errors.Join(err, release(file))
	}
	now := c.now()
	_ = c.root.Chtimes(name, now, now)
	g.live = file
	g.held.Store(true)
	return nil
}

// letGo releases the lock of a data set.
func (c *Cache) letGo(g *group) error {
	err := release(g.live)
	g.live = nil
	g.held.Store(false)
	return err
}

// letGoUnused releases the locks of data sets that this process does not read any more. The caller
// holds the folder's lock.
func (c *Cache) letGoUnused() {
	for _, g := range c.heldGroups() {
		if g.open.Load() == 0 && c.now().UnixNano()-g.closedAt.Load() > int64(unusedAfter) {
			_ = c.letGo(g) // nothing was written to the file, so its Close loses nothing
			if g.open.Load() > 0 {
				_ = c.hold(g) // an object was opened meanwhile; if this fails, the next cached range retries
			}
		}
	}
}

// idle reports whether no process reads the data set. The caller holds the folder's lock.
func (c *Cache) idle(dir string) bool {
	file, err := c.root.OpenFile(path.Join(dir, liveName), os.O_RDWR|filelock.OpenNonblock, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	held, err := filelock.Try(file, true)
	return errors.Join(err, release(file)) == nil && held
}
