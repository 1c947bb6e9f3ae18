package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHouse runs the check of make lint on a small tree: it fails for each figure that got worse.
func TestHouse(t *testing.T) {
	program, err := filepath.Abs("../.ci/house.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	house := func(args ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"run", program}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	good := func(args ...string) {
		t.Helper()
		if out, err := house(args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	write("go.mod", "module example.org/m\n")
	write(".ci/house.txt", "")
	write("internal/b/b.go", "package b\n\ntype Base struct{ A, B int }\n\nfunc (Base) One() {}\n\nfunc (*Base) Two() {}\n")
	write("a/a.go", "package a\n\ntype Own struct{ A int }\n")
	write("python/src/p/p.py", "\"\"\"A docstring\nof two lines.\"\"\"\n\n# a comment\nx = 1\n")
	good("-record", "-worse")
	good("-check")

	write("a/a.go", `package a

import "example.org/m/internal/b"

type Reached = b.Base

// Own is one of those of this package.
type Own struct {
	b.Base
	A int
}

func ask(units *int) bool { return units != nil }
`)
	write("python/src/p/p.py", "x = 1\ny = 2\n")
	write("bench/bench.go", "package bench\n")
	out, err := house("-check")
	if err == nil {
		t.Fatalf("worse figures pass:\n%s", out)
	}
	for _, want := range []string{
		"product_lines is 12, and may be 6 at most", "bench_lines is 1, and may be 0", "python_lines is 2, and may be 1",
		"exports is 4, and may be 1", "largest_struct is 3, and may be 2", "conditions is 1, and may be 0",
		"comments_that_of is 1, and may be 0", "go run .ci/house.go -record -worse",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	good("-record") // keeps what got worse
	if out, err := house("-check"); err == nil {
		t.Errorf("make house-record took over worse figures:\n%s", out)
	}
	good("-record", "-worse")
	good("-check")
}
