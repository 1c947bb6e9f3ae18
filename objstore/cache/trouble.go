package cache

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"
)

// Each warning is logged once.
const (
	warnWrite = iota
	warnRead
	warnDamage
	warnings
)

// cannotWrite counts a failed write, logs the first, and stops writing to the folder for a while.
func (c *Cache) cannotWrite(err error) {
	if c.closed.Load() {
		return
	}
	c.counts.failures.Add(1)
	c.pause.begin(c.now())
	c.warned[warnWrite].Do(func() {
		c.log.Warn("cache: nothing new can be kept for now; reads continue", slog.String("folder", c.dir),
			slog.Any("error", err), slog.String("advice", advice(err)))
	})
}

// cannotRead counts a failed read and logs the first.
func (c *Cache) cannotRead(path string, err error) {
	if c.closed.Load() {
		return
	}
	c.counts.failures.Add(1)
	c.warned[warnRead].Do(func() {
		c.log.Warn("cache: a file cannot be read; reads continue from the source", slog.String("folder", c.dir),
			slog.String("file", path), slog.Any("error", err), slog.String("advice", advice(err)))
	})
}

// foundDamage counts a file that is damaged or foreign and logs the first.
func (c *Cache) foundDamage(path string, err error) {
	c.counts.damaged.Add(1)
	c.warned[warnDamage].Do(func() {
		c.log.Warn("cache: a file is damaged or foreign and is read again from the source",
			slog.String("folder", c.dir),
			slog.String("file", path), slog.Any("error", err))
	})
}

func advice(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, give a smaller size, or give a folder on another disk"
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "give a folder that this user may write to"
	case errors.Is(err, errors.ErrUnsupported):
		return "give a folder on a local disk, whose file system has locks"
	case errors.Is(err, errBusy):
		return "look for a stopped process that has " + stateName + " open, or for a disk that blocks"
	}
	return "give another folder, or remove this one: it holds nothing but copies"
}

// pause is the time without writes after a failure. It doubles with every failure that follows
// another.
type pause struct {
	until atomic.Int64 // nanoseconds since 1970
	last  atomic.Int64 // the length of the last one
}

const (
	shortestPause = 5 * time.Second
	longestPause  = 5 * time.Minute
)

func (p *pause) begin(now time.Time) {
	length := min(max(2*p.last.Load(), int64(shortestPause)), int64(longestPause))
	// Concurrent failures count as one.
	if now.UnixNano() < p.until.Load() {
		return
	}
	p.last.Store(length)
	p.until.Store(now.UnixNano() + length)
}

func (p *pause) over(now time.Time) bool { return now.UnixNano() >= p.until.Load() }

func (p *pause) success() {
	if p.last.Load() != 0 {
		p.last.Store(0)
	}
}
