package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// The layout of the state file, of little-endian integers:
//
//	 0  magic and version, 8 bytes
//	 8  bytes in use, 8 bytes
//	16  zero, 12 bytes
//	28  CRC-32C of the 28 bytes above, 4 bytes
const (
	stateMagic = "stcstat\x01"
	stateSize  = 32

	// lockPatience is how long to wait for the record, which others hold for microseconds.
	// countPatience is how long New waits for another process that counts the folder.
	lockPatience  = 5 * time.Second
	countPatience = 10 * time.Second
)

func appendState(dst []byte, total int64) []byte {
	start := len(dst)
	dst = append(dst, stateMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(total))
	dst = append(dst, make([]byte, 12)...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readState reads the record. ok is false if it is incomplete or damaged.
func readState(file *os.File) (total int64, ok bool) {
	var buf [stateSize]byte
	if n, _ := file.ReadAt(buf[:], 0); n < stateSize || string(buf[:8]) != stateMagic {
		return 0, false
	}
	total = int64(binary.LittleEndian.Uint64(buf[8:]))
	return total, total >= 0 && crc32.Checksum(buf[:28], castagnoli) == binary.LittleEndian.Uint32(buf[28:])
}

var errBusy = errors.New("another process holds the lock of the folder's record and does not release it")

// account adds change to the bytes in use of all processes, and reports whether the folder is
// within the limit then. An increase that would exceed the limit is not made. An increase comes
// before the file grows, and a decrease after the file is gone, so that the death of a process can
// only make the record too large. The caller holds c.mu.
func (c *Cache) account(change int64) (fits bool, err error) {
	err = c.update(func(total int64, known bool) (int64, error) {
		if !known {
			var err error
			if total, err = c.count(); err != nil {
				return 0, err
			}
			change = max(change, 0) // a file that is gone was not counted
		}
		if fits = total+change <= c.size; fits || change < 0 {
			total = max(0, total+change)
		}
		return total, nil
	})
	return fits && err == nil, err
}

// update replaces the bytes in use, while no other process does. known is false if the record is
// damaged.
func (c *Cache) update(f func(total int64, known bool) (int64, error)) error {
	if c.closed.Load() {
		return fs.ErrClosed
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	file, err := filelock.Wait(ctx, c.root, stateName, fileMode, true)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errBusy
	case err != nil:
		return err
	}
	total, err := f(readState(file))
	if err == nil {
		c.counts.usedBytes.Store(total)
		_, err = file.WriteAt(appendState(nil, total), 0)
	}
	return errors.Join(err, filelock.Release(file))
}

// begin counts the folder if no other process uses it, and reduces it to its maximum size.
func (c *Cache) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, err := filelock.Open(c.root, aliveName, os.O_CREATE, fileMode, true)
	if err != nil {
		return err
	}
	if file != nil { // no other process
		err = c.update(func(int64, bool) (int64, error) { return c.count() })
		if err = errors.Join(err, filelock.Release(file)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), countPatience)
	defer cancel()
	if c.alive, err = filelock.Wait(ctx, c.root, aliveName, fileMode, false); err != nil {
		return err
	}
	_, err = c.makeRoom(0, true)
	c.victims = victims{} // which are in use
	return err
}

// count counts the folder, and removes the files of dead writers and empty directories. The caller
// holds the record's lock.
func (c *Cache) count() (total int64, err error) {
	c.sweep()
	temps, err := names(c.root, tempDir)
	if err != nil {
		return 0, err
	}
	for _, name := range temps {
		if fi, ok := regular(c.root, path.Join(tempDir, name)); ok && isHex(name, tempHash) {
			total += charge(fi.Size())
		}
	}
	groups, err := c.dataSets()
	if err != nil {
		return 0, err
	}
	for _, group := range groups {
		all, err := names(c.root, group)
		if err != nil {
			return 0, err
		}
		for _, bucket := range all {
			if !isBucket(bucket) {
				continue
			}
			dir := path.Join(group, bucket)
			found, err := c.pieces(dir)
			if err != nil {
				return 0, err
			}
			for _, fi := range found {
				total += charge(fi.Size())
			}
			if len(found) == 0 {
				_ = c.root.Remove(dir) // fails unless it is empty
			}
		}
	}
	return total, nil
}

// dataSets returns the directories of data sets.
func (c *Cache) dataSets() ([]string, error) {
	all, err := names(c.root, ".")
	return slices.DeleteFunc(all, func(name string) bool { return !isGroup(name) }), err
}

// sweep removes the files of dead writers, whose locks nobody holds, and returns what they counted.
func (c *Cache) sweep() (freed int64) {
	temps, _ := names(c.root, tempDir)
	for _, name := range temps {
		if !isHex(name, tempHash) {
			continue
		}
		name = path.Join(tempDir, name)
		if file, err := filelock.Open(c.root, name, 0, 0, true); err == nil && file != nil {
			freed += c.discard(name)
			_ = filelock.Release(file)
		}
	}
	return freed
}

// discard removes a file, never a directory, and returns what it counted.
func (c *Cache) discard(name string) int64 {
	fi, ok := regular(c.root, name)
	if !ok || c.root.Remove(name) != nil {
		return 0
	}
	return counted(name, fi)
}

// counted returns what a file counts. The name of a range has its length: if somebody changed the
// file since, counted returns the smaller value, so that the sum stays an upper bound.
func counted(name string, fi fs.FileInfo) int64 {
	_, length, _ := strings.Cut(path.Base(name), "-")
	_, length, _ = strings.Cut(length, "-")
	n, err := strconv.ParseUint(length, 16, 31)
	if err != nil { // a file in tmp
		return charge(fi.Size())
	}
	return min(charge(fi.Size()), charge(headerSize+int64(n)))
}
