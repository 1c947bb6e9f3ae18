package metadata

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset/programs"
)

// toolSamples have names of every kind that a file system takes.
func toolSamples() []testSample {
	s := []testSample{
		one("plain/0001", "json", "{}", "txt", "one"), one("with space", "a b", "x"), one("new\nline", "txt", "y"),
		one("utf8/ä€😀", "txt", "z"), one("bytes/caf\xe9\xff", "txt", "w"), one("zero", "bin", ""), one("no dot", "", "n"),
		one(strings.Repeat("d", 90)+"/"+strings.Repeat("e", 90), "x", "prefix"),
		one(strings.Repeat("long/", 60)+"name", "txt", "300 characters"),
		one(strings.Repeat("ä/", 100)+"ö", "txt", "long UTF-8"),
		one(strings.Repeat("\xe9/", 150)+"\xe8", "txt", "long, not UTF-8"),
		one(strings.Repeat("abcdefghi/", 15)+strings.Repeat("n", 150), "x", "byte 100 is a slash"),
	}
	for i := range 60 {
		s = append(s, one(fmt.Sprintf("many/%04d", i), "jpg", string(noise(uint64(i), 3000)), "txt", string(words(uint64(i), 900))))
	}
	return s
}

// TestTools: the finished shard is listed and unpacked whole, with exit code 0 and not a word on
// stderr.
func TestTools(t *testing.T) {
	dir := t.TempDir()
	samples := toolSamples()
	shard := pack(t, samples, packOptions{Block: 20_000, Meta: format.Metadata{"tool": "test"}})
	plain := pack(t, samples, packOptions{Block: 20_000, Plain: true})
	for name, data := range map[string][]byte{"x.tar.zst": shard.object(), "x.tar": plain.Data} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := command(t, dir, "zstd", "-tq", "x.tar.zst"); out != "" {
		t.Errorf("zstd -t says %s", out)
	}
	decoded := command(t, dir, "zstd", "-dcq", "x.tar.zst")
	if !bytes.Equal([]byte(decoded), plain.Data) {
		t.Errorf("zstd decodes %d bytes, the plain shard has %d", len(decoded), len(plain.Data))
	}
	const python = `
import os, sys, tarfile
for mode in (sys.argv[2],) :
    t = tarfile.open(fileobj=sys.stdin.buffer, mode=mode) if mode == "r|" else tarfile.open(sys.argv[1])
    for m in t:
        assert m.isreg() and m.mode == 0o444 and m.mtime == 0 and m.uid == 0, m
        path = os.path.join(sys.argv[3], m.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").write(t.extractfile(m).read())
`
	for name, c := range map[string]string{
		"gnu":           "tar --zstd -xf x.tar.zst -C OUT",
		"gnu-pipe":      "zstd -dc x.tar.zst | tar -xf - -C OUT",
		"gnu-plain":     "tar -xf x.tar -C OUT",
		"bsdtar":        "bsdtar -xf x.tar.zst -C OUT",
		"bsdtar-pipe":   "zstd -dc x.tar.zst | bsdtar -xf - -C OUT",
		"bsdtar-utf8":   "LC_ALL=C.UTF-8 bsdtar -xf x.tar.zst -C OUT",
		"bsdtar-plain":  "bsdtar -xf x.tar -C OUT",
		"busybox":       "zstd -dc x.tar.zst | busybox tar -xf - -C OUT",
		"busybox-plain": "busybox tar -xf x.tar -C OUT",
		"python":        "zstd -dc x.tar.zst | python3 -c \"$PYTHON\" - 'r|' OUT",
		"python-plain":  "python3 -c \"$PYTHON\" x.tar r OUT",
	} {
		t.Run(name, func(t *testing.T) {
			needPrograms(t, c)
			out := filepath.Join(t.TempDir(), "out")
			if err := os.Mkdir(out, 0o755); err != nil {
				t.Fatal(err)
			}
			script := "set -o pipefail\nPYTHON='" + python + "'\n" + strings.ReplaceAll(c, "OUT", out)
			if said := command(t, dir, "bash", "-c", script); said != "" {
				t.Errorf("it says %q", said)
			}
			compareTree(t, out, samples)
		})
	}
	want := 0
	for _, s := range samples {
		want += len(s.Fields)
	}
	for _, c := range []string{"tar --zstd -tf x.tar.zst --quoting-style=escape", "bsdtar -tf x.tar.zst", "zstd -dc x.tar.zst | busybox tar -tf - | tr '\\n' ';' | sed 's/new;/new/' | tr ';' '\\n'"} {
		t.Run("list/"+strings.Fields(c)[0], func(t *testing.T) {
			needPrograms(t, c)
			if got := strings.Count(command(t, dir, "bash", "-c", "set -o pipefail; "+c), "\n"); got != want {
				t.Errorf("%s lists %d members, want %d", c, got, want)
			}
		})
	}
}

// needPrograms skips a test without the programs of a shell command.
func needPrograms(t *testing.T, script string) {
	t.Helper()
	for _, program := range []string{"zstd", "tar", "bsdtar", "busybox", "python3"} {
		if strings.Contains(script, program) {
			programs.Need(t, program)
		}
	}
}

// compareTree holds the files below dir against the samples.
func compareTree(t *testing.T, dir string, samples []testSample) {
	t.Helper()
	want := map[string]string{}
	for _, s := range samples {
		for _, f := range s.Fields {
			want[format.JoinName(s.Key, f.Name)] = string(f.Data)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if w, ok := want[name]; !ok || w != string(data) {
			t.Errorf("%q has %d bytes, want %d, packed: %v", name, len(data), len(w), ok)
		}
		delete(want, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("%q was not unpacked", name)
	}
}
