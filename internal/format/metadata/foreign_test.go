package metadata

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/testset/programs"
)

// command runs in dir and returns what it prints; a word on stderr is a failure. Without the
// program the test is skipped.
func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	programs.Need(t, args[0])
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

// walkAll returns the regular files that a foreign walker finds.
func walkAll(archive []byte) (files map[string]string, w *tarblock.Walker, err error) {
	files = map[string]string{}
	w = &tarblock.Walker{Buf: archive, Foreign: true}
	var m tarblock.Member
	for {
		ok, err := w.Next(&m)
		if !ok {
			return files, w, err
		}
		files[string(m.Name)] = string(archive[m.Payload : m.Payload+m.Size])
	}
}

func checkForeign(t *testing.T, archive []byte, want map[string]string) {
	t.Helper()
	got, w, err := walkAll(archive)
	if err != nil {
		t.Fatal(err)
	}
	if !w.Ended {
		t.Error("the end of the archive was not seen")
	}
	for name, data := range want {
		if got[name] != data {
			t.Errorf("%q holds %d bytes, want %d", name, len(got[name]), len(data))
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("found %q, which was not packed", name)
	}
}

// foreignFiles are what every tool can store in every format.
func foreignFiles() map[string]string {
	return map[string]string{
		"a.txt": "first", "empty": "", "dir/b.tar.gz": string(noise(1, 513)), "dir/sub/c d.e": strings.Repeat("x", 512),
		strings.Repeat("p", 60) + "/" + strings.Repeat("q", 60) + ".x": "split at the prefix",
	}
}

// TestForeignArchiveTar: archives of Go's writer in each of its formats.
func TestForeignArchiveTar(t *testing.T) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		want := foreignFiles()
		if format != tar.FormatUSTAR {
			want[strings.Repeat("very long/", 40)+"ä.txt"] = "long"
		}
		if format == tar.FormatGNU {
			want["caf\xe9.txt"] = "not UTF-8"
		}
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		add := func(h *tar.Header, data string) {
			h.Format, h.Mode, h.Size = format, 0o644, int64(len(data))
			if format == tar.FormatPAX && h.Typeflag == tar.TypeReg {
				h.ModTime, h.PAXRecords = time.Unix(1, 5e8), map[string]string{"SCHILY.xattr.user.x": "y"}
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		if format == tar.FormatPAX {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}); err != nil {
				t.Fatal(err)
			}
		}
		add(&tar.Header{Typeflag: tar.TypeDir, Name: "dir/"}, "")
		for _, name := range slices.Sorted(maps.Keys(want)) {
			add(&tar.Header{Typeflag: tar.TypeReg, Name: name}, want[name])
			add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "a.txt"}, "")
			add(&tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "a.txt"}, "")
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		t.Run(format.String(), func(t *testing.T) { checkForeign(t, buf.Bytes(), want) })
	}
}

// TestForeignTools: archives of GNU tar, bsdtar, busybox and Python, with directories and links
// among the files.
func TestForeignTools(t *testing.T) {
	const python = `
import sys, tarfile
t = tarfile.open("x.tar", "w", format=getattr(tarfile, sys.argv[1]))
t.add("src", arcname="src")
t.close()`
	long := strings.Repeat("a directory with a long name/", 9) + "file.txt"
	for _, c := range []struct {
		name string
		args []string
		long bool
	}{
		{"gnu-ustar", []string{"tar", "--format=ustar", "-cf", "x.tar", "src"}, false},
		{"gnu-gnu", []string{"tar", "--format=gnu", "-cf", "x.tar", "src"}, true},
		{"gnu-oldgnu", []string{"tar", "--format=oldgnu", "-cf", "x.tar", "src"}, true},
		{"gnu-pax", []string{"tar", "--format=posix", "-cf", "x.tar", "src"}, true},
		{"bsdtar-ustar", []string{"bsdtar", "--format=ustar", "-cf", "x.tar", "src"}, false},
		{"bsdtar-pax", []string{"bsdtar", "--format=pax", "-cf", "x.tar", "src"}, true},
		{"bsdtar-gnutar", []string{"bsdtar", "--format=gnutar", "-cf", "x.tar", "src"}, true},
		{"busybox", []string{"busybox", "tar", "-cf", "x.tar", "src"}, true},
		{"python-ustar", []string{"python3", "-c", python, "USTAR_FORMAT"}, false},
		{"python-gnu", []string{"python3", "-c", python, "GNU_FORMAT"}, true},
		{"python-pax", []string{"python3", "-c", python, "PAX_FORMAT"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			want := map[string]string{}
			files := foreignFiles()
			if c.long {
				files[long] = "long"
			}
			for name, data := range files {
				path := filepath.Join(dir, "src", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
				want["src/"+name] = data
			}
			if err := os.Symlink("a.txt", filepath.Join(dir, "src/link")); err != nil {
				t.Fatal(err)
			}
			command(t, dir, c.args...)
			archive, err := os.ReadFile(filepath.Join(dir, "x.tar"))
			if err != nil {
				t.Fatal(err)
			}
			checkForeign(t, archive, want)
		})
	}
}

// TestForeignSize: the size of an extended header counts, not the one in the plain header.
func TestForeignSize(t *testing.T) {
	data := strings.Repeat("0123456789", 70)
	rec := func(size string) string { return fmt.Sprintf("%d size=%s\n", len(size)+9, size) }
	build := func(records string, kind byte) []byte {
		b := appendEntry(nil, "", "PaxHeaders/x", int64(len(records)), 'x')
		b = append(b, records...)
		b = append(b, make([]byte, tarblock.Padding(int64(len(records))))...)
		b = appendEntry(b, "", "a.txt", 0, kind)
		b = append(b, data...)
		return append(b, make([]byte, tarblock.Padding(int64(len(data)))+tarblock.EndLen)...)
	}
	checkForeign(t, build(rec("700"), '0'), map[string]string{"a.txt": data})
	for name, archive := range map[string][]byte{
		"beyond the end":   build(rec("7000"), '0'),
		"no number":        build(rec("7x0"), '0'),
		"negative":         build(rec("-70"), '0'),
		"2^63":             build(fmt.Sprintf("28 size=%d\n", uint64(1)<<63), '0'),
		"cut record":       build("99 size=700\n", '0'),
		"no length":        build("size=700\n", '0'),
		"length of 0":      build("0 size=700\n", '0'),
		"without newline":  build("12 size=700 ", '0'),
		"without equals":   build("12 size 700\n", '0'),
		"sparse PAX file":  build("22 GNU.sparse.major=1\n", '0'),
		"sparse GNU file":  build(rec("700"), 'S'),
		"header alone":     build(rec("700"), '0')[:1024],
		"cut on a header":  build(rec("700"), '0')[:1024+512],
		"joined archives":  append(build(rec("700"), '0'), build(rec("700"), '0')...),
		"flipped bit":      flip(build(rec("700"), '0'), 1024+3),
		"flipped checksum": flip(build(rec("700"), '0'), 1024+150),
	} {
		if files, _, err := walkAll(archive); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: found %d files, error %v", name, len(files), err)
		}
	}
}

func flip(b []byte, at int) []byte {
	b[at] ^= 1
	return b
}

// TestForeignCut: an archive cut between members is whole but for its end.
func TestForeignCut(t *testing.T) {
	var b tarblock.Builder
	b.Member("a.txt", 10)
	b.Member("b.txt", 10)
	files, w, err := walkAll(b.Buf)
	if err != nil || len(files) != 2 || w.Ended {
		t.Errorf("cut archive: %d files, ended %v, %v", len(files), w.Ended, err)
	}
}

// TestForeignOld: a directory of an archive before POSIX is one by its slash; a type of NUL is a
// regular file.
func TestForeignOld(t *testing.T) {
	b := appendEntry(nil, "", "dir/", 0, 0)
	b = appendEntry(b, "", "file", 1, 0)
	b = append(append(b, 'x'), make([]byte, 511)...)
	b = appendEntry(b, "", "contiguous", 1, '7')
	b = append(append(b, 'y'), make([]byte, 511+tarblock.EndLen)...)
	checkForeign(t, b, map[string]string{"file": "x", "contiguous": "y"})
}
