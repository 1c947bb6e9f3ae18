// Package outside_test compiles and runs what a user of the module can write, in a module of its
// own.
package outside_test

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippet finds a block of Go in a page. A block is a file without its package clause.
var snippet = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestSnippets compiles each block of Go that the pages show.
func TestSnippets(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md")
	files := map[string][]byte{}
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
			code := fmt.Sprintf("package snippet\n\n//line %s:%d\n%s", page, line, text[at[2]:at[3]])
			if neat, err := format.Source([]byte(code)); err == nil && string(neat) != code {
				t.Errorf("%s:%d: not as gofmt has it", page, line)
			}
			files[fmt.Sprintf("snippet_%s_%d", strings.TrimSuffix(filepath.Base(page), ".md"), i)] = []byte(code)
		}
	}
	if len(files) < 3 {
		t.Fatalf("%d blocks of Go in %d pages: they are not found any more", len(files), len(pages))
	}
	if err := compile(t.TempDir(), files); err != nil {
		t.Error(err)
	}
}
