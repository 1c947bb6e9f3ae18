package local

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
)

// mapping is the mapped bytes of a file.
type mapping struct {
	mu     sync.RWMutex // asking for the version, as goroutines do at each batch, excludes nobody else
	begun  bool         // Map was called
	fd     int          // open until refuse is set
	kind   int64        // of the file system
	refuse error        // why the file cannot be mapped at all
	mem    []byte
}

// settled is how long a file must not have changed: the kernel takes times from a clock that ticks
// a hundred times a second or more often. settledCoarse is that for file systems that store no
// fractions, and where nothing tells whether a program is in the middle of a write: a write sets the
// times when it begins, and may sleep before it has stored all bytes.
const (
	settled       = 50 * time.Millisecond
	settledCoarse = 2 * time.Second
)

// cachedStep is the distance of the bytes that Cached asks for. Each takes a third of a microsecond.
// The kernel reads files ahead in steps that are no smaller.
const cachedStep = 64 << 10

// Map implements objstore.Mapper. It supports the local file systems that state the time of every
// change at once; those of a network learn of changes later.
func (o *object) Map() ([]byte, objstore.Version, error) {
	m := &o.mapped
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.begun && m.refuse == nil {
		m.begun, m.refuse = true, m.begin(o)
	}
	if m.refuse != nil {
		return nil, objstore.Version{}, o.fail(m.refuse)
	}
	v, err := m.version()
	if err == nil {
		err = o.settled(v)
	}
	if err == nil && m.mem == nil {
		m.mem, err = unix.Mmap(m.fd, 0, int(o.info.Size), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, v, o.fail(err)
	}
	return m.mem, v, nil
}

// settled returns an error where a change could get the times that the file has now.
func (o *object) settled(v objstore.Version) error {
	wait := settled
	switch err := unwritten(o.mapped.fd); {
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w, maybe: a program has it open for writing", objstore.ErrChanged)
	case err != nil, v.Changed%int64(time.Second) == 0:
		wait = settledCoarse
	}
	if v.Size != o.info.Size || time.Since(time.Unix(0, v.Changed)) < wait {
		return fmt.Errorf("%w in place, or a moment ago", objstore.ErrChanged)
	}
	return nil
}

// unwritten returns EAGAIN while a program has a file open for writing or has mapped it so: the system
// grants no lease then. To others than the owner of the file it grants none at all, which is another
// error. A program that opens the file meanwhile waits for the end of the lease, and has a signal
// sent here, which does nothing.
func unwritten(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGURG))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return err
}

// begin prepares m for a file; the error is why that cannot be mapped.
func (m *mapping) begin(o *object) (err error) {
	if o.info.Size == 0 || o.info.Size > math.MaxInt {
		return fmt.Errorf("map %d bytes: %w", o.info.Size, errors.ErrUnsupported)
	}
	conn, err := o.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := conn.Control(func(fd uintptr) { m.fd = int(fd) }); err != nil {
		return err
	}
	var of unix.Statfs_t
	if err := unix.Fstatfs(m.fd, &of); err != nil {
		return err
	}
	switch m.kind = int64(of.Type); m.kind {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return nil
	}
	return fmt.Errorf("map a file of a file system of type %#x: %w", m.kind, errors.ErrUnsupported)
}

// version asks for the version that the file has now; m.mu is held, for reading at least. It
// allocates nothing.
func (m *mapping) version() (v objstore.Version, err error) {
	var st unix.Stat_t
	err = unix.Fstat(m.fd, &st)
	return objstore.Version{Inode: st.Ino, Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}, err
}

// Version implements objstore.Mapper.
func (o *object) Version() (v objstore.Version, err error) {
	m := &o.mapped
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err = m.refuse; err == nil && !m.begun {
		err = fmt.Errorf("the version of what was not mapped: %w", errors.ErrUnsupported)
	}
	if err == nil {
		v, err = m.version()
	}
	if err != nil {
		err = o.fail(err)
	}
	return v, err
}

// Cached implements objstore.Mapper. It reads a byte every cachedStep bytes, unless that would wait.
func (o *object) Cached(off int64, n int) bool {
	m := &o.mapped
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !m.begun || m.refuse != nil || n <= 0 {
		return false
	}
	to, last := [][]byte{make([]byte, 1)}, off+int64(n)-1
	for at := off; ; at = min(at+cachedStep, last) {
		n, err := unix.Preadv2(m.fd, to, at, unix.RWF_NOWAIT)
		if n != 1 && (m.kind != unix.TMPFS_MAGIC || err != unix.EOPNOTSUPP) {
			return false
		}
		if at == last {
			return true
		}
	}
}

// unmap ends the mapping; its bytes must not be used any more.
func (o *object) unmap() error {
	m := &o.mapped
	m.mu.Lock()
	defer m.mu.Unlock()
	mem := m.mem
	m.mem, m.refuse = nil, fs.ErrClosed
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}
