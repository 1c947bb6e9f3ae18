// Command house prints the structure of the code, with the standard library alone: lines by package
// and by folder, the largest structs, and the packages that each package imports. It only counts:
// nothing fails by a figure. Run it in the folder of go.mod.
//
// Lines of code hold more than a comment; docstrings of Python are comments. The product is all Go
// code but tests, benchmarks and test support: files that end in _test.go, the folders bench and
// test, and packages named testdata, storetest or testset.
//
// It prints:
//
//   - by package: lines of code, the floor, exports and arrows up. The floor of a package that
//     imports none of the project is 0; another is one floor above the highest that it imports.
//   - exports: the exported functions and types of public packages (not internal, not main) and the
//     exported methods of these types; also the methods of a type of another package that a public
//     alias leads to. So counted, archive/zip has 34. Fields, constants and variables are not counted.
//   - arrows up: the dependencies between files of a package that run back up. File A depends on
//     file B when A uses a name that B declares. The files of a package are placed in an order with
//     few arrows that run back up: first as Eades, Lin and Smyth do ("A fast and effective heuristic
//     for the feedback arc set problem", 1993), then each file moves to its best place until none has
//     a better one.
//   - the largest structs: a struct has its own fields, and in place of an embedded struct of the
//     project the fields of that.
//   - lines by folder of the top level: bench is Go without tests and Python, python is the package.
//   - with -graph instead: the packages by floor, each with what it imports of the project.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	graph := flag.Bool("graph", false, "print which packages import which")
	flag.Parse()
	h, err := measure()
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if *graph {
		h.graph()
		return
	}
	h.print()
}

func (h *house) print() {
	fmt.Printf("%-34s %6s %6s %7s %9s\n", "package", "code", "floor", "exports", "arrows up")
	folders := map[string]int{"bench": h.bench, "python": h.python}
	product, arrows, all := 0, 0, 0
	for _, p := range h.packages {
		exports := "-"
		if p.public {
			exports = fmt.Sprint(p.exports)
		}
		fmt.Printf("%-34s %6d %6d %7s %9d\n", p.dir, p.code, h.floor(p.dir), exports, p.up)
		top, _, _ := strings.Cut(p.dir, "/")
		folders[top] += p.code
		product += p.code
		arrows += p.up
		all += p.exports
	}
	fmt.Println("\nlargest structs, by fields")
	for _, s := range h.structs[:min(len(h.structs), 10)] {
		fmt.Printf("%6d  %s\n", s.fields, s.place)
	}
	fmt.Println("\nlines by folder")
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		fmt.Printf("%6d  %s\n", folders[name], name)
	}
	fmt.Printf("\n%6d  lines of the product\n%6d  exports\n%6d  arrows up\n", product, all, arrows)
}

// graph prints the packages, the highest floor first, each with what it imports.
func (h *house) graph() {
	order := slices.Clone(h.packages)
	slices.SortStableFunc(order, func(a, b pkg) int { return h.floor(b.dir) - h.floor(a.dir) })
	for _, p := range order {
		fmt.Printf("%2d  %s", h.floor(p.dir), p.dir)
		if uses := h.uses[p.dir]; len(uses) > 0 {
			fmt.Printf(" -> %s", strings.Join(slices.Sorted(maps.Keys(uses)), " "))
		}
		fmt.Println()
	}
}

// floor is the length of the longest chain of imports below a package. Go has no cycles of imports.
func (h *house) floor(dir string) (floor int) {
	for use := range h.uses[dir] {
		floor = max(floor, 1+h.floor(use))
	}
	return floor
}

type house struct {
	packages []pkg
	structs  []structSize
	uses     map[string]map[string]bool // what a package imports of the project

	bench, python int
}

type pkg struct {
	dir    string
	public bool

	code, exports, up int
}

type structSize struct {
	place  string
	fields int
}

// measure reads the tree below the current folder.
func measure() (*house, error) {
	module, err := os.ReadFile("go.mod")
	if err != nil {
		return nil, err
	}
	h, names := &house{uses: map[string]map[string]bool{}}, declared{}
	dirs := map[string][]string{}
	fset := token.NewFileSet()
	parsed := map[string][]*source{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		switch name := d.Name(); {
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") ||
			slices.Contains([]string{"testdata", "test", "storetest", "testset"}, name)):
			return fs.SkipDir
		case d.IsDir(), strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"), strings.HasSuffix(name, ".py"):
			dirs[filepath.ToSlash(filepath.Dir(path))] = append(dirs[filepath.ToSlash(filepath.Dir(path))], path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	prefix := strings.Fields(string(module))[1] + "/" // the file begins with "module PATH"
	for dir, paths := range dirs {
		inBench := dir == "bench" || strings.HasPrefix(dir, "bench/")
		p := pkg{dir: dir}
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(path, ".py") {
				switch n := pythonLines(string(src)); {
				case inBench:
					h.bench += n
				case strings.HasPrefix(path, "python/src/"):
					h.python += n
				}
				continue
			}
			code := lines(src)
			if inBench {
				h.bench += code
				continue
			}
			p.code += code
			f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			s := &source{dir: dir, file: f, imports: imports(f, prefix)}
			if h.uses[dir] == nil {
				h.uses[dir] = map[string]bool{}
			}
			for _, used := range s.imports {
				h.uses[dir][used] = true
			}
			parsed[dir] = append(parsed[dir], s)
			names.add(s)
			p.public = f.Name.Name != "main" && !strings.Contains("/"+dir+"/", "/internal/")
		}
		if p.code > 0 {
			h.packages = append(h.packages, p)
		}
	}
	slices.SortFunc(h.packages, func(a, b pkg) int { return strings.Compare(a.dir, b.dir) })
	public := map[string]bool{}
	for _, p := range h.packages {
		public[p.dir] = p.public
	}
	reached := map[string]bool{}
	for i := range h.packages {
		p := &h.packages[i]
		var files []*ast.File
		for _, s := range parsed[p.dir] {
			files = append(files, s.file)
			h.structs = append(h.structs, names.structs(fset, s)...)
			if !p.public {
				continue
			}
			p.exports += exports(s.file)
			for _, key := range names.aliases(s) {
				if !reached[key] && !public[names[key].in.dir] {
					reached[key] = true
					p.exports += names[key].methods
				}
			}
		}
		p.up = arrows(fset, files)
	}
	slices.SortFunc(h.structs, func(a, b structSize) int {
		return cmp.Or(b.fields-a.fields, strings.Compare(a.place, b.place))
	})
	return h, nil
}

// lines counts the lines of src that hold a token other than a comment.
func lines(src []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	held := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(held)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // inserted by the scanner
		}
		first := file.Line(pos)
		for n := range strings.Count(lit, "\n") + 1 {
			held[first+n] = true
		}
	}
}

// pythonLines counts the lines of code: a string in three quotes that begins a line is a docstring.
func pythonLines(src string) (n int) {
	const quotes = `"""`
	inside, doc := false, false
	for line := range strings.Lines(src) {
		line = strings.TrimSpace(line)
		if !inside {
			doc = strings.HasPrefix(strings.TrimPrefix(line, "r"), quotes)
			if line == "" || line[0] == '#' {
				continue
			}
		}
		if !doc && line != "" {
			n++
		}
		inside = inside != (strings.Count(line, quotes)%2 == 1)
	}
	return n
}

// A source is a file with the folders of the project that it imports, by the names it uses for
// them.
type source struct {
	dir     string
	file    *ast.File
	imports map[string]string
}

func imports(f *ast.File, prefix string) map[string]string {
	found := map[string]string{}
	for _, i := range f.Imports {
		dir, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), prefix)
		if !ours {
			continue
		}
		name := dir[strings.LastIndex(dir, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		found[name] = dir
	}
	return found
}

// declared has the types of the project by folder and name, such as "reader.Stream".
type declared map[string]*typeDecl

type typeDecl struct {
	in      *source
	spec    *ast.TypeSpec
	methods int // exported
}

func (d declared) at(key string) *typeDecl {
	if d[key] == nil {
		d[key] = new(typeDecl)
	}
	return d[key]
}

func (d declared) add(s *source) {
	for _, decl := range s.file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv != nil && decl.Name.IsExported() {
				d.at(s.key(decl.Recv.List[0].Type)).methods++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					at := d.at(s.dir + "." + t.Name.Name)
					at.in, at.spec = s, t
				}
			}
		}
	}
}

// key is the place in declared of the named type that t is or points to, or else has no entry
// there.
func (s *source) key(t ast.Expr) string {
	switch x := bare(t).(type) {
	case *ast.Ident:
		return s.dir + "." + x.Name
	case *ast.SelectorExpr:
		if from, ok := x.X.(*ast.Ident); ok && s.imports[from.Name] != "" {
			return s.imports[from.Name] + "." + x.Sel.Name
		}
	}
	return ""
}

// bare returns the type that t is or points to, without type arguments.
func bare(t ast.Expr) ast.Expr {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		default:
			return t
		}
	}
}

// aliases returns the types of the project that the exported aliases of a file lead to.
func (d declared) aliases(s *source) (keys []string) {
	for _, decl := range s.file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			t, ok := spec.(*ast.TypeSpec)
			if !ok || !t.Assign.IsValid() || !t.Name.IsExported() {
				continue
			}
			key := s.key(t.Type)
			for d[key] != nil && d[key].spec != nil && d[key].spec.Assign.IsValid() {
				key = d[key].in.key(d[key].spec.Type)
			}
			if d[key] != nil && d[key].in != nil {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// structs returns the structs that a file declares, in functions too.
func (d declared) structs(fset *token.FileSet, s *source) (found []structSize) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok {
			if _, ok := t.Type.(*ast.StructType); ok {
				place := filepath.ToSlash(fset.Position(t.Pos()).Filename) + ": " + t.Name.Name
				found = append(found, structSize{place, d.fields(s, t.Type, 0)})
			}
		}
		return true
	})
	return found
}

// fields counts the fields of t; depth ends the way through types that embed each other by
// pointers.
func (d declared) fields(s *source, t ast.Expr, depth int) (n int) {
	st, ok := t.(*ast.StructType)
	if !ok {
		if to := d[s.key(t)]; to != nil && to.spec != nil && depth < 8 {
			return d.fields(to.in, to.spec.Type, depth+1)
		}
		return 0
	}
	for _, f := range st.Fields.List {
		if len(f.Names) > 0 {
			n += len(f.Names)
		} else {
			n += max(1, d.fields(s, f.Type, depth+1))
		}
	}
	return n
}

// exports counts the exported functions and types of a file, and the exported methods of exported
// types.
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
	if name, ok := bare(d.Recv.List[0].Type).(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// arrows counts the dependencies between the files of a package that run back up.
func arrows(fset *token.FileSet, files []*ast.File) (up int) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	// Imports are not followed: names of other packages are no arrows here, and errors are expected.
	conf := types.Config{Error: func(error) {}, FakeImportC: true}
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
			if place[from] > place[to] {
				up++
			}
		}
	}
	return up
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
	files := append(first, last...)
	for moved := true; moved; {
		moved = false
		for _, name := range slices.Sorted(slices.Values(files)) {
			if better := settle(edges, files, name); better != nil {
				files, moved = better, true
			}
		}
	}
	place := map[string]int{}
	for i, name := range files {
		place[name] = i
	}
	return place
}

// settle moves a file to the place where the fewest of its arrows run back up; nil if it is there.
func settle(edges map[string]map[string]bool, files []string, name string) []string {
	at := slices.Index(files, name)
	rest := slices.Delete(slices.Clone(files), at, at+1)
	up := 0 // at the place before rest[i], beside what it is at the first place
	least, best, here := 0, 0, 0
	for i := range len(rest) + 1 {
		if i == at {
			here = up
		}
		if up < least {
			least, best = up, i
		}
		if i < len(rest) && edges[rest[i]][name] {
			up--
		}
		if i < len(rest) && edges[name][rest[i]] {
			up++
		}
	}
	if here == least {
		return nil
	}
	return slices.Insert(rest, best, name)
}
