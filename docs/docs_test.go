// Package docs_test compiles the Go that the pages show.
package docs_test

import (
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippet finds a block of Go. A block is a file without its package clause.
var snippet = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestSnippets compiles each block in a package of this module, which exists only in the overlay of
// one build.
func TestSnippets(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../README.md")
	dir := t.TempDir()
	overlay := map[string]string{}
	args := []string{"build"}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := snippet.FindAllStringSubmatchIndex(string(text), -1)
		if n := strings.Count(string(text), "```go"); n != len(blocks) {
			t.Errorf("%s: %d blocks of Go begin, %d were found whole", page, n, len(blocks))
		}
		for i, at := range blocks {
			line := 1 + strings.Count(string(text[:at[2]]), "\n")
			file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
			code := fmt.Sprintf("package snippet\n\n//line %s:%d\n%s", page, line, text[at[2]:at[3]])
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			if neat, err := format.Source([]byte(code)); err == nil && string(neat) != code {
				t.Errorf("%s:%d: not as gofmt has it", page, line)
			}
			name := fmt.Sprintf("snippet_%s_%d", strings.TrimSuffix(filepath.Base(page), ".md"), i)
			overlay[filepath.Join(root, "docs", name, "snippet.go")] = file
			args = append(args, "./docs/"+name)
		}
	}
	if len(overlay) < 9 {
		t.Fatalf("%d blocks of Go in %d pages: they are not found any more", len(overlay), len(pages))
	}
	replaced, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, replaced, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{args[0], "-overlay", list}, args[1:]...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
