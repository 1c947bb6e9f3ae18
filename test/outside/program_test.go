package outside_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const root = "github.com/shardtool/shardtool"

// public reports whether programs of others may import a package.
func public(path string) bool {
	rest, ok := strings.CutPrefix(path, root+"/")
	if !ok || slices.Contains(strings.Split(rest, "/"), "internal") {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	return !slices.Contains([]string{"bench", "cmd", "docs", "test", "testdata"}, first)
}

// packages returns the public packages that this module imports, with their types.
func packages() ([]*types.Package, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", ".")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	var paths []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if public(p.ImportPath) {
			paths = append(paths, p.ImportPath)
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("go list has no package %s", path)
		}
		return os.Open(exports[path])
	})
	var all []*types.Package
	for _, path := range paths {
		p, err := from.Import(path)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A program is one Go file that names the whole interface of packages.
type program struct {
	names   map[*types.TypeName]*types.TypeName // a type of an internal package, and the alias that a public one has
	imports map[string]string                   // the name of each package that the file imports
	text    bytes.Buffer                        // the declarations
	faults  []string                            // what cannot be written
	counts  struct{ packages, literals, functions, methods, types int }
}

// write writes the program that a user outside the repository would write to use everything: each
// function, method, variable and constant with its type spelled out, and each struct as a literal
// with all its fields.
func write(packages []*types.Package) *program {
	p := &program{names: map[*types.TypeName]*types.TypeName{}, imports: map[string]string{}}
	var exported []types.Object
	for _, pkg := range packages {
		p.counts.packages++
		for _, name := range pkg.Scope().Names() {
			o := pkg.Scope().Lookup(name)
			if !o.Exported() {
				continue
			}
			exported = append(exported, o)
			if t, ok := o.(*types.TypeName); ok && t.IsAlias() {
				if named, ok := types.Unalias(t.Type()).(*types.Named); ok {
					p.names[named.Origin().Obj()] = t
				}
			}
		}
	}
	for _, o := range exported {
		t, ok := o.(*types.TypeName)
		switch {
		case ok:
			p.typ(t)
		case isGeneric(o.Type()):
			continue
		default:
			if _, ok := o.(*types.Func); ok {
				p.counts.functions++
			}
			p.declare(place(o), o.Type(), func() string { return p.qualified(o) })
		}
	}
	return p
}

func place(o types.Object) string {
	return strings.TrimPrefix(o.Pkg().Path(), root+"/") + "." + o.Name()
}

func isGeneric(t types.Type) bool {
	s, ok := t.(*types.Signature)
	return ok && s.TypeParams().Len() > 0
}

// declare writes a variable with a type and a value.
func (p *program) declare(place string, t types.Type, value func() string) {
	if b, ok := t.(*types.Basic); ok && b.Info()&types.IsUntyped != 0 {
		fmt.Fprintf(&p.text, "const _ = %s\n", value())
		return
	}
	if text, ok := p.spelled(place, t); ok {
		fmt.Fprintf(&p.text, "var _ %s = %s\n", text, value())
	}
}

// typ writes a literal of a struct, and all methods of a type.
func (p *program) typ(name *types.TypeName) {
	p.counts.types++
	named, ok := types.Unalias(name.Type()).(*types.Named)
	if !ok || named.TypeParams().Len() > 0 {
		return
	}
	self := p.qualified(name)
	switch under := named.Underlying().(type) {
	case *types.Struct:
		p.counts.literals++
		var fields []string
		for f := range under.Fields() {
			if !f.Exported() {
				continue
			}
			if text, ok := p.spelled(place(name)+"."+f.Name(), f.Type()); ok {
				fields = append(fields, fmt.Sprintf("%s: *new(%s)", f.Name(), text))
			}
		}
		fmt.Fprintf(&p.text, "var _ = %s{%s}\n", self, strings.Join(fields, ", "))
	case *types.Interface:
		for m := range under.Methods() {
			if !m.Exported() {
				p.faults = append(p.faults, place(name)+": nobody else can implement it: it has the method "+m.Name())
			}
		}
	default:
		if text, ok := p.spelled(place(name), under); ok {
			fmt.Fprintf(&p.text, "var _ = %s(*new(%s))\n", self, text)
		}
	}
	receiver, text := types.Type(named), self
	if !types.IsInterface(named) {
		receiver, text = types.NewPointer(named), "(*"+self+")"
	}
	methods := types.NewMethodSet(receiver)
	for i := range methods.Len() {
		m := methods.At(i).Obj().(*types.Func)
		if !m.Exported() {
			continue
		}
		p.counts.methods++
		s := m.Signature()
		params := []*types.Var{types.NewParam(token.NoPos, nil, "", receiver)}
		for v := range s.Params().Variables() {
			params = append(params, v)
		}
		whole := types.NewSignatureType(nil, nil, nil, types.NewTuple(params...), s.Results(), s.Variadic())
		p.declare(place(name)+"."+m.Name(), whole, func() string { return text + "." + m.Name() })
	}
}

// qualified spells the name of an object of a package that anybody may import.
func (p *program) qualified(o types.Object) string {
	path := o.Pkg().Path()
	if p.imports[path] == "" {
		p.imports[path] = fmt.Sprintf("%s%d", strings.ReplaceAll(o.Pkg().Name(), ".", "_"), len(p.imports))
	}
	return p.imports[path] + "." + o.Name()
}

// spelled spells a type as a program outside the repository has to. Where that is impossible it
// notes the fault, and returns false.
func (p *program) spelled(at string, t types.Type) (string, bool) {
	s := speller{program: p}
	text := s.spell(t)
	for _, name := range s.hidden {
		p.faults = append(p.faults, fmt.Sprintf("%s needs %s, which nobody else can write", at, name))
	}
	return text, len(s.hidden) == 0
}

type speller struct {
	*program
	hidden []string
}

func (s *speller) spell(t types.Type) string {
	switch t := t.(type) {
	case *types.Alias:
		if o := t.Obj(); o.Pkg() == nil {
			return o.Name()
		}
		return s.spell(types.Unalias(t))
	case *types.Named:
		return s.named(t)
	case *types.Pointer:
		return "*" + s.spell(t.Elem())
	case *types.Slice:
		return "[]" + s.spell(t.Elem())
	case *types.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), s.spell(t.Elem()))
	case *types.Map:
		return "map[" + s.spell(t.Key()) + "]" + s.spell(t.Elem())
	case *types.Chan:
		return []string{"chan ", "chan<- ", "<-chan "}[t.Dir()] + s.spell(t.Elem())
	case *types.Signature:
		return "func" + s.tuple(t.Params(), t.Variadic()) + " " + s.tuple(t.Results(), false)
	case *types.Interface:
		if t.NumMethods() > 0 {
			s.hidden = append(s.hidden, t.String())
		}
		return "any"
	case *types.Struct:
		var fields []string
		for f := range t.Fields() {
			fields = append(fields, f.Name()+" "+s.spell(f.Type()))
		}
		return "struct{" + strings.Join(fields, "; ") + "}"
	}
	return t.String() // basic types
}

func (s *speller) tuple(t *types.Tuple, variadic bool) string {
	var all []string
	for v := range t.Variables() {
		text := s.spell(v.Type())
		if variadic && len(all) == t.Len()-1 {
			text = "..." + strings.TrimPrefix(text, "[]")
		}
		all = append(all, text)
	}
	return "(" + strings.Join(all, ", ") + ")"
}

func (s *speller) named(t *types.Named) string {
	o := t.Origin().Obj()
	switch {
	case o.Pkg() == nil: // error
		return o.Name()
	case s.names[o] != nil:
		o = s.names[o]
	case !o.Exported() || strings.HasPrefix(o.Pkg().Path(), root+"/") && !public(o.Pkg().Path()):
		s.hidden = append(s.hidden, strings.TrimPrefix(o.Pkg().Path(), root+"/")+"."+o.Name())
		return o.Name()
	}
	text := s.qualified(o)
	if o.IsAlias() && o.Type().(*types.Alias).TypeParams().Len() == 0 {
		return text // of the whole type
	}
	var args []string
	for arg := range t.TypeArgs().Types() {
		args = append(args, s.spell(arg))
	}
	if args != nil {
		text += "[" + strings.Join(args, ", ") + "]"
	}
	return text
}

// file returns the whole text of the program.
func (p *program) file(name string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "package %s\n\n", name)
	for path, as := range p.imports {
		fmt.Fprintf(&out, "import %s %q\n", as, path)
	}
	out.Write(p.text.Bytes())
	return out.Bytes()
}

// compile compiles packages of this module that exist only in the overlay of one build. files has
// their texts by the names of their folders.
func compile(dir string, files map[string][]byte, flags ...string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	replace, args := map[string]string{}, []string{}
	for folder, text := range files {
		file := fmt.Sprintf("%s/%s.go", dir, folder)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		replace[here+"/"+folder+"/x.go"] = file
		args = append(args, "./"+folder)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	list := dir + "/overlay.json"
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	slices.Sort(args)
	cmd := exec.Command("go", slices.Concat([]string{"build", "-overlay", list}, flags, args)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New(err.Error() + "\n" + string(out))
	}
	return nil
}
