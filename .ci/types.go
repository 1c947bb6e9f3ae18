// Command types checks the types of packages and their tests for another system, such as macOS, as
// the compiler does, in a tenth of its time.
//
//	go run .ci/types.go darwin ./...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	DepOnly         bool
	Module          *struct{ GoVersion string }
}

func main() {
	n, err := check(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d packages, those of tests among them, have right types on %s\n", n, os.Args[1])
}

// check returns the number of packages that patterns match.
func check(system string, patterns []string) (n int, err error) {
	args := []string{"list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,DepOnly,Module", "--"}
	list := exec.Command("go", append(args, patterns...)...)
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := list.Start(); err != nil {
		return 0, err
	}
	var wrong []error
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	for in := json.NewDecoder(out); ; { // a package comes after those that it imports
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // a program, which go test writes
			continue
		}
		if !p.DepOnly {
			n++
		}
		of, err := p.check(done)
		done[p.ImportPath] = of
		if !p.DepOnly {
			wrong = append(wrong, err)
		}
	}
	return n, errors.Join(append(wrong, list.Wait())...)
}

// importer finds imports among packages that were checked.
type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }

// check returns the package with its types. Functions of other modules have no bodies.
func (p *listed) check(done map[string]*types.Package) (*types.Package, error) {
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	var wrong []error
	config := types.Config{
		IgnoreFuncBodies: p.DepOnly,
		FakeImportC:      true,
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		Error:            func(err error) { wrong = append(wrong, err) },
		Importer: importer(func(path string) (*types.Package, error) {
			if to, ok := p.ImportMap[path]; ok {
				path = to
			}
			if of := done[path]; of != nil {
				return of, nil
			}
			return nil, fmt.Errorf("no package %s", path)
		}),
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	of, _ := config.Check(p.ImportPath, set, files, nil)
	return of, errors.Join(wrong...)
}
