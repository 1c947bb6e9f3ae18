package main

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestParquetOverHTTP packs a file of a web server, and never shows the query that lets it in.
func TestParquetOverHTTP(t *testing.T) {
	t.Parallel()
	const secret = "sig=very-secret"
	files := http.FileServer(http.Dir("../../testdata/parquet"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != secret {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	dir := t.TempDir()
	out, local := filepath.Join(dir, "out"), filepath.Join(dir, "local")
	for _, c := range []struct {
		src, dst string
		code     int
		want     string
	}{
		{server.URL + "/nested.parquet?" + secret, out, 0, "found 60 rows in 1 Parquet file"},
		{"../../testdata/parquet/nested.parquet", local, 0, "found 60 rows in 1 Parquet file"},
		{server.URL + "/nested.parquet?sig=wrong", out + "2", exitFailed, "nested.parquet"},
		{server.URL + "/missing.parquet?" + secret, out + "3", exitNotFound, "/missing.parquet"},
		{server.URL + "/*.parquet?" + secret, out + "4", exitFailed, "list"},
	} {
		cmd := exec.Command("shardtool", "pack", c.src, c.dst)
		text, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: exit %d, want %d: %s", c.src, code, c.code, text)
		}
		if strings.Contains(string(text), "sig=") {
			t.Errorf("the query is told: %s", text)
		}
	}
	if text, err := exec.Command("shardtool", "inspect", out, "--against", local).CombinedOutput(); err != nil || !strings.Contains(string(text), "same samples") {
		t.Errorf("%v: %s", err, text)
	}
}
