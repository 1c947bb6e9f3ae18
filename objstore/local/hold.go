package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// holdName is the file that writers of a data set lock shared and a prune locks exclusively. It is
// separate from the lock of single commits, which is held for two syncs; this one is held for an
// entire pack.
const holdName = ".shardtool.users"

// maxHolders bounds how much of the file is read. It names the holders, and the first of them
// empties it.
const maxHolders = 64 << 10

// maxRemoved bounds how many times Share finds the directory removed by other holders. Below /proc,
// for example, making it always fails in the same way.
const maxRemoved = 20

// share implements objstore.Traits.Share. It makes the directory, and removes it again if it is
// still empty.
func (s *store) share(ctx context.Context, who string) (release func(), err error) {
	_, missing := os.Stat(s.dir)
	var h *hold
	removed := 0
	err = filelock.Poll(ctx, firstPause, longestPause, func() (bool, error) {
		if h, err = s.tryShare(who); errors.Is(err, fs.ErrNotExist) && removed < maxRemoved {
			err = nil // another holder made the directory and removed it, or it cannot be made
			removed++
		}
		return h != nil, err
	})
	if err != nil {
		return nil, s.fail("lock", "", err)
	}
	return sync.OnceFunc(func() { h.release(); s.unmake(missing) }), nil
}

// tryShare returns nil while another process holds the lock exclusively.
func (s *store) tryShare(who string) (*hold, error) {
	root, err := s.makeDirs(".")
	if err != nil {
		return nil, writeError(err)
	}
	h := &hold{root: root}
	held, err := h.share(who)
	if err == nil && held {
		return h, nil
	}
	h.close()
	root.Close()
	return nil, err
}

// unmake removes the directory if it was missing before and is empty.
func (s *store) unmake(missing error) {
	if errors.Is(missing, fs.ErrNotExist) {
		_ = os.Remove(s.dir)
	}
}

// exclude implements objstore.Traits.Exclude. It does not make the directory.
func (s *store) exclude(ctx context.Context, who string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, s.fail("lock", "", err)
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, s.fail("lock", "", err)
	}
	h := &hold{root: root}
	held, err := h.take(true)
	if err == nil && held {
		h.sign(who, true)
		return sync.OnceFunc(h.release), nil
	}
	if err == nil {
		err = fmt.Errorf("%w: %s; wait until they have ended, then run again", objstore.ErrBusy, h.holders())
	}
	h.close()
	root.Close()
	return nil, s.fail("lock", "", err)
}

// hold is one open descriptor of the lock file, and the lock on it.
type hold struct {
	root *os.Root
	file *os.File
}

// take opens the file and locks it. It repeats both steps if another holder removed the file in
// between.
func (h *hold) take(alone bool) (held bool, err error) {
	for {
		if h.file, err = openLock(h.root, holdName); err != nil {
			return false, writeError(err)
		}
		held, err = filelock.Try(h.file, alone)
		if err != nil || !held || filelock.StillNamed(h.root, holdName, h.file) {
			return held, noLocks(err)
		}
		h.close()
	}
}

// share takes the shared lock. A process that finds no other holder empties the file, whose names
// are left by killed processes.
func (h *hold) share(who string) (held bool, err error) {
	alone, err := h.take(true)
	if err != nil {
		return false, err
	}
	if !alone {
		h.close()
		if held, err = h.take(false); held {
			h.sign(who, false)
		}
		return held, err
	}
	h.sign(who, true)
	// The conversion is not atomic: a prune may take the lock in between, and then this process
	// waits.
	return filelock.Try(h.file, false)
}

// sign records the holder in the file. Only the text of an error depends on it, so failures are
// ignored: the file may belong to another user.
func (h *hold) sign(who string, first bool) {
	if first {
		_ = h.file.Truncate(0)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	line := fmt.Appendf(nil, "%s, process %d on %s since %s\n", strings.ReplaceAll(who, "\n", " "), os.Getpid(), host,
		time.Now().UTC().Format(time.RFC3339))
	if end, err := h.file.Seek(0, io.SeekEnd); err == nil && end < maxHolders {
		_, _ = h.file.Write(line)
	}
}

// holders returns the recorded holders, the latest last.
func (h *hold) holders() string {
	const most = 5
	text, err := io.ReadAll(io.LimitReader(h.file, maxHolders))
	lines := bytes.Split(bytes.TrimSpace(bytes.ToValidUTF8(text, []byte("?"))), []byte("\n"))
	if err != nil || len(lines[0]) == 0 {
		return "by a program that did not leave its name"
	}
	var b strings.Builder
	if n := len(lines) - most; n > 0 {
		fmt.Fprintf(&b, "%d others; ", n)
		lines = lines[n:]
	}
	b.Write(bytes.Join(lines, []byte("; ")))
	return b.String()
}

// release removes the file if nobody else holds it, so that a data set at rest has none. A process
// that has opened it meanwhile sees that it is no longer named, and opens the next one.
func (h *hold) release() {
	if alone, err := filelock.Try(h.file, true); err == nil && alone && filelock.StillNamed(h.root, holdName, h.file) {
		_ = h.root.Remove(holdName)
	}
	_ = filelock.Unlock(h.file)
	h.close()
	h.root.Close()
}

func (h *hold) close() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}
