package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// openTerminal opens a terminal of 100 columns, and returns both of its ends.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { master.Close() })
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
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal runs a command whose stderr is a terminal, and returns what was written to both.
func onTerminal(t *testing.T, cmd *exec.Cmd) (stdout, screen string) {
	t.Helper()
	master, slave := openTerminal(t)
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
	bar("stage", exec.Command("shardtool", "stage", filepath.Join(dir, "out"), "--cache", filepath.Join(dir, "cache"), "--cache-size", "1GiB", "--workers", "1"), "stage ", " / 200 samples")
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
	none("cat --quiet", exec.Command("shardtool", "cat", "--quiet", "--json", filepath.Join(dir, "out")), "")
	none("TERM=dumb", dumb, "found 200 samples, 19 MiB of files\r\n")
}

// shownLines returns the lines that a terminal of 100 columns shows after a text.
func shownLines(t *testing.T, text string) []string {
	t.Helper()
	const columns = 100
	show := [][]rune{nil}
	row, col := 0, 0
	down := func() {
		if row++; row == len(show) {
			show = append(show, nil)
		}
	}
	for rest := text; rest != ""; {
		c, n := utf8.DecodeRuneInString(rest)
		var up int
		switch {
		case strings.HasPrefix(rest, "\x1b[J"):
			show, n = show[:row+1], 3
			show[row] = show[row][:min(col, len(show[row]))]
		case c == 0x1b:
			if _, err := fmt.Sscanf(rest, "\x1b[%dA", &up); err != nil {
				t.Fatalf("an escape sequence that bars do not have: %.20q", rest)
			}
			row, n = max(row-up, 0), strings.IndexByte(rest, 'A')+1
		case c == '\r':
			col = 0
		case c == '\n':
			down()
		default:
			if col == columns {
				down()
				col = 0
			}
			for len(show[row]) <= col {
				show[row] = append(show[row], ' ')
			}
			show[row][col] = c
			col++
		}
		rest = rest[n:]
	}
	var out []string
	for _, line := range show {
		if s := strings.TrimRight(string(line), " "); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// TestInterruptOnTerminal types ^C while there is a bar: neither the bar nor the ^C that the
// terminal echoes remains.
func TestInterruptOnTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 200, 10_000); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("shardtool", "pack", src, out, "--quiet").CombinedOutput(); err != nil {
		t.Fatal(err, string(text))
	}
	for _, c := range []struct {
		args   []string
		wanted string // of the bar
		code   int
		stays  string // what is on the screen at the end
	}{
		{[]string{"cat", out, "--shuffle", "--epochs", "100000000", "--global-batch", "20"}, " / 20,000,000,000 samples ", exitStopped, "shardtool: stopped by a signal (interrupt)"},
		{[]string{"bench", out, "--shuffle", "--duration", "10m", "--ranks", "2"}, "measuring ", exitStopped, "2 ranks, 10m0s …|shardtool: stopped by a signal (interrupt)"},
	} {
		master, slave := openTerminal(t)
		cmd := exec.Command("shardtool", c.args...)
		cmd.Stdin, cmd.Stderr = slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		var screen []byte
		buf := make([]byte, 4096)
		typed := false
		for {
			n, err := master.Read(buf)
			if err != nil { // EIO: the last writer is gone
				break
			}
			screen = append(screen, buf[:n]...)
			if at := bytes.Index(screen, []byte(c.wanted)); !typed && at >= 0 {
				typed = true
				if _, err := master.Write([]byte{3}); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if !typed || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%v: exit code %d, want %d; the bar was seen: %v; %q", c.args, cmd.ProcessState.ExitCode(), c.code, typed, screen)
		}
		if got := strings.Join(shownLines(t, string(screen)), "|"); got != c.stays {
			t.Errorf("%v: on the screen: %q, want %q; written: %q", c.args, got, c.stays, screen)
		}
	}
}

// TestTarOnTerminal: a terminal gets text, not archives.
func TestTarOnTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 2, 10); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "a.txt"), []byte("text\x1b[2J"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("shardtool", "pack", src, out, "--quiet").CombinedOutput(); err != nil {
		t.Fatal(err, string(text))
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"cat", out}, exitUsage, "shardtool: a tar is not for a terminal: add `| tar -t`"},
		{[]string{"cat", out, "--shuffle"}, exitUsage, "shardtool: a tar is not for a terminal: add `| tar -t`"},
		{[]string{"get", out, "a"}, exitUsage, "shardtool: a tar is not for a terminal: add `| tar -t`"},
		{[]string{"get", out, "--number", "0"}, exitUsage, "shardtool: a tar is not for a terminal: add `| tar -t`"},
		{[]string{"get", out, "a.txt"}, 0, `text\u001b[2J`},
		{[]string{"cat", out, "--json", "--limit", "1"}, 0, `"key":"000000"`},
	} {
		for _, term := range []string{"xterm", "dumb"} {
			master, slave := openTerminal(t)
			cmd := exec.Command("shardtool", c.args...)
			cmd.Env = append(os.Environ(), "TERM="+term)
			cmd.Stdout, cmd.Stderr = slave, slave
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			slave.Close()
			screen, _ := io.ReadAll(master)
			_ = cmd.Wait()
			if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(screen), c.want) || bytes.ContainsRune(screen, 0x1b) {
				t.Errorf("%v: exit code %d, want %d; on the screen: %q, want %q", c.args, cmd.ProcessState.ExitCode(), c.code, screen, c.want)
			}
		}
	}
}

// TestNamesOnTerminal: names from data cannot act on the terminal, wherever they appear; programs
// get them exactly.
func TestNamesOnTerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("texts of many commands: make test runs it without the race detector")
	}
	t.Parallel()
	dir := t.TempDir()
	key := "k\x1b]0;title\x07\u009b2J\u202e\nnext"
	src, out := filepath.Join(dir, "src\x1b[31m"), filepath.Join(dir, "out\x1b[31m")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"txt", "f\x1b[1m\u200f"} {
		if err := os.WriteFile(filepath.Join(src, key+"."+field), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.Command("shardtool", "pack", src, out, "--quiet").CombinedOutput(); err != nil {
		t.Fatal(err, string(text))
	}
	for _, args := range [][]string{
		{"ls", out}, {"ls", "--long", out}, {"ls", "--json", out}, {"cat", "--json", out}, {"order", "--keys", out},
		{"inspect", out}, {"inspect", out, "--blocks"}, {"inspect", "--json", out}, {"inspect", out, "--shard", key}, {"verify", out}, {"doctor", out}, {"doctor", src},
		{"get", out, key + "x"}, {"get", out, key + ".none"}, {"get", out, "--number", "9"}, {"pack", src, out}, {"pack", src + "none", out}, {"ls", out + "none"},
		{"cat", "--json", out, "--checkpoint-in", key}, {key}, {"ls", "--" + key}, {"ls", out, key}, {"cat", out, "--tail", key}, {"simulate", out}, {"simulate", out, "--label", key},
		{"export", out, "--out", src}, {"export", out, "--as", "dali", "--out", filepath.Join(dir, "tars\x1b[31m")}, {"index", src}, {"prune", out}, {"missing", out, "--parts", "2"},
		{"pack", src, filepath.Join(dir, "fresh\x1b[31m")}, {"bench", out, "--batches", "2", "--global-batch", "1"},
	} {
		master, slave := openTerminal(t)
		cmd := exec.Command("shardtool", args...)
		cmd.Env = append(os.Environ(), "TERM=dumb") // no bars
		cmd.Stdout, cmd.Stderr = slave, slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		screen, _ := io.ReadAll(master)
		_ = cmd.Wait()
		text := string(screen)
		if len(text) == 0 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\x07\u009b\u202e\u200f") || strings.Contains(text, "\nnext") {
			t.Errorf("%q: on the screen: %q", args, text)
		}
		// Errors are escaped in files too, because logs are read on terminals.
		cmd = exec.Command("shardtool", args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if s := stderr.String(); strings.ContainsAny(s, "\x1b\x07\u009b\u202e\u200f") || strings.Contains(s, "\nnext") {
			t.Errorf("%q: stderr: %q", args, s)
		}
		if args[0] == "ls" && len(args) == 2 && args[1] == out && stdout.String() != key+"\n" {
			t.Errorf("ls to a pipe: %q, want %q", stdout.String(), key+"\n")
		}
	}
}
