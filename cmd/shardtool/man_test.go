package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestManPages: each command has a page with the content of its help, which man shows without a
// warning.
func TestManPages(t *testing.T) {
	if testing.Short() {
		t.Skip("texts: make test runs it without the race detector")
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("shardtool", "man", "--dir", dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=86400")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatal(err, string(out))
	}
	pages := map[string]string{}
	for _, c := range newRoot().Commands() {
		if !c.Hidden && c.Name() != "help" {
			pages["shardtool-"+c.Name()] = c.Short
		}
	}
	if len(pages) < 15 {
		t.Fatalf("%d commands", len(pages))
	}
	pages["shardtool"] = "Pack training data"
	_, err := exec.LookPath("man")
	shows := err == nil
	for name, short := range pages {
		file := filepath.Join(dir, name+".1")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(text), `.TH "`+strings.ToUpper(name)+`" "1" "Jan 1970"`) {
			t.Errorf("%s: no such heading: %.100q", name, text)
		}
		if !shows {
			continue
		}
		show := exec.Command("man", "--warnings", "--no-hyphenation", "--no-justification", "-l", file)
		show.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8", "MAN_KEEP_FORMATTING=", "PAGER=cat")
		var warned strings.Builder
		show.Stderr = &warned
		out, err := show.Output()
		if err != nil || warned.Len() > 0 {
			t.Errorf("%s: %v\n%s", name, err, warned.String())
		}
		for _, want := range []string{short, "  7  the checkpoint does not fit\n", "SYNOPSIS"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: man does not show %q:\n%s", name, want, out)
			}
		}
		before, _, _ := strings.Cut(string(out), "0  done\n")
		margin := before[strings.LastIndexByte(before, '\n')+1:]
		if !strings.Contains(string(out), "\n"+margin+"1  failed\n") {
			t.Errorf("%s: the exit codes are not one block:\n%s", name, out)
		}
	}
	programs.Need(t, "man") // to show the pages, which are written
}
