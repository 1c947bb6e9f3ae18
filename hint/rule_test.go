package hint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// foreign are the files that read the text of errors of other programs' libraries, which have no
// type, with what they look for.
var foreign = map[string]string{
	"objstore/local/errors.go":                     "package os does not export the error of a path that leads out of a root",
	"objstore/s3/errors.go":                        "the SDK has no type for missing credentials",
	"objstore/internal/ranged/answer.go":           "decoders of JSON and XML have no type for an end",
	"objstore/internal/ranged/http.go":             "package http has no type for a server without TLS",
	"objstore/internal/credentials/credentials.go": "secrets in an error of a library are masked",
	"objstore/internal/credentials/microsoft.go":   "azidentity has advice on further lines of an error",
	"internal/format/codec/codec.go":               "the decoder's errors begin with its name",
	"writer/source/parquet/elements.go":            "the decoder's errors begin with its name",
}

// TestRule: nothing reads or edits the text of an error, and no text begins with the name of a
// package.
func TestRule(t *testing.T) {
	root, files := "..", 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if base := d.Name(); path != root && (base == "testdata" || base == "storetest" || strings.HasPrefix(base, ".") || slices.Contains([]string{"test", "bench", "python", "docs"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil && foreign[filepath.ToSlash(name)] == "" {
					for _, at := range reading(n.Body) {
						t.Errorf("%v: it reads or edits the text of an error: use errors.Is, errors.As or a hint", set.Position(at))
					}
				}
			case *ast.CallExpr:
				if text, ok := errorText(n); ok && strings.HasPrefix(text, file.Name.Name+": ") {
					t.Errorf("%v: the text of an error begins with the name of its package: %s", set.Position(n.Pos()), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || files < 300 {
		t.Fatal(files, err)
	}
}

// reading returns where a function passes the text of an error to package strings or to a pattern,
// or compares it.
func reading(body *ast.BlockStmt) (at []token.Pos) {
	texts := map[string]bool{} // variables with the text of an error
	is := func(e ast.Expr) bool {
		if name, ok := e.(*ast.Ident); ok {
			return texts[name.Name]
		}
		call, ok := e.(*ast.CallExpr)
		if !ok || len(call.Args) > 0 {
			return false
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Error"
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if name, ok := n.Lhs[i].(*ast.Ident); ok && is(right) {
					texts[name.Name] = true
				}
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (is(n.X) || is(n.Y)) {
				literal, empty := n.Y.(*ast.BasicLit)
				if !(empty && literal.Value == `""`) && !(is(n.X) && is(n.Y)) { // none, or the same error twice
					at = append(at, n.Pos())
				}
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || !slices.ContainsFunc(n.Args, is) {
				break
			}
			from, ok := f.X.(*ast.Ident)
			pattern := strings.HasPrefix(f.Sel.Name, "Find") || strings.HasPrefix(f.Sel.Name, "Match") || strings.HasPrefix(f.Sel.Name, "Replace")
			if ok && (from.Name == "strings" && f.Sel.Name != "ToValidUTF8" || pattern) {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

// errorText returns the literal with which a call makes an error.
func errorText(call *ast.CallExpr) (text string, ok bool) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || f.Sel.Name != "Errorf" && f.Sel.Name != "New" {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
