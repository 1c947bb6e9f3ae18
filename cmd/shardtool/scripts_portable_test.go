package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScriptsPortable: a script says which programs it needs beyond those of every system, and
// works in a path with a space.
func TestScriptsPortable(t *testing.T) {
	programs := regexp.MustCompile(`\b(python3|zstd|bsdtar|busybox|git|unzip|xz|bzip2|lz4|man|ps|curl|jq)\b`)
	word := regexp.MustCompile(`(?:^-[a-z]+ '|[;|(&] *|do |then )([a-z][a-z0-9]*)`)
	bare := regexp.MustCompile(`(^|[ <>'])\$(DEMO|I|T|WORK|TMPDIR)\b`)
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) < 50 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(text), "\n-- ")
		for line := range strings.Lines(script) {
			shell, isShell := strings.CutPrefix(regexp.MustCompile(`^(! )?(code [0-9]+|exec) (ba)?sh `).ReplaceAllString(line, "\x00"), "\x00")
			command, isCommand := strings.CutPrefix(regexp.MustCompile(`^(! )?(code [0-9]+|exec) `).ReplaceAllString(line, "\x00"), "\x00")
			var run []string
			switch {
			case isShell:
				for _, m := range word.FindAllStringSubmatch(shell, -1) {
					run = append(run, m[1])
				}
				if m := bare.FindString(strings.TrimPrefix(shell, "-c")); m != "" {
					t.Errorf("%s: write \"%s\" in quotation marks: %s", file, strings.TrimLeft(m, " <>'"), line)
				}
			case isCommand:
				run = strings.Fields(command)[:1]
			}
			for _, name := range run {
				if programs.MatchString(name) && name == programs.FindString(name) && !strings.Contains(script, "[!exec:"+name+"] skip") {
					t.Errorf("%s: add [!exec:%s] skip '%[2]s is not installed': %s", file, name, line)
				}
			}
		}
	}
}
