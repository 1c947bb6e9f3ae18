// Command house measures the structure of the code, with the standard library alone, and keeps it
// from getting worse. Run it in the folder of go.mod.
//
//	go run .ci/house.go           print the figures by package, and the largest structs
//	go run .ci/house.go -check    fail where a figure is worse than .ci/house.txt records
//	go run .ci/house.go -record   record the figures that got better
//	go run .ci/house.go -record -worse    record all figures, also those that got worse
//
// Lines of code hold more than a comment; docstrings of Python are comments. The product is all Go
// code but tests, benchmarks and test support: files that end in _test.go, the folders bench and
// test, and packages named testdata, storetest or testset.
//
// The figures, of which less is better:
//
//   - product_lines, bench_lines, python_lines: lines of code of the product, of bench (Go without
//     tests, and Python) and of the Python package.
//   - public_packages: packages of the product that others can import: not internal, not main.
//   - exports: the exported functions and types of public packages and the exported methods of
//     these types; also the methods of a type of another package that a public alias leads to. So
//     counted, archive/zip has 34. Fields, constants and variables are not counted.
//   - structs_above_20, largest_struct: a struct has its own fields, and in place of an embedded
//     struct of the project the fields of that.
//   - arrows_up: the dependencies between files of a package that run back up; arrows_up:DIR those
//     of a package that has more than 10. File A depends on file B when A uses a name that B
//     declares. The files of a package are placed in an order with few arrows that run back up: first
//     as Eades, Lin and Smyth do ("A fast and effective heuristic for the feedback arc set problem",
//     1993), then each file moves to its best place until none has a better one.
//   - conditions: lines of the product that ask whether something is a mix or in units, as the
//     expression conditions matches them. The files where that question belongs are left out:
//     reader/order, reader/mixfile, reader/engine.go and the packages of orders below internal.
//   - comments_that_of: lines of comments in the product with "those of" or "that of".
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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const recorded = ".ci/house.txt"

const (
	maxFields = 20 // of a struct
	maxUp     = 10 // arrows of a package
)

// asking are the folders whose subject is what a mix or a unit is.
var asking = []string{"reader/order", "reader/mixfile", "internal/mix", "internal/mixing", "internal/units", "internal/view"}

var (
	conditions = regexp.MustCompile(`isMix\(|[mM]ix (!|=)= nil|[uU]nits (!|=)= nil|[iI]nUnits\(\)|isMixCheckpoint\(|\.IsMix|\.Kind (!|=)= ""`)
	thatOf     = regexp.MustCompile(`(?i)\bth(at|ose) of\b`)
)

func main() {
	check := flag.Bool("check", false, "fail where a figure is worse than recorded")
	record := flag.Bool("record", false, "record the figures that got better")
	worse := flag.Bool("worse", false, "with -record: also those that got worse")
	flag.Parse()
	h, err := measure()
	switch {
	case err != nil:
	case *record:
		err = h.record(*worse)
	case *check:
		err = h.check()
	default:
		h.print()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// A figure is a measure of which less is better.
type figure struct {
	name  string
	value int
}

func (h *house) figures() []figure {
	found := []figure{
		{"product_lines", 0}, {"bench_lines", h.bench}, {"python_lines", h.python}, {"public_packages", 0}, {"exports", 0},
		{"structs_above_20", 0}, {"largest_struct", h.structs[0].fields}, {"arrows_up", 0},
		{"conditions", h.conditions}, {"comments_that_of", h.thatOf},
	}
	add := func(name string, n int) {
		i := slices.IndexFunc(found, func(f figure) bool { return f.name == name })
		found[i].value += n
	}
	for _, p := range h.packages {
		add("product_lines", p.code)
		add("exports", p.exports)
		add("arrows_up", p.up)
		if p.public {
			add("public_packages", 1)
		}
		if p.up > maxUp {
			found = append(found, figure{"arrows_up:" + p.dir, p.up})
		}
	}
	for _, s := range h.structs {
		if s.fields > maxFields {
			add("structs_above_20", 1)
		}
	}
	return found
}

func (h *house) print() {
	fmt.Printf("%-34s %6s %7s %9s\n", "package", "code", "exports", "arrows up")
	for _, p := range h.packages {
		exports := "-"
		if p.public {
			exports = fmt.Sprint(p.exports)
		}
		fmt.Printf("%-34s %6d %7s %9d\n", p.dir, p.code, exports, p.up)
	}
	fmt.Println("\nlargest structs, by fields")
	for _, s := range h.structs[:min(len(h.structs), 10)] {
		fmt.Printf("%6d  %s\n", s.fields, s.place)
	}
	fmt.Println()
	for _, f := range h.figures() {
		fmt.Printf("%6d  %s\n", f.value, f.name)
	}
}

// readRecord returns the recorded figures; none if the file is missing.
func readRecord() (map[string]int, error) {
	text, err := os.ReadFile(recorded)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	old := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var f figure
		if _, err := fmt.Sscan(line, &f.name, &f.value); err != nil {
			return nil, fmt.Errorf("%s: %q is not a name and a value", recorded, line)
		}
		old[f.name] = f.value
	}
	return old, nil
}

// check compares with the recorded figures. Each may grow by 0.5 %, rounded down, because a fix may
// need a line; a record takes over only what got better, so this does not add up.
func (h *house) check() error {
	old, err := readRecord()
	if err != nil {
		return err
	}
	var worse []string
	for _, f := range h.figures() {
		limit, known := old[f.name]
		if !known && strings.Contains(f.name, ":") {
			limit = maxUp // a package that had no more
		}
		if limit += limit / 200; f.value > limit {
			worse = append(worse, fmt.Sprintf("%s is %d, and may be %d at most", f.name, f.value, limit))
		}
	}
	if worse == nil {
		return nil
	}
	return fmt.Errorf(`worse than %s records:
  %s
"make house" shows where. Make it better, or record it deliberately: go run .ci/house.go -record -worse`,
		recorded, strings.Join(worse, "\n  "))
}

// record writes the figures; without worse, those that got worse keep their recorded values.
func (h *house) record(worse bool) error {
	old, err := readRecord()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range h.figures() {
		if v, known := old[f.name]; known && v < f.value && !worse {
			fmt.Printf("%s is worse: %d, recorded is %d\n", f.name, f.value, v)
			f.value = v
		}
		fmt.Fprintln(&text, f.name, f.value)
	}
	return os.WriteFile(recorded, []byte(text.String()), 0o644)
}

type house struct {
	packages []pkg
	structs  []structSize

	bench, python, conditions, thatOf int
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
	h, names := new(house), declared{}
	dirs := map[string][]string{}
	fset := token.NewFileSet()
	parsed := map[string][]*source{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		switch name := d.Name(); {
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "test", "storetest", "testset"}, name)):
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
			code, comments := lines(src)
			if inBench {
				h.bench += len(code)
				continue
			}
			p.code += len(code)
			if !slices.Contains(asking, dir) && path != "reader/engine.go" {
				h.conditions += matches(conditions, code)
			}
			h.thatOf += matches(thatOf, comments)
			f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			s := &source{dir: dir, file: f, imports: imports(f, prefix)}
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

func matches(expression *regexp.Regexp, lines []string) (n int) {
	for _, line := range lines {
		if expression.MatchString(line) {
			n++
		}
	}
	return n
}

// lines returns the lines of src that hold a token other than a comment, and those of comments.
func lines(src []byte) (code, comments []string) {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	held := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.COMMENT {
			comments = append(comments, strings.Split(lit, "\n")...)
			continue
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // inserted by the scanner
		}
		first := file.Line(pos)
		for n := range strings.Count(lit, "\n") + 1 {
			held[first+n] = true
		}
	}
	for i, text := range strings.Split(string(src), "\n") {
		if held[i+1] {
			code = append(code, text)
		}
	}
	return code, comments
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
