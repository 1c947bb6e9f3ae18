package outside_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// TestReadmeGo runs the first Go program of the README on the data set that the README packs. The
// Python program beside it is run by python/tests/test_wheel.py.
func TestReadmeGo(t *testing.T) {
	dir := t.TempDir()
	store, err := local.New(filepath.Join(dir, "out", "demo"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := source.NewFiles(t.Context(), []string{"../../testdata/demo"}, source.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if _, err := writer.Pack(t.Context(), store, files, writer.Options{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := snippet.FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("README.md shows no Go")
	}
	out := runMain(t, dir, "package main\n\n"+block[1]+"\nfunc main() {\n\tif err := train(context.Background()); err != nil {\n\t\tpanic(err)\n\t}\n}\n")
	want := strings.Repeat("32 ", 6) + "13" // the 205 samples
	var sizes []string
	for line := range strings.Lines(out) {
		sizes = append(sizes, strings.Fields(line)[0])
	}
	if got := strings.Join(sizes, " "); got != want {
		t.Errorf("batches of %s samples, want %s:\n%s", got, want, out)
	}
}

// runMain builds a program, and returns what it prints when it runs in dir with arguments.
func runMain(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	binary := filepath.Join(dir, "program")
	if err := compile(dir, map[string][]byte{"main": []byte(program)}, "-o", binary); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), binary, args...)
	run.Dir = dir
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatal(fmt.Errorf("%w\n%s", err, out))
	}
	return string(out)
}
