package cache

import (
	"context"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// touchAfter is the age of a file's time after which a read renews it.
const touchAfter = time.Second

// load fills p from the folder if the range is there and undamaged. It removes a damaged file.
func (c *Cache) load(g *group, key key, p []byte) bool {
	name := key.path(g)
	file, err := c.root.OpenFile(name, os.O_RDONLY|filelock.OpenNonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		g.reuse.missed(key, c.now())
		return false
	}
	if err != nil {
		c.cannotRead(name, err) // perhaps a link, which the range will replace
		return false
	}
	defer file.Close()
	fi, err := file.Stat()
	if err == nil {
		err = readPiece(file, fi, key, p)
	}
	switch {
	case errors.Is(err, errDamaged):
		c.foundDamage(name, err)
		c.forget(g, key)
		return false
	case err != nil:
		c.cannotRead(name, err)
		if errors.Is(err, syscall.EIO) {
			c.forget(g, key)
		}
		return false
	}
	c.counts.hits.Add(1)
	c.counts.hitBytes.Add(int64(len(p)))
	if now, last := c.now(), fi.ModTime(); now.Sub(last) >= touchAfter {
		g.reuse.hit(now.Sub(last))
		// This fails on a read-only folder, where nothing can be evicted and times do not matter.
		_ = c.root.Chtimes(name, now, now)
	}
	return true
}

// forget removes a range that is damaged.
func (c *Cache) forget(g *group, key key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.discard(key.path(g)); n > 0 {
		if _, err := c.account(-n); err != nil {
			c.cannotWrite(err)
		}
	}
}

// temp is the file of a range that this process fetches, for itself and for the others. Its lock
// makes them wait, and shows that its writer is alive.
type temp struct {
	name  string
	file  *os.File
	began time.Time
}

// claim decides who fetches a range that is not in the folder. If it returns a temp, it is the
// caller, who calls publish or withdraw; there is room for the range. stored means that another
// process has just fetched it. Otherwise the caller reads from the source and stores nothing: there
// is no room, or the process that fetches the range takes too long.
func (c *Cache) claim(ctx context.Context, g *group, key key) (t *temp, stored bool) {
	now := c.now()
	if !c.usable() || key.n > maxPiece || key.charge() > c.size || !c.pause.over(now) ||
		c.hint.hopeless(key.charge(), now) {
		c.counts.refused.Add(1)
		return nil, false
	}
	t, stored, err := c.lockRange(ctx, g, key)
	if err == nil && t != nil {
		var room bool
		if room, err = c.reserve(t, key); !room {
			err = errors.Join(err, c.withdraw(t))
			t = nil
		}
	}
	if t == nil && !stored {
		c.counts.refused.Add(1)
	}
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		c.cannotWrite(err)
	}
	return t, stored
}

// lockRange locks the range for this process. Both results are zero if another process holds it for
// too long.
func (c *Cache) lockRange(ctx context.Context, g *group, key key) (t *temp, stored bool, err error) {
	if err := c.markLive(g); err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	name := key.temp()
	err = filelock.Poll(ctx, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		file, err := filelock.Open(c.root, name, os.O_CREATE, fileMode, true)
		if errors.Is(err, fs.ErrNotExist) {
			return false, c.makeParent(name)
		}
		if err != nil {
			return false, err
		}
		if _, stored = regular(c.root, key.path(g)); file != nil {
			t = &temp{name: name, file: file, began: time.Now()}
		}
		return stored || file != nil, nil
	})
	if stored && t != nil { // between the caller's look and the lock
		err, t = errors.Join(err, c.withdraw(t)), nil
	}
	if ctx.Err() != nil {
		err = nil // too late, or the caller gave up
	}
	return t, stored, err
}

// reserve makes room for a range and gives its file the full size, so that every process counts it.
func (c *Cache) reserve(t *temp, key key) (room bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fi, err := t.file.Stat()
	if err == nil && fi.Size() > 0 { // its writer died
		if err = t.file.Truncate(0); err == nil {
			_, err = c.account(-charge(fi.Size()))
		}
	}
	if err != nil {
		return false, err
	}
	if room, err = c.makeRoom(key.charge(), false); room {
		if err = t.file.Truncate(headerSize + int64(key.n)); err != nil {
			_, accountErr := c.account(-key.charge())
			return false, errors.Join(err, accountErr)
		}
	}
	return room, err
}

// publish stores a range that claim gave to the caller. It never fails: errors are counted, and the
// first is logged.
func (c *Cache) publish(t *temp, g *group, key key, p []byte) {
	name, now := key.path(g), c.now()
	err := write(t.file, key, p)
	if err == nil {
		_ = c.root.Chtimes(t.name, now, now)
		if err = c.root.Rename(t.name, name); errors.Is(err, fs.ErrNotExist) {
			if err = c.makeParent(name); err == nil {
				err = c.root.Rename(t.name, name)
			}
		}
	}
	if err == nil {
		err = filelock.Release(t.file)
		c.learn(time.Since(t.began))
		c.counts.kept.Add(1)
		c.pause.success()
	} else {
		err = errors.Join(err, c.withdraw(t))
		c.counts.refused.Add(1)
	}
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		c.cannotWrite(err)
	}
}

// withdraw removes a file that will not be published.
func (c *Cache) withdraw(t *temp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	freed := c.discard(t.name)
	err := filelock.Release(t.file)
	if freed > 0 {
		_, accountErr := c.account(-freed)
		err = errors.Join(err, accountErr)
	}
	return err
}

func write(file *os.File, key key, p []byte) error {
	var buf [headerSize]byte
	if _, err := file.WriteAt(key.header(buf[:0], crc32.Checksum(p, castagnoli)), 0); err != nil {
		return err
	}
	_, err := file.WriteAt(p, headerSize)
	return err
}

// patience is how long to wait for the fetch of another process: four times as long as the slowest
// of this process's own took recently. The other's requests have timeouts and hedges of their own,
// so only a process that is stopped, or gets no processor, takes longer.
func (c *Cache) patience() time.Duration {
	slowest := time.Duration(c.slowest.Load())
	if slowest == 0 {
		return mostPatience
	}
	return min(max(4*slowest, c.least), mostPatience)
}

// learn records how long a fetch took: a maximum that fades.
func (c *Cache) learn(took time.Duration) {
	slowest := c.slowest.Load()
	c.slowest.Store(max(int64(took), slowest-slowest/16))
}
