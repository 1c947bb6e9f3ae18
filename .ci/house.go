// Command house measures the structure of the Go code, with the standard library alone.
//
//	go run .ci/house.go [-json] [DIR]
//
// For each package it prints the lines of code (no blank lines, no comments), the exported names,
// and the dependencies between its files that run back up. It then prints the totals, the largest
// structs by fields, and the blocks of lines that occur twice.
//
// Tests, benchmarks and test support are left out: files that end in _test.go, the folders bench,
// test and testdata, and packages whose name ends in "test" or "testset".
//
// Dependencies between files: file A depends on file B when A uses a name that B declares. The
// files of a package are placed in an order that keeps as many of these arrows pointing down as the
// heuristic of Eades, Lin and Smyth ("A fast and effective heuristic for the feedback arc set
// problem", 1993) finds; an arrow against that order runs back up. A package without cycles
// between its files has none.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// duplicateLines is how many lines of code in a row must be equal to count as a duplicate.
const duplicateLines = 6

type report struct {
	Code     int      `json:"code"`
	Exports  int      `json:"exports"`
	Up       int      `json:"arrows_up"`
	Arrows   int      `json:"arrows"`
	Packages []pkg    `json:"packages"`
	Structs  []record `json:"largest_structs"`
	Twice    []record `json:"duplicate_blocks"`
}

type pkg struct {
	Dir     string `json:"package"`
	Files   int    `json:"files"`
	Code    int    `json:"code"`
	Exports int    `json:"exports"`
	Arrows  int    `json:"arrows"`
	Up      int    `json:"arrows_up"`
}

type record struct {
	Place string `json:"place"`
	Count int    `json:"count"`
}

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	r, err := measure(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		enc.Encode(r)
		return
	}
	r.print()
}

func (r *report) print() {
	fmt.Printf("%-34s %5s %6s %7s %6s %4s\n", "package", "files", "code", "exports", "arrows", "up")
	for _, p := range r.Packages {
		fmt.Printf("%-34s %5d %6d %7d %6d %4d\n", p.Dir, p.Files, p.Code, p.Exports, p.Arrows, p.Up)
	}
	fmt.Printf("%-34s %5s %6d %7d %6d %4d\n\n", "all", "", r.Code, r.Exports, r.Arrows, r.Up)
	fmt.Println("largest structs, by fields")
	for _, s := range r.Structs {
		fmt.Printf("%5d  %s\n", s.Count, s.Place)
	}
	fmt.Printf("\nblocks of %d or more lines that occur twice: %d\n", duplicateLines, len(r.Twice))
	for _, d := range r.Twice[:min(len(r.Twice), 20)] {
		fmt.Printf("%5d  %s\n", d.Count, d.Place)
	}
}

func measure(root string) (*report, error) {
	dirs := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			switch {
			case path == root:
				return nil
			case strings.HasPrefix(name, "."), name == "bench" && filepath.Dir(path) == filepath.Clean(root),
				name == "testdata", name == "test", name == "storetest", name == "testset":
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			dirs[filepath.Dir(path)] = append(dirs[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := new(report)
	var lines []codeLine
	for dir, paths := range dirs {
		p := pkg{Dir: dir, Files: len(paths)}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			code := codeLines(path, src)
			lines = append(lines, code...)
			p.Code += len(code)
			f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
			p.Exports += exports(f)
			r.Structs = append(r.Structs, structs(fset, f)...)
		}
		p.Arrows, p.Up = arrows(fset, files)
		r.Packages = append(r.Packages, p)
		r.Code, r.Exports, r.Arrows, r.Up = r.Code+p.Code, r.Exports+p.Exports, r.Arrows+p.Arrows, r.Up+p.Up
	}
	slices.SortFunc(r.Packages, func(a, b pkg) int { return strings.Compare(a.Dir, b.Dir) })
	byCount := func(a, b record) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Place, b.Place)
	}
	slices.SortFunc(r.Structs, byCount)
	r.Structs = r.Structs[:min(len(r.Structs), 10)]
	r.Twice = duplicates(lines)
	slices.SortFunc(r.Twice, byCount)
	return r, nil
}

type codeLine struct {
	path string
	line int
	text string

	imports bool // part of an import declaration, which may be equal anywhere
}

// codeLines returns the lines of src that hold a token other than a comment.
func codeLines(path string, src []byte) []codeLine {
	fset := token.NewFileSet()
	file := fset.AddFile(path, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	held := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // inserted by the scanner
		}
		first := file.Line(pos)
		for n := range strings.Count(lit, "\n") + 1 {
			held[first+n] = true
		}
	}
	var lines []codeLine
	imports := false
	for i, text := range strings.Split(string(src), "\n") {
		if held[i+1] {
			imports = imports && text != ")" || text == "import ("
			lines = append(lines, codeLine{path, i + 1, strings.TrimSpace(text), imports})
		}
	}
	return lines
}

// exports counts the exported functions and types of a file, and the exported methods of exported
// types. So counted, archive/zip has 34. Fields, constants and variables are not counted.
func exports(f *ast.File) (n int) {
	count := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				count(d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok {
					count(t.Name)
				}
			}
		}
	}
	return n
}

// receiver is the name of the type that d is a method of.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func structs(fset *token.FileSet, f *ast.File) (found []record) {
	ast.Inspect(f, func(n ast.Node) bool {
		t, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := t.Type.(*ast.StructType); ok {
			found = append(found, record{fset.Position(t.Pos()).Filename + ": " + t.Name.Name, s.Fields.NumFields()})
		}
		return true
	})
	return found
}

// arrows counts the dependencies between the files of a package, and those that run back up.
func arrows(fset *token.FileSet, files []*ast.File) (all, up int) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	// Imports are not followed: names of other packages are no arrows here, and errors are expected.
	conf := types.Config{Error: func(error) {}, FakeImportC: true}
	if len(files) == 0 {
		return 0, 0
	}
	own, _ := conf.Check(files[0].Name.Name, fset, files, info)
	edges := map[string]map[string]bool{}
	for use, object := range info.Uses {
		if object.Pkg() != own || object.Pos() == token.NoPos {
			continue
		}
		from, to := fset.Position(use.Pos()).Filename, fset.Position(object.Pos()).Filename
		if from == to || to == "" {
			continue
		}
		if edges[from] == nil {
			edges[from] = map[string]bool{}
		}
		edges[from][to] = true
	}
	place := arrange(edges)
	for from, targets := range edges {
		for to := range targets {
			all++
			if place[from] > place[to] {
				up++
			}
		}
	}
	return all, up
}

// arrange places the files so that few edges point from a later place to an earlier one: a file
// that nothing uses goes first, one that uses nothing goes last, and else the one with the largest
// surplus of edges out goes first.
func arrange(edges map[string]map[string]bool) map[string]int {
	left := map[string]bool{}
	for from, targets := range edges {
		left[from] = true
		for to := range targets {
			left[to] = true
		}
	}
	var first, last []string
	for len(left) > 0 {
		names := make([]string, 0, len(left))
		for name := range left {
			names = append(names, name)
		}
		slices.Sort(names)
		in, out := map[string]int{}, map[string]int{}
		for _, from := range names {
			for to := range edges[from] {
				if left[to] {
					out[from]++
					in[to]++
				}
			}
		}
		best := names[0]
		for _, name := range names {
			if out[name]-in[name] > out[best]-in[best] {
				best = name
			}
		}
		for _, name := range names {
			if out[name] == 0 {
				best = name
				break
			}
		}
		delete(left, best)
		if out[best] == 0 {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
	}
	slices.Reverse(last)
	place := map[string]int{}
	for i, name := range append(first, last...) {
		place[name] = i
	}
	return place
}

// duplicates returns the runs of equal lines in two places, the longest run at each place.
func duplicates(lines []codeLine) (found []record) {
	slices.SortFunc(lines, func(a, b codeLine) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		return a.line - b.line
	})
	seen := map[string]int{}
	for i := 0; i+duplicateLines <= len(lines); i++ {
		key, letters := "", 0
		for _, l := range lines[i : i+duplicateLines] {
			key += l.text + "\n"
			if len(l.text) > 3 {
				letters++
			}
		}
		if slices.ContainsFunc(lines[i:i+duplicateLines], func(l codeLine) bool { return l.imports }) || lines[i].path != lines[i+duplicateLines-1].path || letters < duplicateLines-1 {
			continue
		}
		at, twice := seen[key]
		if !twice {
			seen[key] = i
			continue
		}
		n := duplicateLines
		for i+n < len(lines) && lines[i+n].text == lines[at+n].text &&
			lines[i+n].path == lines[i].path && lines[at+n].path == lines[at].path && at+n < i {
			n++
		}
		found = append(found, record{fmt.Sprintf("%s:%d and %s:%d", lines[at].path, lines[at].line,
			lines[i].path, lines[i].line), n})
		i += n - 1
	}
	return found
}
