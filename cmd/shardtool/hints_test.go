package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/shardtool/shardtool/hint"
)

// complaint is a command that fails with hints.
type complaint struct {
	name  string
	files map[string]string
	setup []string // commands before it, with words between spaces
	args  []string
	// give has the values of options whose hint has none, and what follows the words of a command.
	give map[string][]string
}

const (
	ab    = "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\",\"n\":2}\n"
	whole = "sources:\n  a: {data: rows, weight: 6}\n  b: {data: more, weight: 3}\n"
)

// complaints returns a command for each hint that a user of commands sees. It is no variable: this
// program is the shardtool of other tests, which measure its memory.
func complaints() []complaint {
	return []complaint{
		{name: "exists", files: map[string]string{"r.jsonl": ab, "s.jsonl": "{\"id\":\"c\"}\n"}, setup: []string{"pack r.jsonl out --key id"}, args: []string{"pack", "s.jsonl", "out", "--key", "id"}},
		{name: "duplicate", files: map[string]string{"r.jsonl": ab, "s.jsonl": ab}, args: []string{"pack", "r.jsonl", "s.jsonl", "out", "--key", "id", "--samples-per-shard", "2"}},
		{name: "leftovers", files: map[string]string{"r.jsonl": strings.Repeat("{\"n\":1}\n", 20000) + "{\"n\"\n", "s.jsonl": ab},
			setup: []string{"!pack r.jsonl out --samples-per-shard 1000"}, args: []string{"pack", "s.jsonl", "out", "--key", "id", "--resume"},
			give: map[string][]string{"prune --grace 0s": {"out"}}},
		{name: "missing keys", files: map[string]string{"r.jsonl": ab, "keys": "a\nz\n"}, setup: []string{"pack r.jsonl out --key id"}, args: []string{"select", "out", "--keys", "keys", "--name", "v"}},
		{name: "no weight", files: map[string]string{"r.jsonl": ab + "{\"id\":\"c\",\"x\":1}\n"}, setup: []string{"pack r.jsonl out --key id --attr n=n"}, args: []string{"select", "out", "--weight", "n", "--name", "v"},
			give: map[string][]string{"default": {"1"}}},
		{name: "old view", files: map[string]string{"r.jsonl": ab, "s.jsonl": "{\"id\":\"c\",\"n\":3}\n"},
			setup: []string{"pack r.jsonl out --key id --attr n=n", "select out --where n>1 --name v", "pack s.jsonl out --key id --attr n=n --append"}, args: []string{"cat", "out#v"},
			give: map[string][]string{"select --carry": {"out", "--name", "v"}}},
		{name: "changed mix", files: map[string]string{"r.jsonl": ab, "mix.yaml": whole, "other.yaml": strings.Replace(whole, "6", "5", 1)},
			setup: []string{"pack r.jsonl rows", "pack r.jsonl more", "cat mix.yaml --global-batch 1 --limit 1 --checkpoint-out c"}, args: []string{"cat", "other.yaml", "--limit", "1", "--checkpoint-in", "c"}},
		{name: "path", files: map[string]string{"in/r.jsonl": "{\"id\":\"a\",\"f\":\"DIR/x/a.jpg\"}\n", "x/a.jpg": "jpeg"}, args: []string{"pack", "in/r.jsonl", "out", "--file-column", "image=f"},
			give: map[string][]string{"file-root": {"x"}}},
		{name: "no path", files: map[string]string{"r.jsonl": "{\"id\":\"a\",\"f\":null}\n{\"id\":\"b\",\"f\":\"a.jpg\"}\n", "a.jpg": "jpeg"}, args: []string{"pack", "r.jsonl", "out", "--file-column", "image=f"},
			give: map[string][]string{"where": {"f is not null"}}},
		{name: "wrong type", files: map[string]string{"r.jsonl": strings.Repeat("{\"id\":\"c\",\"n\":4,\"x\":\""+strings.Repeat("x", 1000)+"\"}\n", 3000) + "{\"id\":\"d\",\"n\":\"x\"}\n"}, args: []string{"pack", "r.jsonl", "out", "--attr", "n=n"},
			give: map[string][]string{"where": {"id != d"}}},
		{name: "null key", files: map[string]string{"r.jsonl": ab + "{\"id\":null,\"n\":4}\n"}, args: []string{"pack", "r.jsonl", "out", "--key", "id"}, give: map[string][]string{"where": {"id is not null"}}},
		{name: "empty key", files: map[string]string{"r.csv": "id,n\na,1\n\"\",2\n"}, args: []string{"pack", "r.csv", "out", "--key", "id"}, give: map[string][]string{"where": {"id!="}}},
		{name: "nan", files: map[string]string{"r.jsonl": "{\"id\":\"a\",\"n\":NaN}\n"}, args: []string{"pack", "r.jsonl", "out"}},
		{name: "quote", files: map[string]string{"r.csv": "id,n\na,\"b\nc,d\n"}, args: []string{"pack", "r.csv", "out"}},
		{name: "header", files: map[string]string{"r.csv": "0.5,2\n1.5,4\n"}, args: []string{"pack", "r.csv", "out"}, give: map[string][]string{"columns-are": {"a,b"}}},
		{name: "null row", files: map[string]string{"r.jsonl": ab + "{\"id\":\"c\",\"n\":null}\n"}, args: []string{"pack", "r.jsonl", "out", "--key", "id", "--columns", "n"}},
		{name: "pickle", args: []string{"pack", "TESTDATA/mds/pkl", "out"}},
		{name: "unknown row", files: map[string]string{"r.jsonl": ab, "l.jsonl": "{\"k\":\"a\",\"j\":\"a\"}\n{\"k\":\"z\",\"j\":\"b\"}\n"}, setup: []string{"pack r.jsonl out --key id"},
			args: []string{"layer", "add", "out", "l", "l.jsonl", "--key", "k", "--missing", "allow"}, give: map[string][]string{"key": {"j"}}},
		{name: "missing row", files: map[string]string{"r.jsonl": ab, "l.jsonl": "{\"id\":\"a\",\"x\":1}\n"}, setup: []string{"pack r.jsonl out --key id"}, args: []string{"layer", "add", "out", "l", "l.jsonl", "--key", "id"}},
		{name: "large blocks", files: map[string]string{"r.jsonl": "{\"id\":\"a\",\"n\":1}\n", "l.jsonl": "{\"id\":\"a\",\"x\":\"" + strings.Repeat("x", 17<<20) + "\"}\n"}, setup: []string{"pack r.jsonl out --key id"},
			args: []string{"layer", "add", "out", "l", "l.jsonl", "--key", "id"}},
		{name: "no length", files: map[string]string{"s/a.n.npy": npyRow, "s/a.txt": "a", "s/b.txt": "b", "s/b.n.npy": "no array"}, args: []string{"pack", "s", "out", "--attr", "len=len(n.npy)"}},
		{name: "no rows", files: map[string]string{"s/a.n.npy": npyRow, "s/b.txt": "b"}, args: []string{"pack", "s", "out", "--layout", "stacked"}},
		{name: "range", files: map[string]string{"d.jsonl": "{\"t\":[1,70000]}\n"}, args: []string{"pack", "d.jsonl", "out", "--pack-tokens", "1", "--separator", "none", "--token-dtype", "uint16"},
			give: map[string][]string{"dtype": {"int32"}}},
		{name: "field", files: map[string]string{"d.jsonl": "{\"t\":[1,2],\"u\":[1,2]}\n"}, args: []string{"pack", "d.jsonl", "out", "--pack-tokens", "1", "--separator", "none"}, give: map[string][]string{"from": {"t"}}},
		{name: "form", files: map[string]string{"r.jsonl": ab}, setup: []string{"pack r.jsonl out"}, args: []string{"export", "out", "to", "--as", "webdataset"}},
		{name: "little memory", files: map[string]string{"r.jsonl": strings.Repeat(ab, 1000)}, setup: []string{"pack r.jsonl out --block-size 4KiB"}, args: []string{"order", "out", "--shuffle", "--lanes", "8", "--run-blocks", "2", "--shuffle-memory", "200KiB"},
			give: map[string][]string{"shuffle-memory": {"1GiB"}, "lanes": {"1"}, "run-blocks": {"1"}}},
		{name: "least memory", files: map[string]string{"r.jsonl": strings.Repeat(ab, 1000)}, setup: []string{"pack r.jsonl out --block-size 4KiB"}, args: []string{"order", "out", "--shuffle", "--shuffle-memory", "1KiB"},
			give: map[string][]string{"shuffle-memory": {"1GiB"}}},
		{name: "equal archives", files: map[string]string{"a.tar": tarOne, "b.tar": tarOne}, args: []string{"pack", "a.tar", "b.tar", "out", "--samples-per-shard", "1"}},
		{name: "small batch", files: map[string]string{"r.jsonl": ab}, setup: []string{"pack r.jsonl out"}, args: []string{"order", "out", "--rank", "0", "--world-size", "1", "--tail", "drop", "--global-batch", "100"},
			give: map[string][]string{"global-batch": {"2"}, "tail": {"short"}}},
		{name: "lines on stdin", files: map[string]string{"stdin": ab}, args: []string{"pack", "-", "out"}},
		{name: "widen", files: map[string]string{"r.arrow": arrowOf(arrow.PrimitiveTypes.Int64), "s.arrow": arrowOf(arrow.PrimitiveTypes.Float64)}, args: []string{"pack", "r.arrow", "s.arrow", "out"}},
	}
}

// npyRow is an array of two bytes.
var npyRow = "\x93NUMPY\x01\x00\x36\x00" + fmt.Sprintf("%-53s\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }") + "ab"

// arrowOf returns an Arrow stream of one row, whose column n holds 1.
func arrowOf(t arrow.DataType) string {
	var text bytes.Buffer
	of := arrow.NewSchema([]arrow.Field{{Name: "n", Type: t}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, of)
	w := ipc.NewWriter(&text, ipc.WithSchema(of))
	if err := errors.Join(b.Field(0).AppendValueFromString("1"), w.Write(b.NewRecord()), w.Close()); err != nil {
		panic(err)
	}
	return text.String()
}

// tarOne is an archive of one file.
var tarOne = func() string {
	var text strings.Builder
	w := tar.NewWriter(&text)
	if err := w.WriteHeader(&tar.Header{Name: "0.txt", Size: 1, Mode: 0o644}); err != nil {
		panic(err)
	}
	_, err := w.Write([]byte("x"))
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return text.String()
}()

const (
	afterwards  = "what is done with a data set after the pack: TestAfterwards"
	swappedHint = "the source and the data set in the other order: TestSwapped"
)

// unfollowed are hints that no command of complaints can show.
var unfollowed = map[string]string{
	"memory":                         "pages of Parquet and answers to a loader of more than the memory: tested below writer/source/parquet and in Python",
	"mode overwrite":                 "the hint for a Writer in Python: tested there",
	"layout auto":                    "as the layout of samples",
	"pack OUT NEW --rename JPEG=jpg": afterwards, "pack OUT NEW --share 0%..90%": afterwards,
	"layer add OUT NAME TABLE --key id --attr score=score": afterwards,
	"pack --append": swappedHint, "pack --overwrite": swappedHint, "pack": swappedHint,
}

// TestHintsFollowed does what each hint says: the complaint is gone.
func TestHintsFollowed(t *testing.T) {
	if testing.Short() {
		t.Skip("one command after another: make test runs it without the race detector")
	}
	testdata, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	seen := map[string]bool{}
	for _, c := range complaints() {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.args {
				c.args[i] = strings.ReplaceAll(c.args[i], "TESTDATA", testdata)
			}
			c.begin(t)
			was := execute(t.Context(), c.args...)
			hints := hint.Of(was)
			if len(hints) == 0 {
				t.Fatalf("no hint: %v", was)
			}
			for _, h := range hints {
				seen[named(h)] = true
				c.begin(t)
				args := slices.Clone(c.args)
				if h.Option != "" {
					args = append(args, c.flag(t, h)...)
				} else if err := execute(t.Context(), slices.Concat(h.Command, c.give[strings.Join(h.Command, " ")])...); err != nil {
					t.Errorf("shardtool %q: %v", h.Command, err)
				} else if slices.Contains(h.Command, "--help") {
					continue
				}
				is := execute(t.Context(), args...)
				if is != nil && (is.Error() == was.Error() || slices.ContainsFunc(hint.Of(is), func(g hint.Hint) bool { return named(g) == named(h) }) || exitCode(is) == exitUsage) {
					t.Errorf("after %s: %v\nbefore: %v", named(h), is, was)
				}
			}
		})
	}
	for _, h := range hintsInCode(t) {
		if !seen[h] && unfollowed[h] == "" {
			t.Errorf("nothing follows the hint %q: add a command that shows it to complaints", h)
		}
	}
}

// begin changes to a new folder with the files and data sets of a complaint.
func (c *complaint) begin(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range c.files {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		putFile(t, name, strings.ReplaceAll(text, "DIR", dir))
	}
	for _, command := range c.setup {
		command, fails := strings.CutPrefix(command, "!")
		if err := execute(t.Context(), strings.Fields(command)...); (err != nil) != fails {
			t.Fatalf("%s: %v", command, err)
		}
	}
}

// flag is the flag that a hint is printed as, with a value.
func (c *complaint) flag(t *testing.T, h hint.Hint) []string {
	t.Helper()
	words := strings.SplitN(setFlag(h), " ", 2)
	if h.Value == "" {
		if c.give[h.Option] == nil {
			t.Fatalf("no value for the hint %+v", h)
		}
		words = append(words, c.give[h.Option]...)
	}
	return words
}

// named is a hint in few words: the option with its value, or the command.
func named(h hint.Hint) string {
	if h.Option == "" {
		return strings.Join(h.Command, " ")
	}
	return strings.TrimSpace(h.Option + " " + h.Value)
}

// hintsInCode are the hints that the packages of the module make.
func hintsInCode(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "python", "hint", "bench", "test"}, d.Name())) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("hint.")) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if name := madeHint(n); name != "" {
				all = append(all, name)
			}
			return true
		})
		return nil
	})
	if err != nil || len(all) < 20 {
		t.Fatal(len(all), err)
	}
	return all
}

// madeHint is the name of the hint that an expression makes of constants.
func madeHint(n ast.Node) string {
	words := func(args []ast.Expr) (all []string) {
		for _, arg := range args {
			if literal, ok := arg.(*ast.BasicLit); ok {
				text, _ := strconv.Unquote(literal.Value)
				all = append(all, text)
			}
		}
		return all
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			break
		}
		if from, ok := f.X.(*ast.Ident); !ok || from.Name != "hint" {
			break
		}
		args := words(n.Args)
		switch f.Sel.Name {
		case "Option":
			return strings.Join(args, " ")
		case "Set":
			if len(args) == 3 {
				return args[0] + " " + args[1]
			}
		case "Command":
			return strings.Join(args[1:], " ")
		}
	case *ast.CompositeLit:
		if f, ok := n.Type.(*ast.SelectorExpr); ok && f.Sel.Name == "Hint" && len(n.Elts) > 0 {
			if pair, ok := n.Elts[0].(*ast.KeyValueExpr); ok {
				return strings.Join(words([]ast.Expr{pair.Value}), " ")
			}
		}
	}
	return ""
}
