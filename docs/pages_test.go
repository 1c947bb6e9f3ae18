package docs_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the current lines into CONTRIBUTING.md")

// pages are the pages of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(found, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../SPEC.md", "../reader/order/ORDER.md", "../python/README.md", "../bench/GOALS.md", "../bench/PEERS.md",
		"../cmd/shardtool/internal/serve/PROTOCOL.md")
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors are the fragments that lead to the headings of a page.
func anchors(text string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
}

// TestLinks follows the links inside the repository: to files, and to headings of pages.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s leads to no file", page, m[1])
				continue
			}
			if anchor != "" && filepath.Ext(target) == ".md" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s leads to no heading", page, m[1])
			}
		}
	}
}

// TestIndex: the index lists every page of this folder, and every page but the list of JSON members
// shows a command or a program before its first section.
func TestIndex(t *testing.T) {
	index := read(t, "README.md")
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name == "README.md" {
			continue
		}
		if !strings.Contains(index, "]("+name+")") {
			t.Errorf("README.md does not list %s", name)
		}
		opening, _, _ := strings.Cut(read(t, name), "\n## ")
		if name != "json.md" && !strings.Contains(opening, "\n```") {
			t.Errorf("%s does not open with a command", name)
		}
	}
}

// TestReadmeLength: the README stays short; details belong in the pages that it links.
func TestReadmeLength(t *testing.T) {
	if n := strings.Count(read(t, "../README.md"), "\n"); n > 130 {
		t.Errorf("README.md has %d lines, more than 130", n)
	}
}

// TestSections: the sections that code, tests and pages cite exist, those of chapter 9 in ORDER.md.
func TestSections(t *testing.T) {
	spec, order := read(t, "../SPEC.md"), read(t, "../reader/order/ORDER.md")
	cited := regexp.MustCompile(`(?:SPEC(?:\.md)?|ORDER\.md)\]?(?:\([^)]*\))?,? (?:section |chapter )?([1-9](?:\.\d+)?)\b`)
	seen := 0
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(name); d.IsDir() || ext != ".go" && ext != ".py" && ext != ".md" {
			return nil
		}
		for _, m := range cited.FindAllStringSubmatch(read(t, name), -1) {
			seen++
			page := spec
			if strings.HasPrefix(m[1], "9.") {
				page = order
			}
			if !regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(m[1]) + ` `).MatchString(page) {
				t.Errorf("%s: section %s does not exist", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("%d citations of the specification: they are not found any more", seen)
	}
}

// place is a row of CONTRIBUTING.md: [`file:line`](file#Lline), then the function on that line.
var place = regexp.MustCompile("\\| \\[`([^:`]+):(\\d+)`\\]\\(([^)]+)\\) `(\\w+)` \\|")

// TestPlaces: each question of CONTRIBUTING.md is answered by a line on which that function begins.
// With -update it writes the current lines.
func TestPlaces(t *testing.T) {
	const page = "../CONTRIBUTING.md"
	text := read(t, page)
	rows := place.FindAllStringSubmatch(text, -1)
	if len(rows) != 10 {
		t.Fatalf("%d questions are answered, want 10", len(rows))
	}
	for _, row := range rows {
		file, function := row[1], row[4]
		begins := regexp.MustCompile(`^func (\([^)]*\) )?` + function + `\(`)
		var lines []int
		for i, line := range bytes.Split([]byte(read(t, "../"+file)), []byte("\n")) {
			if begins.Match(line) {
				lines = append(lines, i+1)
			}
		}
		if len(lines) == 0 {
			t.Errorf("%s has no function %s", file, function)
			continue
		}
		want := fmt.Sprintf("| [`%s:%d`](%[1]s#L%[2]d) `%[3]s` |", file, lines[0], function)
		if row[0] != want && *update {
			text = strings.Replace(text, row[0], want, 1)
		} else if row[0] != want {
			t.Errorf("CONTRIBUTING.md has %s, but %s begins on line %d: run go test ./docs -run Places -update", row[0], function, lines[0])
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
