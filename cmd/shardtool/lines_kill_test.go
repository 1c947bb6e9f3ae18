package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestLinesKilled kills packs of JSON Lines and CSV, plain and compressed, at random moments:
// nothing is visible, and --resume adopts the finished shards and writes the bytes of an
// uninterrupted pack.
func TestLinesKilled(t *testing.T) {
	t.Parallel()
	programs.Need(t, "gzip", "zstd")
	dir := t.TempDir()
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	const rows = 50
	for _, name := range []string{"a.jsonl", "b.jsonl", "c.jsonl"} {
		if err := randomLines(filepath.Join(src, name), rows, 100_000); err != nil {
			t.Fatal(err)
		}
	}
	script := `gzip -1 b.jsonl; zstd -q --rm c.jsonl; (echo "id,text"; sed -E 's/.*:(.*),"text":(".*")./\1,\2/' a.jsonl) > d.csv; head -n 3 a.jsonl | sed 's/.$//' > e.jsonl`
	prepare := exec.Command("sh", "-ec", script)
	prepare.Dir = src
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pack := killedPack{
		src: src, want: want, flags: []string{"--on-error", "skip"}, other: []string{"--columns", "text"}, shards: 7, samples: 4 * rows, skipped: 3,
		signals: []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM},
	}
	pack.run(t)
}
