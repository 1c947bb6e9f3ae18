package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestLinesOverHTTP packs files of a web server, and never shows the query that lets it in.
func TestLinesOverHTTP(t *testing.T) {
	t.Parallel()
	programs.Need(t, "gzip", "zstd")
	const secret = "sig=very-secret"
	dir := t.TempDir()
	if err := randomLines(filepath.Join(dir, "rows.jsonl"), 300, 2000); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"gzip -k rows.jsonl", "zstd -q rows.jsonl", "head -n 5 rows.jsonl > few.jsonl"} {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != secret {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	local := filepath.Join(t.TempDir(), "local")
	if code := runCode(t, exec.Command("shardtool", "pack", filepath.Join(dir, "rows.jsonl"), local, "--quiet")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, c := range []struct {
		src  string
		code int
		want string
	}{
		{"/rows.jsonl?" + secret, 0, "found 1 file of JSON Lines or CSV"},
		{"/rows.jsonl.gz?" + secret, 0, "found 1 file"},
		{"/rows.jsonl.zst?" + secret, 0, "found 1 file"},
		{"/rows.jsonl?sig=wrong", exitFailed, "rows.jsonl"},
		{"/missing.csv?" + secret, exitNotFound, "/missing.csv"},
		{"/*.jsonl?" + secret, exitFailed, "list"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command("shardtool", "pack", server.URL+c.src, out)
		text, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: exit %d, want %d: %s", c.src, code, c.code, text)
		}
		if strings.Contains(string(text), "sig=") {
			t.Errorf("the query is told: %s", text)
		}
		if c.code != 0 {
			continue
		}
		if text, err := exec.Command("shardtool", "inspect", out, "--against", local).CombinedOutput(); err != nil || !strings.Contains(string(text), "same samples") {
			t.Errorf("%s: %v: %s", c.src, err, text)
		}
	}
}

// randomLines writes objects with a number and a text of about this many characters, which hardly
// compresses.
func randomLines(name string, rows, size int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	rng := rand.NewChaCha8([32]byte{9})
	raw := make([]byte, size*3/4)
	for i := range rows {
		if _, err := rng.Read(raw); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(f, "{\"id\":%d,\"text\":\"%s\"}\n", i, base64.StdEncoding.EncodeToString(raw)); err != nil {
			return err
		}
	}
	return f.Close()
}
