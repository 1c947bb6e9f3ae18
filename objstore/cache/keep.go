package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// touchAfter is the age of a file's time after which a read renews it.
const touchAfter = time.Second

// load fills p from the folder if the range is there and undamaged. replace reports a file that
// should be replaced.
func (c *Cache) load(g *group, key key, p []byte) (found, replace bool) {
	name := key.path(g)
	file, err := c.root.OpenFile(name, os.O_RDONLY|filelock.OpenNonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		g.reuse.missed(key, c.now())
		return false, false
	}
	if err != nil {
		c.cannotRead(name, err) // perhaps a link, which the range will replace
		return false, false
	}
	defer file.Close()
	fi, err := file.Stat()
	if err == nil {
		err = readPiece(file, fi, key, p)
	}
	switch {
	case errors.Is(err, errDamaged):
		c.foundDamage(name, err)
		return false, true
	case err != nil:
		c.cannotRead(name, err)
		return false, errors.Is(err, syscall.EIO)
	}
	c.hits.Add(1)
	c.hitBytes.Add(int64(len(p)))
	if now, last := c.now(), fi.ModTime(); now.Sub(last) >= touchAfter {
		g.reuse.hit(now.Sub(last))
		// This fails on a read-only folder, where nothing can be evicted and times do not matter.
		_ = c.root.Chtimes(name, now, now)
	}
	return true, false
}

// keep writes a range to the folder if there is room or room can be made. It never fails: errors
// are counted, and the first is logged.
func (c *Cache) keep(ctx context.Context, g *group, key key, p []byte, replace bool) {
	if c.tryKeep(ctx, g, key, p, replace) {
		c.kept.Add(1)
	} else {
		c.refused.Add(1)
	}
}

func (c *Cache) tryKeep(ctx context.Context, g *group, key key, p []byte, replace bool) bool {
	now := c.now()
	if !c.usable() || len(p) > maxPiece || key.charge() > c.size || !c.pause.over(now) {
		return false
	}
	if c.victims.hint.hopeless(key.charge(), now) && !replace {
		return false
	}
	temp, err := c.reserve(ctx, g, key, replace)
	if err == nil && temp == nil {
		return false
	}
	if err == nil {
		if err = write(temp.file, key, p); err == nil {
			err = c.publish(temp, g, key)
		} else {
			err = errors.Join(err, c.withdraw(temp))
		}
	}
	switch {
	case err == nil:
		c.pause.success()
	case ctx.Err() == nil && !errors.Is(err, fs.ErrClosed): // neither caller nor cache ended
		c.cannotWrite(err)
	}
	return err == nil
}

// temp is a file that is being written. Its lock shows that its writer is alive.
type temp struct {
	name string
	file *os.File
	size int64
}

// reserve creates the file for key with its full size, so that every process counts it. It returns
// nil if there is no room.
func (c *Cache) reserve(ctx context.Context, g *group, key key, replace bool) (t *temp, err error) {
	err = c.locked(ctx, func(s *state) error {
		if err := c.hold(g); err != nil {
			return err
		}
		if replace {
			c.discard(key.path(g), s)
		}
		if !c.makeRoom(s, key.charge(), false) {
			return nil
		}
		if t, err = c.newTemp(headerSize + int64(key.n)); err != nil {
			return err
		}
		s.total += key.charge()
		return nil
	})
	if err != nil && t != nil {
		err = errors.Join(err, release(t.file), c.root.Remove(t.name)) // the state was not written: it will be counted again
		t = nil
	}
	return t, err
}

func (c *Cache) newTemp(size int64) (*temp, error) {
	var random [tempHash]byte
	binary.LittleEndian.PutUint64(random[:], rand.Uint64())
	name := path.Join(tempDir, string(appendHex(nil, random[:])))
	if err := c.makeParent(name); err != nil {
		return nil, err
	}
	file, err := c.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	held, err := filelock.Try(file, true)
	if err == nil && !held {
		err = errBusy
	}
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		return nil, errors.Join(err, release(file), c.root.Remove(name))
	}
	return &temp{name: name, file: file, size: size}, nil
}

func write(file *os.File, key key, p []byte) error {
	var buf [headerSize]byte
	if _, err := file.WriteAt(key.header(buf[:0], crc32.Checksum(p, castagnoli)), 0); err != nil {
		return err
	}
	_, err := file.WriteAt(p, headerSize)
	return err
}

// publish renames the file to its final name and replaces an existing file. It ignores the caller's
// context, because the work is done.
func (c *Cache) publish(t *temp, g *group, key key) error {
	name, published := key.path(g), false
	err := c.locked(context.Background(), func(s *state) error {
		if err := c.makeParent(name); err != nil {
			return err
		}
		replaced := int64(0)
		if fi, ok := regular(c.root, name); ok {
			replaced = counted(name, fi)
		}
		now := c.now()
		_ = c.root.Chtimes(t.name, now, now)
		// Close first: Windows cannot rename an open file.
		if err := errors.Join(release(t.file), c.root.Rename(t.name, name)); err != nil {
			return err
		}
		published = true
		s.total -= replaced
		return nil
	})
	if published {
		return err
	}
	return errors.Join(err, c.withdraw(t))
}

// withdraw removes a file that will not be published. If the lock is unavailable the file stays; it
// is swept when the folder is full, because nobody holds it any more.
func (c *Cache) withdraw(t *temp) error {
	_ = release(t.file) // publish may have closed it before
	return c.locked(context.Background(), func(s *state) error {
		if err := c.root.Remove(t.name); err != nil {
			return ignoreMissing(err)
		}
		s.total -= charge(t.size)
		return nil
	})
}

// discard removes a damaged file, never a directory. If somebody else put it there, what it counted
// is a guess, so the folder is counted again when it is next full, at most once a minute.
func (c *Cache) discard(name string, s *state) {
	if fi, ok := regular(c.root, name); ok && c.root.Remove(name) == nil {
		s.total = max(0, s.total-counted(name, fi))
		s.counted = min(s.counted, c.now().Add(time.Minute-recount).UnixNano())
	}
}

// forget removes a range that its caller found damaged.
func (c *Cache) forget(ctx context.Context, g *group, key key) {
	err := c.locked(ctx, func(s *state) error {
		name := key.path(g)
		if fi, ok := regular(c.root, name); ok && c.root.Remove(name) == nil {
			s.total -= counted(name, fi)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		c.cannotWrite(err)
	}
}
