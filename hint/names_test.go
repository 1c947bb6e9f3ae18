package hint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere are names in comments that are not of this module's code: of formats, systems and other
// programs.
var elsewhere = strings.Fields(`
	AmazonS3 BinaryView CanonicalExtensions DatasetInfo DuckDB ErrorResponses FixedSizeBinary GitHub IndexedDataset LargeBinary MessageReader RepoFile
	S3Mock SchemaElement SplitMix64 StringView TiB
`)

// TestNames: names of code in comments exist: a contract that names what is gone misleads.
func TestNames(t *testing.T) {
	set, known := token.NewFileSet(), map[string]bool{}
	for _, name := range elsewhere {
		known[name] = true
	}
	var files []*ast.File
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); path != ".." && (base == "testdata" || strings.HasPrefix(base, ".") || base == "python") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				known[n.Name] = true
			case *ast.BasicLit: // names of formats, headers and variables of the environment
				for _, word := range words.FindAllString(n.Value, -1) {
					known[word] = true
				}
			}
			return true
		})
		files = append(files, file)
		return nil
	})
	if err != nil || len(files) < 300 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				for _, name := range camel.FindAllString(c.Text, -1) {
					if !slices.ContainsFunc([]string{name, strings.TrimSuffix(name, "s")}, func(n string) bool { return known[n] }) {
						t.Errorf("%v: no code has the name %s", set.Position(c.Pos()), name)
					}
				}
			}
		}
	}
}

var (
	words = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9]*\b`)
	camel = regexp.MustCompile(`\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b`)
)
