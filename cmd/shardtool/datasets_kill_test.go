//go:build unix

package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDatasetsKilled kills packs of data sets at random moments: nothing is visible, and --resume takes over what is there and
// makes the bytes of a pack that was left alone.
func TestDatasetsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files = 400
	if err := randomFiles(filepath.Join(dir, "files"), files, 100_000); err != nil {
		t.Fatal(err)
	}
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if code := runCode(t, exec.Command("shardtool", "pack", filepath.Join(dir, "files"), src, "--shard-size", "5MiB", "--block-size", "256KiB", "--quiet")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	share := []string{"--share", "0%..95%"}
	if code := runCode(t, packCommand(src, want, append(share, "--quiet")...)); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM} {
		out := filepath.Join(t.TempDir(), "out")
		shards := 1 + rand.IntN(10)
		code, _, words := stopInside(t, packCommand(src, out, share...), out, shards, sig)
		t.Logf("%v after %d shards: exit %d", sig, shards, code)
		if sig == syscall.SIGTERM && code != exitStopped {
			t.Errorf("%v: exit %d: %s", sig, code, words)
		}
		if code := runCode(t, exec.Command("shardtool", "ls", out)); code != exitNotFound {
			t.Fatalf("%v: ls exits %d: something was published", sig, code)
		}
		if code := runCode(t, packCommand(src, out, "--resume", "--quiet", "--share", "0%..96%")); code == 0 {
			t.Error("resumed with another share")
		}
		cmd := packCommand(src, out, append(share, "--resume", "--json", "--quiet")...)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", sig, err)
		}
		var res struct{ Adopted, Written, Samples int }
		if err := json.Unmarshal(text, &res); err != nil {
			t.Fatal(err)
		}
		if res.Adopted < 1 || res.Adopted+res.Written != res.Samples || res.Samples > files {
			t.Errorf("%v: %+v: nothing taken over, or something lost", sig, res)
		}
		if text, err := exec.Command("diff", "-r", "-x", ".*", want, out).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", sig, err, text)
		}
	}
}
