package source_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardtool/shardtool/writer/source"
)

func link(t *testing.T, target, dir, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// TestLinks: a link is followed to a file inside its source; any other is an error that names it.
func TestLinks(t *testing.T) {
	outside := tree(t, "secret.txt")
	dir := tree(t, "real.txt", "sub/deep/other.txt", "sub/side.txt")
	link(t, "real.txt", dir, "same.txt")
	link(t, "sub/deep/other.txt", dir, "down.txt")
	link(t, "../../real.txt", dir, "sub/deep/up.txt")
	link(t, "../side.txt", dir, "sub/deep/near.txt")
	link(t, "same.txt", dir, "twice.txt")
	src := open(t, source.FilesOptions{}, dir)
	set, _ := pack(t, src, packOptions())
	sameFiles(t, set, dir) // WalkDir and ReadFile follow links to files, too
	if len(set.Samples) != 8 {
		t.Fatal(set.Keys())
	}

	for name, target := range map[string]string{
		"absolute": filepath.Join(outside, "secret.txt"), "climbing": "../" + filepath.Base(outside) + "/secret.txt", "dangling": "nowhere.txt",
		"loop": "loop.txt", "folder": "sub", "inside by the absolute path": filepath.Join(dir, "real.txt"), "out and back": "../" + filepath.Base(dir) + "/a.txt",
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, "a.txt", "sub/b.txt")
			link(t, target, dir, name+".txt")
			src := open(t, source.FilesOptions{}, dir)
			se := failure(t, src, name+".txt", "link")
			if se.Key != name || !strings.Contains(se.Error(), "exclude") {
				t.Fatal(se)
			}
			skips(t, src, []string{"a", "sub/b"}, name)
			set, _ := pack(t, open(t, source.FilesOptions{Exclude: []string{name + ".txt"}}, dir), packOptions())
			if len(set.Samples) != 2 {
				t.Fatal(set.Keys())
			}
		})
	}
	// A bad file fails its sample and no other.
	dir = tree(t, "a.txt", "b.txt")
	link(t, "nowhere", dir, "a.json")
	skips(t, open(t, source.FilesOptions{}, dir), []string{"b"}, "a")
}

// TestSourceThroughLink: the folder itself may be a link.
func TestSourceThroughLink(t *testing.T) {
	dir := tree(t, "a.txt")
	link(t, dir, t.TempDir(), "l")
	to := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, to); err != nil {
		t.Fatal(err)
	}
	set, _ := pack(t, open(t, source.FilesOptions{}, to), packOptions())
	expect(t, set, "a txt=<a.txt>")
}

// TestNoRegularFile: opening a pipe would wait for a writer; it is never opened.
func TestNoRegularFile(t *testing.T) {
	dir := tree(t, "a.txt")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.txt"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link(t, "pipe.txt", dir, "to-pipe.txt")
	inTime(t, func() {
		src := open(t, source.FilesOptions{}, dir)
		fails(t, src, "pipe.txt", "not a regular file")
		skips(t, src, []string{"a"}, "pipe", "sock", "to-pipe")
	})
}

// TestBecomesPipe: the file is replaced by a pipe after it was listed, with and without a writer at
// its other end.
func TestBecomesPipe(t *testing.T) {
	for _, size := range []int{100, 17 << 20} {
		for _, writers := range []bool{false, true} {
			dir := t.TempDir()
			put(t, dir, "a.txt", strings.Repeat("x", size))
			path := filepath.Join(dir, "a.txt")
			src := open(t, source.FilesOptions{}, dir)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(path, 0o644); err != nil {
				t.Fatal(err)
			}
			if writers {
				other, err := os.OpenFile(path, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				if _, err := other.WriteString("mail"); err != nil {
					t.Fatal(err)
				}
				defer func() { // the bytes in a pipe are for another reader
					got := make([]byte, 5)
					_ = other.SetReadDeadline(time.Now().Add(5 * time.Minute))
					if n, err := other.Read(got); string(got[:n]) != "mail" {
						t.Errorf("%q is left in the pipe: %v", got[:n], err)
					}
				}()
			}
			inTime(t, func() { fails(t, src, "a.txt", "changed") })
		}
	}
}

// inTime fails the test when f takes longer than any honest reason explains.
func inTime(t *testing.T, f func()) {
	t.Helper()
	done := time.AfterFunc(5*time.Minute, func() { panic("blocked") })
	defer done.Stop()
	f()
}

const nobodyEnv = "SHARDTOOL_SOURCE_NOBODY"

// asNobody runs the calling test once more as a user whom permissions bind, and reports whether
// this is that process.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Getenv(nobodyEnv) != "" || os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "nobody-*") // below folders that all may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(exe)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/test", program, 0o755), os.Mkdir(dir+"/tmp", 0o755), os.Chown(dir+"/tmp", nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(dir+"/test", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), nobodyEnv+"=1", "TMPDIR="+dir+"/tmp", "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestUnreadable: a file that may not be read is a sample that fails; a folder that may not be
// listed hides how many there are, and ends the listing.
func TestUnreadable(t *testing.T) {
	if !asNobody(t) {
		return
	}
	dir := tree(t, "a.txt", "locked.txt", "sub/b.txt")
	if err := os.Chmod(dir+"/locked.txt", 0); err != nil {
		t.Fatal(err)
	}
	src := open(t, source.FilesOptions{}, dir)
	if se := failure(t, src, "locked.txt", "permission denied"); !errors.Is(se, fs.ErrPermission) {
		t.Fatal(se)
	}
	skips(t, src, []string{"a", "sub/b"}, "locked")
	// A folder that is locked after it was listed: its files fail one by one.
	src = open(t, source.FilesOptions{Exclude: []string{"locked.txt"}}, dir)
	if err := os.Chmod(dir+"/sub", 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir+"/sub", 0o755) }()
	fails(t, src, "sub/b.txt", "permission denied")
	skips(t, src, []string{"a"}, "sub/b")
	if _, err := source.NewFiles(t.Context(), []string{dir}, source.FilesOptions{}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "sub") {
		t.Fatal(err)
	}
	if _, err := source.NewFiles(t.Context(), []string{dir + "/sub"}, source.FilesOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/sub", 0o444); err != nil { // names can be listed, nothing below can be looked at
		t.Fatal(err)
	}
	if _, err := source.NewFiles(t.Context(), []string{dir}, source.FilesOptions{}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "sub") {
		t.Fatal(err)
	}
}
