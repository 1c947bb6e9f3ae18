package outside_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPublic compiles a program that names everything that the public packages export. A new type,
// field, function or method is in it without a change of this test.
func TestPublic(t *testing.T) {
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	p := write(all)
	for _, fault := range p.faults {
		t.Errorf("%s: export an alias of the type from a package outside internal, or do not export what needs it", fault)
	}
	if n := p.counts; n.packages < 30 || n.literals < 150 || n.functions < 120 || n.methods < 300 {
		t.Errorf("%+v: the packages are not found any more", n)
	}
	if err := compile(t.TempDir(), map[string][]byte{"public": p.file("public")}); err != nil {
		t.Error(err)
	}
	var paths []string
	for _, pkg := range all {
		paths = append(paths, strings.TrimPrefix(pkg.Path(), root+"/"))
	}
	for _, folder := range folders(t) {
		if !slices.Contains(paths, folder) {
			t.Errorf("outside.go does not import %s", folder)
		}
	}
}

// folders are the folders of the public packages.
func folders(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, filepath.Clean("../..")+string(filepath.Separator)))
		if d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || !public(root+"/"+name)) {
			return filepath.SkipDir
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !slices.Contains(all, folder) {
			all = append(all, folder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestHidden: what a program outside cannot write is found, wherever it is.
func TestHidden(t *testing.T) {
	set := token.NewFileSet()
	check := func(path, text string, from map[string]*types.Package) *types.Package {
		t.Helper()
		file, err := parser.ParseFile(set, "x.go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		conf := types.Config{Importer: known(from)}
		pkg, err := conf.Check(root+"/"+path, set, []*ast.File{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return pkg
	}
	inner := check("internal/inner", "package inner; type T struct{ N int }; func (T) More() U { return 0 }; type U int; type G[P any] struct{ X P }", nil)
	for text, want := range map[string]string{
		"type S struct { A []map[string]*inner.T }":                           "public.S.A needs internal/inner.T",
		"func F(f func(...inner.U)) {}":                                       "public.F needs internal/inner.U",
		"type S struct { own }; type own struct { T *inner.U }":               "", // T cannot be written in a literal of S
		"type S struct { own }; type own struct {}; func (own) M(inner.U) {}": "public.S.M needs internal/inner.U",
		"type I interface { M() inner.T }":                                    "public.I.M needs internal/inner.T",
		"type I interface { m() }":                                            "public.I: nobody else can implement it",
		"type S struct { T }; type T = inner.T":                               "public.S.More needs internal/inner.U",
		"type T = inner.T; type U = inner.U; func F() (t T) {return}":         "",
		"type G = inner.G[int]; var V inner.G[int]":                           "",
		"type S struct { t inner.T }":                                         "",
		"func F() own { return 0 }; type own int":                             "public.F needs public.own",
		"const C = inner.U(1)":                                                "public.C needs internal/inner.U",
	} {
		pkg := check("public", "package public; import \"github.com/shardtool/shardtool/internal/inner\"; var _ inner.T; "+text,
			map[string]*types.Package{inner.Path(): inner})
		got := strings.Join(write([]*types.Package{pkg}).faults, "; ")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// known imports packages by their paths.
type known map[string]*types.Package

func (k known) Import(path string) (*types.Package, error) { return k[path], nil }

// TestExamples: every public package has an example that runs.
func TestExamples(t *testing.T) {
	for _, folder := range folders(t) {
		if strings.HasPrefix(folder, "objstore/storetest") && folder != "objstore/storetest/mem" {
			continue // they need a *testing.T, which an example does not have
		}
		names, err := filepath.Glob("../../" + folder + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		if !slices.ContainsFunc(doc.Examples(files...), func(e *doc.Example) bool { return e.Output != "" }) {
			t.Errorf("package %s has no example with an output", folder)
		}
	}
}
