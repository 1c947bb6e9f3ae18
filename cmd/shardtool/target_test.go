package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTargetFirst: a target that has a data set is refused before the sources are listed, which may
// take hours.
func TestTargetFirst(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 3, 10); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("pack", src, out, "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.RemoveAll(src); err != nil { // listing it would be another error
		t.Fatal(err)
	}
	code, _, stderr := command("pack", src, out)
	if code != exitFailed || !strings.Contains(stderr, "there is a data set already (generation 1, 3 samples); --append adds to it, --overwrite replaces it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr = command("pack", src, out, "--append"); code == 0 || strings.Contains(stderr, "already") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestTargetsFirst: the other commands, and targets that cannot be written, alike.
func TestTargetsFirst(t *testing.T) {
	dir := t.TempDir()
	src, out, tars := filepath.Join(dir, "src"), filepath.Join(dir, "out"), filepath.Join(dir, "tars")
	other, gone, rows := filepath.Join(dir, "other"), filepath.Join(dir, "gone"), filepath.Join(dir, "rows.jsonl")
	if err := randomFiles(src, 3, 10); err != nil {
		t.Fatal(err)
	}
	writeText(t, rows, "{\"id\": \"000000\", \"caption\": \"a\"}\n")
	for _, args := range [][]string{
		{"pack", src, out}, {"pack", src, other}, {"export", out, tars}, {"index", tars},
		{"layer", "add", out, "captions", rows, "--key", "id", "--missing", "allow"},
	} {
		if code, _, stderr := command(append(args, "--quiet")...); code != 0 {
			t.Fatal(args, stderr)
		}
	}
	archives, err := filepath.Glob(filepath.Join(tars, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, name := range archives { // listing or reading them would be another error
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for _, c := range []struct{ args, says string }{
		{"index " + tars, "there is a data set already (generation 1, 3 samples)"},
		{"index " + gone + "/a.tar --out " + out, "there is a data set already (generation 1, 3 samples)"},
		{"index " + gone + "/a.tar --out " + web.URL, "store is read-only"},
		{"layer add " + out + " captions " + gone, "there is a data set already (generation 1, 3 samples)"},
		{"layer add " + out + " " + other + " " + gone, "is a data set of its own: choose another place"},
		{"layer add " + out + " " + web.URL + " " + gone, "store is read-only"},
		{"layer add " + out + "/layers/captions more " + gone, "is a layer itself"},
		{"layer add " + gone + "2 captions " + gone, "gone2"},
		{"layer add " + out + " new " + gone + " --append", "there is no layer to append to"},
		{"pack " + gone + " " + web.URL, "store is read-only"},
	} {
		if code, _, stderr := command(strings.Fields(c.args)...); code == 0 || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d: %s; want %s", c.args, code, stderr, c.says)
		}
	}
}
