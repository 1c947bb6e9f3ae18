package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	rowlines "github.com/shardtool/shardtool/writer/source/lines"
)

// corpora are third-party test files, see testdata/LICENSES.md.
const corpora = "../../testdata/corpora"

// expectation is the expected result of one file: a line of expected.tsv.
type expectation struct {
	path string // the end of it
	code int    // exit code; where it is exitSkipped, with --on-error skip
	text string // of a file that is packed, how many members and a checksum of them; else a part of the message
}

// expectations reads a table of them: the path, the exit code and the text, with tabs between them.
func expectations(t *testing.T, name string) (out []expectation) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(corpora, name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var e expectation
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if n, err := fmt.Sscan(parts[1], &e.code); n != 1 || err != nil || len(parts) != 3 {
			t.Fatalf("%s: %q", name, line)
		}
		e.path, e.text = parts[0], parts[2]
		out = append(out, e)
	}
	return out
}

// command runs the program in this process.
func command(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// packed packs a file, reads the data set with every command that can, and returns its members.
func packed(t *testing.T, file string, flags ...string) (members map[string]string, code int, message string) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "out")
	code, _, message = command(append([]string{"pack", file, target, "--quiet", "--level", "fastest"}, flags...)...)
	for _, word := range []string{"runtime error", "goroutine ", "nil pointer"} {
		if strings.Contains(message, word) {
			t.Errorf("pack says %q: %s", word, message)
		}
	}
	if look, _, text := command("doctor", file); !slices.Contains([]int{0, exitFailed, exitCorrupt, exitNotFound, code}, look) {
		t.Errorf("doctor ends with %d: %s", look, text)
	}
	if code != 0 && code != exitSkipped {
		return nil, code, message
	}
	for _, args := range [][]string{{"verify", target, "--deep", "--quiet"}, {"inspect", target}} {
		if code, _, text := command(args...); code != 0 {
			t.Errorf("%s ends with %d: %s", args[0], code, text)
		}
	}
	failed, stream, text := command("cat", target)
	if failed != 0 {
		t.Fatalf("cat ends with %d: %s", failed, text)
	}
	members = map[string]string{}
	for r := tar.NewReader(strings.NewReader(stream)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return members, code, message
		}
		content, err2 := io.ReadAll(r)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		members[h.Name] = string(content)
	}
}

// summary is the number of members and a checksum of names and contents, in the order of names.
func summary(members map[string]string) string {
	sum := crc32.NewIEEE()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(sum, "%s\x00%s", name, members[name])
	}
	return fmt.Sprintf("%d %08x", len(members), sum.Sum32())
}

// TestCorpora packs every archive and Parquet file of the corpora that the repository ships.
func TestCorpora(t *testing.T) {
	if testing.Short() {
		t.Skip("contents of small files: make test runs it without the race detector")
	}
	table := expectations(t, "expected.tsv")
	seen := map[string]bool{}
	for _, e := range table {
		seen[e.path] = true
		t.Run(e.path, func(t *testing.T) {
			var flags []string
			if e.code == exitSkipped {
				flags = []string{"--on-error", "skip"}
			}
			members, code, message := packed(t, filepath.Join(corpora, e.path), flags...)
			switch {
			case code != e.code:
				t.Errorf("pack ends with %d, want %d: %s", code, e.code, message)
			case members == nil && !strings.Contains(message, e.text):
				t.Errorf("pack says %s, want %q", message, e.text)
			case members != nil && summary(members) != e.text:
				t.Errorf("members are %s, want %s: %q", summary(members), e.text, slices.Sorted(maps.Keys(members)))
			}
		})
	}
	for _, name := range filesUnder(t, corpora, ".tar", ".parquet") {
		if rel, _ := filepath.Rel(corpora, name); !seen[filepath.ToSlash(rel)] {
			t.Errorf("%s: nothing is expected of it", rel)
		}
	}
}

// filesUnder are the files of a folder with one of these endings.
func filesUnder(t *testing.T, dir string, endings ...string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains(endings, filepath.Ext(path)) {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestCorporaJSON takes the files of JSONTestSuite as members of a row: y_ files are read with the
// same values as by another reader, n_ files are errors of their row, and i_ files are one or the
// other.
func TestCorporaJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("contents of small files: make test runs it without the race detector")
	}
	for _, dir := range append([]string{filepath.Join(corpora, "json-test-suite/test_parsing")}, full(t, "test_parsing")...) {
		names := filesUnder(t, dir, ".json")
		if len(names) < 300 {
			t.Fatalf("%s has %d files", dir, len(names))
		}
		for _, name := range names {
			t.Run(filepath.Base(name), func(t *testing.T) {
				content, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				kind := filepath.Base(name)[0]
				if kind == 'y' { // where a text is right, line ends in it are spaces
					content = bytes.ReplaceAll(content, []byte("\n"), []byte(" "))
				}
				field, data, err := jsonRow(t, fmt.Sprintf("{\"v\":%s}\n", content))
				switch {
				case kind == 'y' && err != nil:
					t.Errorf("%q is not read: %v", content, err)
				case kind == 'n' && err == nil:
					t.Errorf("%.100q is read as %s, %q", content, field, data)
				case kind == 'y':
					sameValue(t, content, field, data)
				}
			})
		}
	}
}

// jsonRow reads the first row of a file.
func jsonRow(t *testing.T, text string) (field string, data []byte, err error) {
	t.Helper()
	st := mem.New()
	if _, err := objstore.Put(t.Context(), st, "x.jsonl", []byte(text), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	src, err := rowlines.New(t.Context(), []source.Input{{Store: st, Name: "x.jsonl"}}, rowlines.Options{Workers: 1, Nulls: source.NullsEmpty})
	if err != nil {
		return "", nil, err
	}
	defer src.Close()
	s, err := src.Next(t.Context())
	if err != nil {
		var se *writer.SampleError
		if !errors.As(err, &se) {
			t.Errorf("the error is none of a row: %v", err)
		}
		return "", nil, err
	}
	return s.Fields[0].Name, bytes.Clone(s.Fields[0].Data), nil
}

// sameValue compares a field with the value that encoding/json decodes.
func sameValue(t *testing.T, text []byte, field string, data []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	ok := false
	switch want := v.(type) {
	case nil:
		ok = field == "v.txt" && len(data) == 0
	case string:
		ok = field == "v.txt" && string(data) == want
	case bool, float64:
		ok = field == "v.txt" && bytes.Equal(data, bytes.TrimSpace(text))
	default:
		ok = field == "v.npy" && bytes.HasPrefix(data, []byte("\x93NUMPY")) || field == "v.json" && bytes.Equal(data, bytes.TrimSpace(text))
	}
	if !ok {
		t.Errorf("%q became %s, %q", text, field, data)
	}
}

// TestCorporaCSV packs the files of csv-spectrum, which has the rows in JSON too.
func TestCorporaCSV(t *testing.T) {
	if testing.Short() {
		t.Skip("contents of small files: make test runs it without the race detector")
	}
	for _, dir := range append([]string{filepath.Join(corpora, "csv-spectrum/csvs")}, full(t, "csvs")...) {
		for _, name := range filesUnder(t, dir, ".csv") {
			if filepath.Base(name) == "location_coordinates.csv" {
				continue // its JSON has another telephone number
			}
			t.Run(filepath.Base(name), func(t *testing.T) {
				base := strings.TrimSuffix(filepath.Base(name), ".csv")
				content, err := os.ReadFile(filepath.Join(dir, "../json", base+".json"))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.HasPrefix(content, []byte("[")) { // one row
					content = fmt.Appendf(nil, "[%s]", content)
				}
				var rows []map[string]string
				if err := json.Unmarshal(content, &rows); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{}
				for i, row := range rows {
					for column, cell := range row {
						want[fmt.Sprintf("%s/%09d.%s.txt", base, i, column)] = cell
					}
				}
				got, code, message := packed(t, name)
				if code != 0 || !maps.Equal(got, want) {
					t.Errorf("exit %d, %s: got %q, want %q", code, message, got, want)
				}
			})
		}
	}
}

// full returns the folders of a name under $CORPORA, which contains clones of whole corpora.
func full(t *testing.T, name string) (dirs []string) {
	t.Helper()
	if os.Getenv("CORPORA") == "" {
		return nil
	}
	err := filepath.WalkDir(os.Getenv("CORPORA"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == name {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestCorporaFull packs every Parquet file under $CORPORA: those listed in refused.tsv are refused
// with the listed error, all others are read.
func TestCorporaFull(t *testing.T) {
	table := expectations(t, "refused.tsv")
	if os.Getenv("CORPORA") == "" {
		return // the table has been read; TestCorpora has the part that is shipped
	}
	for _, name := range filesUnder(t, os.Getenv("CORPORA"), ".parquet", ".encrypted") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			i := slices.IndexFunc(table, func(e expectation) bool { return strings.HasSuffix(filepath.ToSlash(name), "/"+e.path) })
			if filepath.Ext(name) == ".encrypted" {
				link := filepath.Join(t.TempDir(), filepath.Base(name)+".parquet")
				if err := os.Symlink(name, link); err != nil {
					t.Fatal(err)
				}
				name = link
			}
			_, code, message := packed(t, name, "--nulls", "empty")
			switch {
			case i < 0 && code != 0:
				t.Errorf("pack ends with %d: %s", code, message)
			case i >= 0 && (code != table[i].code || !strings.Contains(message, table[i].text)):
				t.Errorf("pack ends with %d, want %d and %q: %s", code, table[i].code, table[i].text, message)
			}
		})
	}
}
