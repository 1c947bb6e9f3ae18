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
	// search for ranges out of use. Cache.mu guards both.
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
	c.use(g)
	return g
}

// opened and closedOne count the open objects of a data set.
func (c *Cache) opened(g *group) {
	g.open.Add(1)
	c.use(g)
}

func (c *Cache) use(g *group) {
	if err := c.markLive(g); err != nil {
		c.cannotWrite(err)
	}
}

func (c *Cache) closedOne(g *group) {
	g.closedAt.Store(c.now().UnixNano())
	g.open.Add(-1)
}

// markLive takes the shared lock that marks the data set as in use, unless this process holds it.
func (c *Cache) markLive(g *group) error {
	if g.held.Load() || !c.usable() || !c.pause.over(c.now()) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold(g)
}

// hold is markLive for a caller that holds c.mu. The file's modification time is when the data set
// was last opened, so that the oldest one is evicted first.
func (c *Cache) hold(g *group) error {
	if g.live != nil {
		return nil
	}
	if c.closed.Load() {
		return fs.ErrClosed
	}
	name := path.Join(g.dir, liveName)
	if err := c.makeParent(name); err != nil {
		return err
	}
	// Others hold it exclusively only to see whether it is free.
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	file, err := filelock.Wait(ctx, c.root, name, fileMode, false)
	if err != nil {
		return err
	}
	now := c.now()
	_ = c.root.Chtimes(name, now, now)
	g.live = file
	g.held.Store(true)
	return nil
}

// letGo releases the lock of a data set.
func (c *Cache) letGo(g *group) error {
	err := filelock.Release(g.live)
	g.live = nil
	g.held.Store(false)
	return err
}

// letGoUnused releases the locks of data sets that this process does not read any more. The caller
// holds c.mu.
func (c *Cache) letGoUnused() {
	for _, g := range c.groups {
		if g.live != nil && g.open.Load() == 0 && c.now().UnixNano()-g.closedAt.Load() > int64(unusedAfter) {
			_ = c.letGo(g) // nothing was written to the file, so its Close loses nothing
			if g.open.Load() > 0 {
				_ = c.hold(g) // an object was opened meanwhile; if this fails, the next cached range retries
			}
		}
	}
}

// idle reports whether no process reads the data set.
func (c *Cache) idle(dir string) bool {
	file, err := filelock.Open(c.root, path.Join(dir, liveName), 0, 0, true)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return file != nil && filelock.Release(file) == nil
}
