package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// randomTokens writes a .npy file of ids that do not compress, in one dimension or with this shape.
func randomTokens(name string, n int, seed byte, shape ...int) error {
	head := "{'descr': '<u2', 'fortran_order': False, 'shape': ("
	if shape == nil {
		shape = []int{n}
	}
	for _, length := range shape {
		head += fmt.Sprintf("%d,", length)
	}
	head += "), }"
	head += strings.Repeat(" ", 128-10-1-len(head)) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), 0)
	ids := make([]byte, 2*n)
	if _, err := rand.NewChaCha8([32]byte{seed}).Read(ids); err != nil {
		return err
	}
	return os.WriteFile(name, append(append(out, head...), ids...), 0o644)
}

// TestTokensKilled kills packs of arrays, and of documents being joined, at random moments: nothing
// is visible, and --resume adopts the finished shards and writes the bytes of an uninterrupted
// pack.
func TestTokensKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // some shards end inside a file, others with it
		if err := randomTokens(filepath.Join(src, fmt.Sprintf("%d.npy", i)), 6_000_001+i, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	for what, flags := range map[string][]string{
		"cut":    {"--pack-tokens", "20000"},
		"joined": {"--pack-tokens", "20000", "--separator", "7", "--token-dtype", "uint32"},
	} {
		pack := killedPack{
			src: src, want: filepath.Join(dir, "want-"+what), flags: flags, other: append([]string{"--pack-tokens", "19999"}, flags[2:]...), shards: 10,
			signals: []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM},
		}
		t.Run(what, pack.run)
	}
}

// TestTokensOverHTTP packs arrays of a web server.
func TestTokensOverHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := randomTokens(filepath.Join(dir, "ids.npy"), 700_000, 1); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	var digests [][]byte
	for i, src := range []string{server.URL + "/ids.npy", filepath.Join(dir, "ids.npy")} {
		for _, flags := range [][]string{{"--pack-tokens", "100"}, {"--pack-tokens", "100", "--separator", "1"}} {
			out := filepath.Join(t.TempDir(), "out")
			text, err := exec.Command("shardtool", append([]string{"pack", src, out, "--json", "--quiet"}, flags...)...).Output()
			if err != nil {
				t.Fatalf("%s %v: %v", src, flags, err)
			}
			var res struct{ Digest json.RawMessage }
			if err := json.Unmarshal(text, &res); err != nil {
				t.Fatal(err)
			}
			digests = append(digests, res.Digest)
		}
		if i == 1 && (!bytes.Equal(digests[0], digests[2]) || !bytes.Equal(digests[1], digests[3]) || bytes.Equal(digests[0], digests[1])) {
			t.Errorf("%s", digests)
		}
	}
}
