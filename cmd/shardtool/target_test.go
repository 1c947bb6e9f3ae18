package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/hint"
)

// TestTargetFirst: a target that has a data set is refused before the sources are listed, which may
// take hours.
func TestTargetFirst(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 3, 10); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("pack", src, out, "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.RemoveAll(src); err != nil { // listing it would be another error
		t.Fatal(err)
	}
	code, _, stderr := command("pack", src, out)
	if code != exitFailed || !strings.Contains(stderr, "there is a data set already (generation 1, 3 samples); --append adds to it, --overwrite replaces it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr = command("pack", src, out, "--append"); code == 0 || strings.Contains(stderr, "already") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestTargetsFirst: the other commands, and targets that cannot be written, alike.
func TestTargetsFirst(t *testing.T) {
	dir := t.TempDir()
	src, out, tars := filepath.Join(dir, "src"), filepath.Join(dir, "out"), filepath.Join(dir, "tars")
	other, gone, rows := filepath.Join(dir, "other"), filepath.Join(dir, "gone"), filepath.Join(dir, "rows.jsonl")
	if err := randomFiles(src, 3, 10); err != nil {
		t.Fatal(err)
	}
	writeText(t, rows, "{\"id\": \"000000\", \"caption\": \"a\"}\n")
	for _, args := range [][]string{
		{"pack", src, out}, {"pack", src, other}, {"export", out, tars}, {"index", tars},
		{"layer", "add", out, "captions", rows, "--key", "id", "--missing", "allow"},
	} {
		if code, _, stderr := command(append(args, "--quiet")...); code != 0 {
			t.Fatal(args, stderr)
		}
	}
	archives, err := filepath.Glob(filepath.Join(tars, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, name := range archives { // listing or reading them would be another error
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for _, c := range []struct{ args, says string }{
		{"index " + tars, "there is a data set already (generation 1, 3 samples)"},
		{"index " + gone + "/a.tar --out " + out, "there is a data set already (generation 1, 3 samples)"},
		{"index " + gone + "/a.tar --out " + web.URL, "store is read-only"},
		{"layer add " + out + " captions " + gone, "there is a data set already (generation 1, 3 samples)"},
		{"layer add " + out + " " + other + " " + gone, "is a data set of its own: choose another place"},
		{"layer add " + out + " " + web.URL + " " + gone, "store is read-only"},
		{"layer add " + out + "/layers/captions more " + gone, "is a layer itself"},
		{"layer add " + gone + "2 captions " + gone, "gone2"},
		{"layer add " + out + " new " + gone + " --append", "there is no layer to append to"},
		{"pack " + gone + " " + web.URL, "store is read-only"},
	} {
		if code, _, stderr := command(strings.Fields(c.args)...); code == 0 || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d: %s; want %s", c.args, code, stderr, c.says)
		}
	}
}

// TestAmongOthers: a pack says that it puts shards among files that are no part of a data set, and a
// pack of data sets does not put them there. A few files that describe a data set, hidden files, and
// what an interrupted pack has left are no such files.
func TestAmongOthers(t *testing.T) {
	dir := t.TempDir()
	src, set := filepath.Join(dir, "src"), filepath.Join(dir, "set")
	if err := randomFiles(src, 3, 10); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("pack", src, set, "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	for name, c := range map[string]struct {
		files []string
		says  string
	}{
		"new":       {nil, ""},
		"described": {[]string{"README.md", "LICENSE", ".gitattributes", ".git/config", "log.txt"}, ""},
		"left":      {[]string{"other-000000.tar.zst", "part-other-0000-of-0002.bin", "layers/a/other-000000.tar.zst"}, ""},
		"raw":       {[]string{"README.md", "cat/1.jpg"}, "cat/1.jpg"},
		"code":      {[]string{"README.md", "src/a.txt"}, "src/a.txt"},
		"texts":     {strings.Fields("a.txt b.txt c.txt d.txt e.txt f.txt g.txt h.txt i.txt j.txt k.txt l.txt m.txt n.txt o.txt p.txt q.txt"), "q.txt"},
	} {
		for _, from := range []string{src, set} {
			to := filepath.Join(dir, name, filepath.Base(from))
			for _, file := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o777); err != nil {
					t.Fatal(err)
				}
				writeText(t, filepath.Join(to, file), "x")
			}
			code, _, stderr := command("pack", from, to, "--quiet")
			said := strings.Contains(stderr, "has other files too, such as "+c.says+",") ||
				strings.Contains(stderr, "no part of a data set, such as "+c.says+",")
			if refused := from == set && c.says != ""; refused && code != exitUsage || !refused && code != 0 || said != (c.says != "") {
				t.Errorf("%s from %s: exit code %d: %s", name, from, code, stderr)
			}
			if _, err := os.Stat(filepath.Join(to, "manifest.json")); (err == nil) != (code == 0) {
				t.Errorf("%s from %s: exit code %d, manifest: %v", name, from, code, err)
			}
			if code, _, stderr := command("pack", src, to, "--quiet", "--overwrite"); from == src && (code != 0 || strings.Contains(stderr, "other files")) {
				t.Errorf("%s: again: exit code %d: %s", name, code, stderr)
			}
		}
	}
}

// TestExportAmongOthers: an export says that it puts archives among other files, but not among those
// of a data set or of an earlier export.
func TestExportAmongOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := randomFiles("src", 3, 10); err != nil {
		t.Fatal(err)
	}
	inProcess(t, "pack", "src", "out", "--quiet", "--format", "tar")
	for _, c := range []struct {
		to   string
		says bool
	}{{"new", false}, {"new", false}, {"out", false}, {"src", true}, {"src", false}, {"a.tar/", false}, {"a.tar", false}} {
		code, _, stderr := command("export", "out", c.to, "--quiet")
		if code != 0 || strings.Contains(stderr, c.to+" has other files too, such as ") != c.says || !c.says && stderr != "" {
			t.Errorf("%s: exit code %d: %s", c.to, code, stderr)
		}
	}
}

// TestAfterwards follows the advice for what folders of files and archives do not have: the commands
// work with the data set that was packed without it.
func TestAfterwards(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("s", 0o777); err != nil {
		t.Fatal(err)
	}
	putFile(t, "s/a.JPEG", "jpeg")
	putFile(t, "TABLE.jsonl", "{\"id\": \"a\", \"score\": 1}\n")
	putFile(t, "s.tar", tarOne)
	inProcess(t, "pack", "s", "OUT")
	for option, value := range map[string]string{"rename": "JPEG=jpg", "share": "0%..90%", "attr": "score=score"} {
		for _, src := range []string{"s", "s.tar"} {
			err := execute(t.Context(), "pack", src, "other", "--"+option, value)
			hints := hint.Of(err)
			if len(hints) != 1 || hints[0].Command == nil {
				t.Errorf("%s --%s: %v has the hints %v", src, option, err, hints)
				continue
			}
			words := slices.Clone(hints[0].Command)
			if at := slices.Index(words, "TABLE"); at >= 0 {
				words[at] = "TABLE.jsonl"
			}
			inProcess(t, words...)
			if err := errors.Join(os.RemoveAll("NEW"), os.RemoveAll("OUT/layers")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSwapped follows the advice for a source and a data set in the other order: each command packs
// the files.
func TestSwapped(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := randomFiles("raw", 3, 10); err != nil {
		t.Fatal(err)
	}
	err := execute(t.Context(), "pack", "out", "raw")
	if hints := hint.Of(err); len(hints) != 1 || hints[0].Command == nil {
		t.Fatalf("%v has the hints %v", err, hint.Of(err))
	}
	inProcess(t, hint.Of(err)[0].Command...)
	err = execute(t.Context(), "pack", "out", "raw")
	hints := hint.Of(err)
	if len(hints) != 2 {
		t.Fatalf("%v has the hints %v", err, hints)
	}
	inProcess(t, hints[1].Command...)
	if err := os.Rename("raw", "more"); err != nil {
		t.Fatal(err)
	}
	if err := randomFiles("raw", 5, 10); err != nil {
		t.Fatal(err)
	}
	if err := execute(t.Context(), hints[0].Command...); err == nil || strings.Contains(err.Error(), "already") { // the same keys
		t.Errorf("%q: %v", hints[0].Command, err)
	}
	if _, err := os.Stat("raw/manifest.json"); err == nil {
		t.Error("there are shards among the files")
	}
}
