// Package docs_test checks the pages, and the programs that count and release.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHouse compares what make house counts on a small tree.
func TestHouse(t *testing.T) {
	program, err := filepath.Abs("../.ci/house.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module example.org/m\n",
		"internal/b/b.go":     "package b\n\n// A comment.\ntype Base struct{ A, B int }\n\nfunc (Base) One() {}\n\nfunc (*Base) Two() {}\n",
		"a/a.go":              "package a\n\nimport \"example.org/m/internal/b\"\n\ntype Reached = b.Base\n\ntype Own struct {\n\tb.Base\n\tA int\n}\n",
		"a/a_test.go":         "package a\n\nvar x = 1\n",
		"bench/bench.go":      "package bench\n",
		"python/src/p/p.py":   "\"\"\"A docstring\nof two lines.\"\"\"\n\n# a comment\nx = 1\n",
		"internal/b/later.go": "package b\n\nfunc first() { second() }\n\nfunc third() {}\n",
		"internal/b/up.go":    "package b\n\nfunc second() { third() }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	house := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", append([]string{"run", program}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return strings.Join(strings.Fields(string(out)), " ")
	}
	out := house()
	for _, want := range []string{
		"a 7 1 4 0 ",          // code, floor, exports (two types, two methods of what the alias leads to), arrows up
		"internal/b 9 0 - 1 ", // up.go needs later.go, which needs up.go
		"3 a/a.go: Own", "1 bench", "1 python", "16 lines of the product", "4 exports", "1 arrows up",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if got, want := house("-graph"), "1 a -> internal/b 0 internal/b"; got != want {
		t.Errorf("the graph is %q, not %q", got, want)
	}
}
