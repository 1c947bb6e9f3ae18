package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestPartsKilled stops tasks of a pack in parts, and repeats their commands, as a scheduler does:
// the bytes are those of uninterrupted tasks, and finished shards are not read again.
func TestPartsKilled(t *testing.T) {
	t.Parallel()
	programs.Need(t, "diff")
	dir := t.TempDir()
	files := filepath.Join(dir, "files")
	if err := randomFiles(files, 400, 100_000); err != nil { // five shards a part
		t.Fatal(err)
	}
	rows := filepath.Join(dir, "rows.parquet")
	if err := randomRows(rows, 400, 100_000); err != nil {
		t.Fatal(err)
	}
	for kind, src := range map[string]string{"files": files, "rows": rows} {
		if testing.Short() && kind == "rows" {
			continue // TestParquetKilled stops the goroutines that read rows
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			out, want := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "want")
			run := func(to string, args ...string) {
				t.Helper()
				if code := runCode(t, packCommand(src, to, append(args, "--quiet")...)); code != 0 {
					t.Fatalf("%v: exit %d", args, code)
				}
			}
			for part := range 2 {
				run(want, "--parts", "2", "--part", fmt.Sprint(part))
			}
			for part, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				args := []string{"--parts", "2", "--part", fmt.Sprint(part)}
				shards := 3 // those of the part before and some of this one
				if part == 1 {
					found, _ := filepath.Glob(filepath.Join(out, "*.tar.zst"))
					shards = len(found) + 1
				}
				before := t.TempDir()
				if err := os.CopyFS(before, os.DirFS(out)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				var code int
				var words string
				for range 10 { // a busy machine may send the signal when the part is done
					if code, words = stopInside(t, packCommand(src, out, args...), out, shards, sig); code != 0 {
						break
					}
					if err := errors.Join(os.RemoveAll(out), os.CopyFS(out, os.DirFS(before))); err != nil {
						t.Fatal(err)
					}
				}
				if sig == syscall.SIGTERM && (code != exitStopped || !strings.Contains(words, "the same command continues")) {
					t.Errorf("%v: exit %d: %s", sig, code, words)
				}
				if code := runCode(t, exec.Command("shardtool", "commit", out, "--parts", "2")); code != exitNotFound {
					t.Fatalf("commit exits %d with a part missing", code)
				}
				var stdout bytes.Buffer
				again := packCommand(src, out, append(args, "--quiet", "--json")...)
				again.Stdout = &stdout
				if code := runCode(t, again); code != 0 {
					t.Fatalf("%v: again: exit %d", sig, code)
				}
				var res struct{ Adopted, Written, Samples int }
				if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
					t.Fatal(err)
				}
				if res.Adopted == 0 || res.Adopted+res.Written != res.Samples {
					t.Errorf("%v: %+v", sig, res)
				}
			}
			for _, to := range []string{out, want} {
				if code := runCode(t, exec.Command("shardtool", "commit", to, "--parts", "2")); code != 0 {
					t.Fatalf("commit exits %d", code)
				}
			}
			for _, c := range []*exec.Cmd{
				exec.Command("diff", "-r", "-x", ".*", want, out), exec.Command("shardtool", "verify", out, "--deep"),
			} {
				if text, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v: %v\n%s", c.Args, err, text)
				}
			}
		})
	}
}
