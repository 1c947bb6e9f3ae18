package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs a command whose stderr is a terminal of 100 columns, and returns what was written to both.
func onTerminal(t *testing.T, cmd *exec.Cmd) (stdout, screen string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, slave
	cmd.Env = append(os.Environ(), cmd.Env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	text := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(master) // ends with EIO when the last writer is gone
		text <- b
	}()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v", cmd.Args, err)
	}
	return out.String(), string(<-text)
}

func TestProgressOnTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := randomFiles(src, 200, 100_000); err != nil {
		t.Fatal(err)
	}
	pack := func(out string, more ...string) *exec.Cmd {
		return exec.Command("shardtool", append([]string{"pack", src, filepath.Join(dir, out)}, more...)...)
	}
	bar := func(what string, cmd *exec.Cmd, want ...string) {
		stdout, screen := onTerminal(t, cmd)
		if strings.ContainsRune(stdout, '\x1b') || !strings.Contains(stdout, "200 samples") {
			t.Errorf("%s: stdout: %q", what, stdout)
		}
		for _, w := range want {
			if !strings.Contains(screen, w) {
				t.Errorf("%s: no %q on the screen: %q", what, w, screen)
			}
		}
		if !strings.HasSuffix(screen, "\x1b[J") {
			t.Errorf("%s: the bar stays: %q", what, screen)
		}
	}
	bar("pack", pack("out"), "listing ", "found 200 samples", "packing ", "/ 19.1 MiB", " %, ", "1 shard")
	bar("verify", exec.Command("shardtool", "verify", "--deep", filepath.Join(dir, "out")), "verifying ", "1 of 1 shards, 0 faults")

	none := func(what string, cmd *exec.Cmd, want string) {
		if _, screen := onTerminal(t, cmd); screen != want {
			t.Errorf("%s: on the screen: %q, want %q", what, screen, want)
		}
	}
	none("pack --quiet", pack("quiet", "--quiet"), "")
	none("verify --quiet", exec.Command("shardtool", "verify", "--deep", "--quiet", filepath.Join(dir, "out")), "")
	dumb := pack("dumb")
	dumb.Env = []string{"TERM=dumb"}
	none("TERM=dumb", dumb, "found 200 samples, 19 MiB of files\r\n")
}
