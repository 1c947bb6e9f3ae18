package writer_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

const mountEnv = "SHARDTOOL_WRITER_MOUNT"

// withMounts runs the calling test once more, in a process whose mounts end with it, and reports
// whether this is that process. If the kernel refuses, the test is skipped with the reason.
func withMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(mountEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mountEnv+"=1", "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
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

func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestNoSpace fills the target's file system at every few KiB of the pack: the error says so,
// nothing is published, nothing but whole objects is there, and with more room the same pack goes
// on.
func TestNoSpace(t *testing.T) {
	if !withMounts(t) {
		return
	}
	opt := small("d")
	opt.Plain, opt.ShardSize = true, 32<<10
	clean := mem.New()
	mustPack(t, clean, resumeSource(), opt)
	want := objects(t, clean)
	total := 0
	for _, data := range want {
		total += (len(data) + 4095) &^ 4095
	}
	dir := tmpfs(t, "size=2m")
	st := localStore(t, dir)
	ballast := dir + "/ballast"
	failed, adopted := 0, int64(0)
	step := 16 << 10
	if testing.Short() {
		step = 64 << 10 // the same goroutines
	}
	for room := 0; room < total+256<<10; room += step {
		for name := range objects(t, st) {
			_ = st.Delete(t.Context(), name)
		}
		fill(t, dir, ballast, room)
		_, err := writer.Pack(t.Context(), st, resumeSource(), opt)
		if err == nil {
			break
		}
		failed++
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			if e.Name() != ".shardtool.lock" && len(want[e.Name()]) == 0 {
				t.Fatalf("%s was left", e.Name())
			}
		}
		if digestOf(t, st) != "" {
			t.Fatal("published")
		}
		again := opt
		again.Resume = true
		res := mustPack(t, st, resumeSource(), again)
		adopted += res.Adopted
		sameObjects(t, "resumed", objects(t, st), want)
	}
	if failed < 10 || adopted == 0 {
		t.Fatalf("%d packs ran out of space, %d samples were taken over", failed, adopted)
	}
}

// fill leaves about so much room on the file system.
func fill(t *testing.T, dir, ballast string, room int) {
	t.Helper()
	_ = os.Remove(ballast)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ballast, make([]byte, int(st.Bavail)*int(st.Bsize)-room), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNoSpaceForSorting: the temporary folder is full.
func TestNoSpaceForSorting(t *testing.T) {
	if !withMounts(t) {
		return
	}
	st := mem.New()
	opt := writer.Options{Plain: true, Memory: 1, TempDir: tmpfs(t, "size=64k")}
	_, err := writer.Pack(t.Context(), st, &synth{items: makeItems(46_000, 1, 1)}, opt)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "sorting") || digestOf(t, st) != "" {
		t.Fatal(err)
	}
}

// TestReadOnlyTarget says that it is.
func TestReadOnlyTarget(t *testing.T) {
	if !withMounts(t) {
		return
	}
	dir := tmpfs(t, "ro")
	if _, err := writer.Pack(t.Context(), localStore(t, dir), resumeSource(), small("d")); !errors.Is(err, objstore.ErrReadOnly) {
		t.Fatal(err)
	}
}

// TestLayerNoSpace: a layer whose rows do not fit into the folder for temporary files is not
// published, and the error says what is full.
func TestLayerNoSpace(t *testing.T) {
	if !withMounts(t) {
		return
	}
	base, keys := baseSet(t, 40)
	rows := captions(shuffled(keys), "a")
	for i := range rows.rows {
		rows.rows[i].Fields[0].Data = make([]byte, 64<<10)
	}
	st := mem.New()
	opt := writer.LayerOptions{Pack: writer.Options{TempDir: tmpfs(t, "size=1m")}}
	if _, err := writer.AddLayer(t.Context(), st, base, rows, opt); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "temporary file") {
		t.Error(err)
	}
	if len(objects(t, st)) > 0 {
		t.Error("it wrote objects")
	}
	rows.at, opt.Pack.TempDir = 0, tmpfs(t, "size=32m")
	if _, err := writer.AddLayer(t.Context(), st, base, rows, opt); err != nil {
		t.Error(err)
	}
}
