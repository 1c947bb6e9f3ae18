package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
		}
		answer = regexp.MustCompile("it has [0-9a-f]{16}").ReplaceAllString(answer, "it has 89abcdef01234567")
		fmt.Fprintln(&now, strings.ReplaceAll(answer, "\n", "\n  "))
	}
	compareGolden(t, file, now.String())
}
