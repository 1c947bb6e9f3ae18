package cache

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const againEnv = "SHARDTOOL_CACHE_AGAIN"

// again runs the calling test again in a process with its own mounts, which end with it, and
// reports whether this is that process. It skips the test if the kernel refuses.
func again(t *testing.T) bool {
	t.Helper()
	if os.Getenv(againEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), againEnv+"=1", "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("no mount namespace to be had here: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
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

// TestNoSpace fills the disk: there is one warning, the bytes are right, no partial file is left,
// and ranges are cached again once there is space.
func TestNoSpace(t *testing.T) {
	if !again(t) {
		return
	}
	dir := mountTmpfs(t, "size=1m")
	var log lockedBuffer
	source, data := dataset(t, "far:", 1, 1<<20)
	c := newCacheWith(t, dir, Options{Size: 1 << 30, Log: slog.New(slog.NewTextHandler(&log, nil))})
	object := open(t, c.Wrap(source), "shard", "hash")
	ballast := filepath.Join(dir, tempDir, "ballast")
	if err := os.MkdirAll(filepath.Dir(ballast), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ballast, make([]byte, 500_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for off := 0; off < len(data); off += 64 << 10 {
			c.pause.until.Store(0)
			expect(t, object, off, 64<<10, data)
		}
	}
	s := c.Stats()
	if s.Kept == 0 || s.Kept == 16 || s.Errors == 0 || s.Hits != s.Kept || s.Used != onDisk(t, dir)-charge(500_000) {
		t.Fatalf("%d there: %+v", onDisk(t, dir), s)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "free some space") {
		t.Fatal(log.String())
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.pause.until.Store(0)
	for off := 0; off < len(data)*3/4; off += 64 << 10 {
		expect(t, object, off, 64<<10, data)
	}
	if now := c.Stats(); now.Kept < 12 || now.Errors != s.Errors {
		t.Fatalf("%+v", now)
	}
}

// TestReadOnly opens a cache on a disk that is mounted read-only, also for root: cached ranges are
// used, none are added, and there is one warning. An empty cache acts like none.
func TestReadOnly(t *testing.T) {
	if !again(t) {
		return
	}
	dir := mountTmpfs(t, "size=1m")
	source, data := dataset(t, "far:", 1, 1000)
	first := newCache(t, filepath.Join(dir, "a"), 1<<20)
	expect(t, open(t, first.Wrap(source), "shard", "hash"), 0, 500, data)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"a", "none"} {
		var log lockedBuffer
		c := newCacheWith(t, filepath.Join(dir, folder), Options{Size: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
		object := open(t, c.Wrap(source), "shard", "hash")
		for range 3 {
			c.pause.until.Store(0)
			expect(t, object, 0, 500, data)
			expect(t, object, 500, 500, data)
		}
		if s := c.Stats(); s.Kept != 0 || folder == "a" && s.Hits != 3 {
			t.Fatalf("%s: %+v", folder, s)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "may write to") {
			t.Fatal(log.String())
		}
	}
}
