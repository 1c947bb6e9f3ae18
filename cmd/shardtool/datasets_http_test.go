package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDatasetOverHTTP packs a data set of a web server, one generation of it by name too.
func TestDatasetOverHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if text, err := exec.Command("shardtool", "pack", "../../testdata/demo", src, "--shard-size", "2MiB").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	tables, err := filepath.Glob(filepath.Join(src, "manifest-*.bin"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	generation := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(tables[0]), "manifest-"), ".bin")
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for i, from := range []string{server.URL + "/src", server.URL + "/src/@" + generation} {
		to := out + string(rune('a'+i))
		if text, err := exec.Command("shardtool", "pack", from, to, "--shard-size", "2MiB").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", from, err, text)
		}
		if text, err := exec.Command("shardtool", "inspect", to, "--against", src).CombinedOutput(); err != nil || !strings.Contains(string(text), "same samples, same blocks") {
			t.Errorf("%s: %v: %s", from, err, text)
		}
	}
	// What the server does not list is not said to be missing.
	for want, args := range map[string][]string{
		"store cannot list its objects": {"layer", "ls", server.URL + "/src"},
		"views and layers are not known, because they cannot be listed: name one to read it (list views/ in ": {"inspect", server.URL + "/src"},
	} {
		if text, _ := exec.Command("shardtool", args...).CombinedOutput(); !strings.Contains(string(text), want) || strings.Contains(string(text), "has no layers") {
			t.Errorf("%q: %s", args, text)
		}
	}
	cmd := exec.Command("shardtool", "pack", server.URL+"/src@0123456789abcdef", out+"c")
	if text, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != exitNotFound {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), text)
	}
}

// TestFetchedAgain: rank 0 warns that the ranks fetch the same data, and says what to do, unless they
// share a cache or what is fetched again is little.
func TestFetchedAgain(t *testing.T) {
	dir := t.TempDir()
	random := rand.NewChaCha8([32]byte{3})
	var rows bytes.Buffer
	for range 16_000 {
		var row [3000]byte
		_, _ = random.Read(row[:])
		fmt.Fprintf(&rows, "{\"text\": %q}\n", base64.StdEncoding.EncodeToString(row[:]))
	}
	writeText(t, filepath.Join(dir, "rows.jsonl"), rows.String())
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	if code, _, stderr := command("pack", filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "set"), "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	cat := []string{"cat", server.URL + "/set", "--shuffle", "--limit", "1", "--world-size", "8"}
	for name, c := range map[string]struct {
		more []string
		says bool
	}{
		"rank 0": {nil, true}, "rank 1": {[]string{"--rank", "1"}, false},
		"a cache": {[]string{"--cache", filepath.Join(dir, "cache")}, false}, "2 ranks": {[]string{"--world-size", "2"}, false},
	} {
		code, _, stderr := command(append(cat, c.more...)...)
		if says := strings.Contains(stderr, "the 8 ranks together fetch about 8.0 times what the data set holds") &&
			strings.Contains(stderr, "one folder with --cache"); code != 0 || says != c.says {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
	}
}
