package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/hint"
)

// TestMistakes runs what new users type, and compares what they are told with
// testdata/mistakes.txt, which is for reading: each answer says what is wrong and what to do.
// Commands are in lines that begin with $; -update-refused records their answers.
func TestMistakes(t *testing.T) {
	file, err := filepath.Abs("testdata/mistakes.txt")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"photos/dog/1.jpg": "jpeg", "photos/dog/1.txt": "a dog", "photos/cat/2.jpg": "jpeg", "photos/cat/2.txt": "a cat",
		"rows.jsonl": "{\"id\": \"a\", \"score\": 1}\n{\"id\": \"b\", \"score\": 2}\n", "notes.txt": "notes", "keys.txt": "a\n", "empty.txt": "",
		"rows.parquet": "no parquet", "mix.yaml": "sources:\n  a: {data: rows, weight: 2}\n  b: {data: out, weight: 1}\n",
		"list.yaml": "sources: [rows, out]\n", "url.yaml": "sources:\n  a: {url: rows, weight: 2}\n", "prob.yaml": "sources:\n  a: {data: rows, prob: 2}\n",
		"bare.yaml": "- rows\n- out\n", "gone.yaml": "sources:\n  a: {data: nowhere, weight: 2}\n", "nothing/.keep": "",
		"more.jsonl": "{\"id\": \"a\", \"score\": 3}\n", "broken.csv": "id,score\na,1\nb,2,3\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		putFile(t, name, text)
	}
	inProcess(t, "pack", "photos", "out", "--quiet")
	inProcess(t, "pack", "rows.jsonl", "rows", "--key", "id", "--attr", "score=score", "--quiet")
	putFile(t, "photos.tar", "no tar")
	var now strings.Builder
	for line := range strings.Lines(string(table)) {
		command, is := strings.CutPrefix(strings.TrimSpace(line), "$ shardtool")
		if !is {
			if strings.HasPrefix(line, "#") || line == "\n" {
				now.WriteString(line)
			}
			continue
		}
		fmt.Fprintf(&now, "$ shardtool%s\n", command)
		var args []string
		for i, part := range strings.Split(command, "'") { // quotes as in a shell
			if i%2 == 1 {
				args = append(args, part)
			} else {
				args = append(args, strings.Fields(part)...)
			}
		}
		answer := "(works)"
		if err := execute(t.Context(), args...); err != nil {
			var stderr strings.Builder
			report(&stderr, err)
			answer = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(stderr.String()), "shardtool: "), dir, "DIR")
			checkAdvice(t, args, answer)
			followHints(t, dir, args, err)
		}
		answer = regexp.MustCompile("it has [0-9a-f]{16}").ReplaceAllString(answer, "it has 89abcdef01234567")
		fmt.Fprintln(&now, strings.ReplaceAll(answer, "\n", "\n  "))
	}
	compareGolden(t, file, now.String())
}

var (
	quoted     = regexp.MustCompile("`shardtool ([^`]*)`")
	didYouMean = regexp.MustCompile(`did you mean (--[a-z-]+)`)
)

// checkAdvice checks that the commands and flags exist that an answer names.
func checkAdvice(t *testing.T, args []string, answer string) {
	t.Helper()
	check := func(words []string) {
		t.Helper()
		cmd, _, err := newRoot().Find(words)
		if err != nil || !cmd.HasParent() && !strings.HasPrefix(words[0], "--") {
			t.Errorf("%q advises %q, which is no command (%v)", args, words, err)
			return
		}
		cmd.InitDefaultHelpFlag()
		for _, word := range words {
			name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			if strings.HasPrefix(word, "--") && cmd.Flag(name) == nil {
				t.Errorf("%q advises %q, but there is no flag %s", args, words, word)
			}
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(answer, -1) {
		check(strings.Fields(m[1]))
	}
	for _, m := range didYouMean.FindAllStringSubmatch(answer, -1) {
		words := []string{args[0]}
		if cmd, _, err := newRoot().Find(args[:min(2, len(args))]); err == nil && cmd.HasParent() {
			words = strings.Fields(cmd.CommandPath())[1:] // two of a group, such as layer
		}
		check(append(words, m[1]))
	}
}

// TestAdviceOfWords: what is answered to words of other programs names commands and flags that are
// there, and no word is a flag that its command has.
func TestAdviceOfWords(t *testing.T) {
	flagOnly := regexp.MustCompile(`(?:^|[^\w-])--([a-z-]+)`)
	for word, text := range flagWords {
		checkAdvice(t, []string{word}, text)
		name, rest, _ := strings.Cut(word, " ")
		cmd, _, err := newRoot().Find([]string{name})
		if err != nil || !cmd.HasParent() {
			continue // for all commands
		}
		if cmd.Flag(strings.ReplaceAll(rest, " ", "-")) != nil {
			t.Errorf("%q is a flag", word)
		}
		for _, m := range flagOnly.FindAllStringSubmatch(quoted.ReplaceAllString(text, ""), -1) {
			if cmd.Flag(m[1]) == nil && m[1] != "help" {
				t.Errorf("%q advises --%s, which %s lacks", word, m[1], name)
			}
		}
	}
	for word, text := range meant {
		checkAdvice(t, []string{word}, text)
		if cmd, _, err := newRoot().Find([]string{word}); err == nil && cmd.HasParent() {
			t.Errorf("%q is a command", word)
		}
	}
}

// followHints runs a command again in a copy of the folder for each hint of its error: the error is
// another one, or none. TestHintsFollowed does it for the hints that need a value.
func followHints(t *testing.T, dir string, args []string, was error) {
	t.Helper()
	for _, h := range hint.Of(was) {
		if h.Option == "" || h.Value == "" {
			continue
		}
		again := t.TempDir()
		if err := os.CopyFS(again, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chdir(again); err != nil { // t.Chdir goes back when the test has ended
			t.Fatal(err)
		}
		is := execute(t.Context(), append(slices.Clone(args), strings.SplitN(setFlag(h), " ", 2)...)...)
		if err := os.Chdir(dir); err != nil {
			t.Fatal(err)
		}
		if is != nil && is.Error() == was.Error() {
			t.Errorf("%q: %s does not help: %v", args, setFlag(h), is)
		}
	}
}
