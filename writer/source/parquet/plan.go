package parquet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/where"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// form is what becomes of a column's values.
type form int

const (
	formRaw    form = iota // bytes as they are
	formText               // a value as people write it
	formFile               // a struct of bytes and path
	formNumpy              // numbers in lists
	formJSON               // all else
	formAbsent             // nothing but nulls in every file
)

// column is a top-level column of the files, all together, and its value in the row at hand.
type column struct {
	name string
	// first is its type in the first file where it has one, from says which that is.
	first *node
	from  string
	clash error // another file has another type
	// labels are the names of classes, where the file says that integers stand for some.
	labels []string

	field  bool   // it becomes a field
	base   string // the field's name, before an extension
	form   form
	names  map[string]string // full names of fields, by extension
	wanted bool              // it is read

	// In the row group at hand. node is nil where its file lacks the column.
	node   *node
	leaves []*leaf
	bufs   []*pageBuffers
	parts  []*entries
	// Of the row at hand. v and path are of the forms that take one value, and of those alone.
	null bool
	v    value
	path value
}

// attr is an attribute and the column of its values.
type attr struct {
	format.Attribute
	col *column
}

// plan is what is made of rows.
type plan struct {
	columns []*column // all of all files, in order
	key     *column
	attrs   []attr
	filters []*filter
	nulls   source.Nulls
	classes []string // names of the classes of the one column that has some
}

// newPlan fits options to the columns of files.
func newPlan(files []*parquetFile, opt *Options) (*plan, error) {
	p := &plan{nulls: opt.Nulls}
	byName, err := p.merge(files)
	if err != nil {
		return nil, err
	}
	find := func(option, name string) (*column, error) {
		if c := byName[name]; c != nil {
			return c, nil
		}
		return nil, optionf("%s: there is no column %q; there are: %s", option, name, p.list())
	}
	if err := p.chooseFields(opt, find); err != nil {
		return nil, err
	}
	if opt.Key != "" {
		if p.key, err = find("key", opt.Key); err != nil {
			return nil, err
		}
		if err := p.checkKey(files); err != nil {
			return nil, err
		}
	}
	if err := p.chooseAttrs(opt, find); err != nil {
		return nil, err
	}
	for _, text := range opt.Where {
		cond, err := where.Parse(text)
		if err != nil {
			return nil, optionf("%w", err)
		}
		f := &filter{Condition: cond}
		c, err := find(fmt.Sprintf("where %q", text), f.Column)
		if err == nil {
			err = f.bind(c)
		}
		if err != nil {
			return nil, err
		}
		c.wanted = true
		p.filters = append(p.filters, f)
	}
	for _, c := range p.columns {
		if c.wanted && c.clash != nil {
			return nil, c.clash
		}
	}
	return p, nil
}

// merge makes one list of columns of those of all files, which must agree on types.
func (p *plan) merge(files []*parquetFile) (map[string]*column, error) {
	byName := map[string]*column{}
	seen := map[string]bool{} // schemas looked at
	for _, f := range files {
		if seen[f.schema] {
			continue
		}
		seen[f.schema] = true
		inFile := map[string]bool{}
		for _, n := range f.columns {
			if inFile[n.name] {
				return nil, corruptf("%s: there are two columns %q", f.Path, n.name)
			}
			inFile[n.name] = true
			c := byName[n.name]
			if c == nil {
				c = &column{name: n.name, names: map[string]string{}}
				byName[n.name] = c
				p.columns = append(p.columns, c)
			}
			switch {
			case n.isNull():
			case c.first == nil:
				c.first, c.from = n, f.Path
			case c.clash == nil && !compatible(c.first, n):
				c.clash = fmt.Errorf("%s: column %s is %v here and %v in %s: take the other columns only, or write one of the files again",
					f.Path, n.name, n, c.first, c.from)
			}
			if labels := f.labels[n.name]; c.labels == nil && labels != nil {
				c.labels = labels
			}
		}
	}
	return byName, nil
}

func (p *plan) list() string {
	names := make([]*node, len(p.columns))
	for i, c := range p.columns {
		names[i] = &node{name: c.name}
	}
	return describe(names)
}

// chooseFields says which columns become fields, and how they are called.
func (p *plan) chooseFields(opt *Options, find func(option, name string) (*column, error)) error {
	for i, name := range opt.Columns {
		c, err := find("columns", name)
		if err != nil {
			return err
		}
		if slices.Contains(opt.Columns[:i], name) {
			return optionf("columns: %q is there twice", name)
		}
		c.field = true
	}
	renamed := map[string]bool{}
	for from, to := range opt.Rename {
		c, err := find("rename", from)
		if err != nil {
			return err
		}
		if to == "" {
			return optionf("rename: column %q gets an empty name", from)
		}
		c.base = to
		renamed[from] = true
	}
	taken := map[string]string{}
	for i, c := range p.columns {
		c.field = c.field || opt.Columns == nil && (opt.Key == "" || c.name != opt.Key)
		if c.base == "" {
			c.base = c.name
		}
		if renamed[c.name] && !c.field {
			return optionf("rename: column %q becomes no field", c.name)
		}
		c.setForm()
		if !c.field || c.form == formAbsent && opt.Nulls != source.NullsEmpty {
			continue
		}
		if c.base == "" {
			return optionf("columns: column %d has no name, which its field needs: rename it, or take the other columns only", i+1)
		}
		c.wanted = true
		for _, ext := range c.extensions() {
			name := c.fieldName(ext)
			if err := format.CheckField(name); err != nil || name == "" {
				return optionf("columns: column %q cannot be the name of a field (%w): rename it, or take the other columns only", c.name, err)
			}
			if other, ok := taken[name]; ok && other != c.name {
				return optionf("columns: %q and %q would both become the field %s: rename one of them", other, c.name, name)
			}
			taken[name] = c.name
		}
	}
	return nil
}

// setForm says what becomes of values, by type.
func (c *column) setForm() {
	var content *node
	if c.first != nil {
		content, _ = c.first.fileParts()
	}
	switch {
	case c.first == nil:
		c.form = formAbsent
	case c.first.shape == shapeScalar && c.first.leaf.scalar.raw():
		c.form = formRaw
	case c.first.shape == shapeScalar:
		c.form = formText
	case content != nil:
		c.form = formFile
	case c.first.tensor() > 0:
		c.form = formNumpy
	default:
		c.form = formJSON
	}
}

// extensions are those that the column's fields can have. The one of files is known when they are seen.
func (c *column) extensions() []string {
	switch c.form {
	case formRaw:
		switch c.first.leaf.scalar.class {
		case classText:
			return []string{"txt"}
		case classJSON:
			return []string{"json"}
		case classBSON:
			return []string{"bson"}
		}
		return []string{"bin"}
	case formText:
		if c.first.leaf.scalar.family() == "integer" && (c.labels != nil || fields.IsClass(c.name)) {
			return []string{"cls"}
		}
		return []string{"txt"}
	case formFile:
		return []string{"bin"}
	case formNumpy:
		return []string{"npy", "json"}
	case formAbsent: // where it gets a field of no bytes
		return []string{"txt"}
	}
	return []string{"json"}
}

// fieldName is the name of the column's field with an extension.
func (c *column) fieldName(ext string) string {
	name, ok := c.names[ext]
	if !ok {
		name = fields.Name(c.base, ext)
		if c.form == formNumpy && ext == "json" { // a ragged list
			name = fields.JSONName(c.base)
		}
		if len(c.names) < 1000 {
			c.names[ext] = name
		}
	}
	return name
}

func (p *plan) checkKey(files []*parquetFile) error {
	p.key.wanted = true
	for _, f := range files {
		n := f.column(p.key.name)
		if n == nil {
			return fmt.Errorf("%s: %w", f.Path, optionf("key: the file has no column %q; it has: %s", p.key.name, describe(f.columns)))
		}
		if s := n.leaf.scalar; n.shape != shapeScalar || s.class != classText && s.family() != "integer" {
			return fmt.Errorf("%s: %w", f.Path, optionf("key: column %s is of type %v: a key is a string or an integer", p.key.name, n))
		}
	}
	return nil
}

func (p *plan) chooseAttrs(opt *Options, find func(option, name string) (*column, error)) error {
	for name, from := range opt.Attrs {
		c, err := find(fmt.Sprintf("attr %s", name), from)
		if err != nil {
			return err
		}
		if name == "" {
			return optionf("attr: column %s is given for an attribute without a name", from)
		}
		a := attr{Attribute: format.Attribute{Name: name}, col: c}
		if c.first == nil {
			continue // no value anywhere
		}
		s := c.first.leaf.scalar
		switch {
		case c.first.shape == shapeScalar && s.class == classText, c.labels != nil:
			a.Kind = format.AttrLabel
		case c.first.shape == shapeScalar && (s.family() == "integer" || s.class == classBool):
			a.Kind = format.AttrInteger
		case c.first.shape == shapeScalar && s.family() == "float":
			a.Kind = format.AttrNumber
		default:
			return optionf("attr %s: column %s is of type %v: an attribute is an integer, a float, a truth value or a string", name, from, c.first)
		}
		c.wanted = true
		p.attrs = append(p.attrs, a)
	}
	slices.SortFunc(p.attrs, func(a, b attr) int { return strings.Compare(a.Name, b.Name) })
	var marked []*column
	for _, c := range p.columns {
		if c.wanted && c.labels != nil {
			marked = append(marked, c)
		}
	}
	if len(marked) == 1 {
		p.classes = marked[0].labels
	}
	return nil
}

// classLabels finds columns of class numbers in what Hugging Face writes beside the schema.
func classLabels(text string) map[string][]string {
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if len(text) > 16<<20 || json.Unmarshal([]byte(text), &meta) != nil {
		return nil
	}
	var out map[string][]string
	for name, raw := range meta.Info.Features {
		var feature struct {
			Type  string   `json:"_type"`
			Names []string `json:"names"`
		}
		if json.Unmarshal(raw, &feature) != nil || feature.Type != "ClassLabel" || len(feature.Names) == 0 {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		out[name] = feature.Names
	}
	return out
}
