package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// The layout of the state file, of little-endian integers:
//
//	 0  magic and version, 8 bytes
//	 8  bytes in use, 8 bytes
//	16  time of the last count of the folder, nanoseconds since 1970, 8 bytes
//	24  1 while a process changes the folder, 4 bytes
//	28  CRC-32C of the 28 bytes above, 4 bytes
const (
	stateMagic = "stcstat\x01"
	stateSize  = 32

	// lockPatience is how long a reader waits for the folder's lock before it does without. Holders
	// need microseconds, or the time to count the folder.
	lockPatience = time.Second

	// recount is the age of a count after which a full folder is counted again.
	recount = 6 * time.Hour
)

// state is shared by all processes.
type state struct {
	total   int64 // bytes in use
	counted int64 // when total was last counted, nanoseconds since 1970
}

func (s state) append(dst []byte, dirty bool) []byte {
	start := len(dst)
	dst = append(dst, stateMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.total))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.counted))
	flag := uint32(0)
	if dirty {
		flag = 1
	}
	dst = binary.LittleEndian.AppendUint32(dst, flag)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readState reads the record. ok is false if it is incomplete, or if a process died while it
// changed the folder.
func readState(file *os.File) (s state, ok bool) {
	var buf [stateSize]byte
	if n, _ := file.ReadAt(buf[:], 0); n < stateSize {
		return s, false
	}
	s.total = int64(binary.LittleEndian.Uint64(buf[8:]))
	s.counted = int64(binary.LittleEndian.Uint64(buf[16:]))
	return s, s.total >= 0 && string(buf[:]) == string(s.append(nil, false))
}

var errBusy = errors.New("another process holds the folder's lock and does not release it")

// locked runs f while no other process changes the folder, and writes back the state that f leaves.
// It waits for at most lockPatience; a caller that does not get the lock does without.
func (c *Cache) locked(ctx context.Context, f func(*state) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errBusy)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.closed.Load() {
		return fs.ErrClosed
	}
	if err := c.lockState(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, filelock.Unlock(c.state)) }()
	s, ok := readState(c.state)
	if !ok {
		if s, err = c.count(); err != nil {
			return err
		}
	}
	if _, err := c.state.WriteAt(s.append(nil, true), 0); err != nil {
		return err
	}
	err = f(&s)
	c.usedBytes.Store(s.total)
	_, writeErr := c.state.WriteAt(s.append(nil, false), 0)
	return errors.Join(err, writeErr)
}

// lockState locks the state file. It waits until ctx ends.
func (c *Cache) lockState(ctx context.Context) error {
	err := filelock.Poll(ctx, 50*time.Microsecond, 5*time.Millisecond, c.tryState)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tryState locks the state file, which it opens and creates as needed. It ignores the lock of a
// file that is no longer named.
func (c *Cache) tryState() (held bool, err error) {
	if c.state == nil {
		file, err := c.root.OpenFile(stateName, os.O_RDWR|os.O_CREATE|filelock.OpenNonblock, fileMode)
		if err != nil {
			return false, err
		}
		c.state = file
	}
	held, err = filelock.Try(c.state, true)
	if !held || err != nil {
		return false, err
	}
	named, err := c.root.Lstat(stateName)
	if err == nil && named.Mode().IsRegular() && filelock.StillNamed(c.root, stateName, c.state) {
		return true, nil
	}
	closeErr := release(c.state)
	c.state = nil
	if err == nil && !named.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file; remove it", stateName)
	}
	return false, errors.Join(closeErr, ignoreMissing(err))
}

// begin counts the folder if no other process uses it, and reduces it to its maximum size.
func (c *Cache) begin() {
	err := c.locked(context.Background(), func(s *state) (err error) {
		file, err := c.root.OpenFile(aliveName, os.O_RDWR|os.O_CREATE|filelock.OpenNonblock, fileMode)
		if err != nil {
			return err
		}
		alone, err := filelock.Try(file, true)
		if err == nil && alone {
			*s, err = c.count()
		}
		if err == nil {
			_, err = filelock.Try(file, false)
		}
		if err != nil {
			return errors.Join(err, release(file))
		}
		c.alive = file
		if s.total > c.size {
			c.makeRoom(s, 0, true)
		}
		return nil
	})
	if err != nil {
		c.cannotWrite(err)
	}
}

// count counts the folder and removes the files of dead writers. The caller holds the lock.
func (c *Cache) count() (s state, err error) {
	s.counted = c.now().UnixNano()
	add := func(_ *os.Root, _ string, fi fs.FileInfo) bool {
		s.total += charge(fi.Size())
		return true
	}
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	c.sweep(nil)
	note(c.eachName(tempDir, func(name string) bool {
		if fi, ok := regular(c.root, path.Join(tempDir, name)); ok && isHex(name, tempHash) {
			s.total += charge(fi.Size())
		}
		return true
	}))
	note(c.eachName(".", func(group string) bool {
		if !isGroup(group) {
			return true
		}
		note(c.eachName(group, func(bucket string) bool {
			if isBucket(bucket) {
				note(c.eachPiece(path.Join(group, bucket), add))
			}
			return true
		}))
		return true
	}))
	return s, errors.Join(errs...)
}

// sweep removes the files of dead writers, whose locks nobody holds. The caller holds the folder's
// lock, without which no writer begins or ends.
func (c *Cache) sweep(s *state) {
	var dead []string
	_ = c.eachName(tempDir, func(name string) bool {
		if isHex(name, tempHash) {
			dead = append(dead, path.Join(tempDir, name))
		}
		return len(dead) < 1024
	})
	for _, name := range dead {
		fi, ok := regular(c.root, name)
		if !ok {
			continue
		}
		file, err := c.root.OpenFile(name, os.O_RDWR|filelock.OpenNonblock, 0)
		if err != nil {
			continue
		}
		held, err := filelock.Try(file, true)
		_ = release(file)
		if err == nil && held && c.root.Remove(name) == nil && s != nil {
			s.total -= charge(fi.Size())
		}
	}
}

// release unlocks a file before it closes it: a forked child holds a copy of the descriptor until
// its exec.
func release(file *os.File) error {
	if file == nil {
		return nil
	}
	err := filelock.Unlock(file)
	return errors.Join(err, file.Close())
}
