package local

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
)

const againEnv = "SHARDTOOL_LOCAL_AGAIN"

// again runs the calling test again in a separate process and reports whether this is that process.
// It skips the test, with the reason, if the kernel refuses the attributes.
func again(t *testing.T, attributes *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(againEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), againEnv+"=1", "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = attributes
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("no mount namespace to be had here: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// mounts gives the process its own mounts, which end with it. A user namespace permits that to
// users other than root.
func mounts() *syscall.SysProcAttr {
	if os.Geteuid() == 0 {
		return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestNoSpace fills a file system of one MiB.
func TestNoSpace(t *testing.T) {
	if !again(t, mounts()) {
		return
	}
	dir := mountTmpfs(t, "size=1m")
	store := newStore(t, dir)
	put(t, store, "d/x", "old", objstore.Condition{})
	upload, err := store.Create(t.Context(), "d/x", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = upload.Write(make([]byte, 100_000))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	wantText(t, err, "put d/x in", "no space left", "free some space")
	if _, again := upload.Write(nil); !errors.Is(again, syscall.ENOSPC) {
		t.Fatalf("the failure did not stick: %v", again)
	}
	if _, err := upload.Commit(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Commit after a failed Write: %v", err)
	}
	if found := temps(t, dir); len(found) > 0 {
		t.Fatal(found)
	}
	expect(t, store, "d/x", "old")
	put(t, store, "d/x", strings.Repeat("n", 500_000), objstore.Condition{})
}

// TestNoInodes leaves an inode for a temporary file but none for the lock, so that Commit fails.
func TestNoInodes(t *testing.T) {
	if !again(t, mounts()) {
		return
	}
	// One is for the mount's root directory, one for the temporary file.
	dir := mountTmpfs(t, "size=1m,nr_inodes=2")
	store := newStore(t, dir)
	upload, err := store.Create(t.Context(), "x", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = upload.Commit(t.Context())
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Fatal(entries, err)
	}
}

// TestReadOnly reads and tries to write on a file system that is mounted read-only, also for root.
func TestReadOnly(t *testing.T) {
	if !again(t, mounts()) {
		return
	}
	dir := mountTmpfs(t, "size=1m")
	store := newStore(t, dir)
	put(t, store, "a/x", "bytes", objstore.Condition{})
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	expect(t, store, "a/x", "bytes")
	for _, name := range []string{"x", "a/y", "b/c/d"} {
		_, err := store.Create(t.Context(), name, objstore.Condition{})
		if !errors.Is(err, objstore.ErrReadOnly) || !errors.Is(err, syscall.EROFS) {
			t.Fatal(err)
		}
		wantText(t, err, "put "+name+" in", "read-only file system", "mount it read-write or write elsewhere")
	}
	if err := store.Delete(t.Context(), "a/x"); !errors.Is(err, objstore.ErrReadOnly) {
		t.Fatal(err)
	}
	below := newStore(t, filepath.Join(dir, "not", "there"))
	if _, err := below.Create(t.Context(), "x", objstore.Condition{}); !errors.Is(err, objstore.ErrReadOnly) {
		t.Fatal(err)
	}
}

// TestImmutable makes the object to be replaced immutable, so that the rename fails, also for root.
func TestImmutable(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "x", "old", objstore.Condition{})
	if err := setImmutable(filepath.Join(dir, "x"), true); err != nil {
		t.Skipf("no immutable files here: %v", err)
	}
	t.Cleanup(func() {
		if err := setImmutable(filepath.Join(dir, "x"), false); err != nil {
			t.Error(err)
		}
	})
	_, err := objstore.Put(t.Context(), store, "x", []byte("new"), objstore.Condition{})
	if !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	wantText(t, err, "put x in", "check the owner and the mode")
	if found := temps(t, dir); len(found) > 0 {
		t.Fatal(found)
	}
	expect(t, store, "x", "old")
}

func setImmutable(path string, on bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= unix.STATX_ATTR_IMMUTABLE // the same bit in both interfaces
	if on {
		flags |= unix.STATX_ATTR_IMMUTABLE
	}
	return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// TestFileSizeLimit exceeds ulimit -f: a write succeeds in part and then fails.
func TestFileSizeLimit(t *testing.T) {
	if !again(t, nil) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := unix.Rlimit{Cur: 100_000, Max: 100_000}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store := newStore(t, dir)
	upload, err := store.Create(t.Context(), "x", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := upload.Write(make([]byte, 150_000))
	if n != 100_000 || !errors.Is(err, syscall.EFBIG) {
		t.Fatal(n, err)
	}
	wantText(t, err, "put x in", "ulimit -f")
	if err := upload.Abort(); err != nil {
		t.Fatal(err)
	}
	if found := temps(t, dir); len(found) > 0 {
		t.Fatal(found)
	}
}

// TestReadAtIsOneCall counts the read system calls of this process.
func TestReadAtIsOneCall(t *testing.T) {
	store := newStore(t, t.TempDir())
	put(t, store, "x", strings.Repeat("x", 4<<20), objstore.Condition{})
	object := openObject(t, store, "x")
	const reads = 200
	p := make([]byte, 1<<20)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := readCalls(t)
	for i := range reads {
		if err := object.ReadAt(t.Context(), p, int64(i)*1000); err != nil {
			t.Fatal(err)
		}
	}
	// Reading the counter twice makes system calls too.
	if calls := readCalls(t) - before; calls < reads || calls > reads+8 {
		t.Fatalf("%d calls for %d reads", calls, reads)
	}
}

func readCalls(t *testing.T) (calls int) {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "syscr: "); ok {
			for _, digit := range value {
				calls = 10*calls + int(digit-'0')
			}
		}
	}
	return calls
}
