package parquet

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	pq "github.com/apache/arrow/go/v17/parquet"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// form is the kind of field that a column becomes.
type form int

const (
	formRaw    form = iota // bytes, unchanged
	formText               // a value as text
	formFile               // a struct of bytes and path
	formFiles              // a list of them
	formNumpy              // lists of numbers
	formScalar             // a number as an array without a dimension
	formJSON               // anything else
	formAbsent             // only nulls in every file
)

// column is a top-level column of all files and its value in the current row.
type column struct {
	rows.Column
	// first is its type in the first file that has the column, and from is the path of that file.
	first *node
	from  string
	clash error // error of another file with a different type
	// labels are the class names, if the file defines them for the column's integers.
	labels []string

	form  form
	names map[string]string // field names, by extension
	usual string            // the one with the first of extensions
	// mayBeNull reports that numbers, which become arrays, lack in some rows. The field mask then
	// says in which they are there.
	mayBeNull bool
	wide      bool // it is read as floats, because files differ
	compared  bool // its values are compared, or are keys or attributes

	// constant reports that the column is of the folders of files; first is then its type.
	constant bool

	// State of the current row group. node is nil if its file lacks the column, is says what its
	// cells are. stated reports that a folder of the file states the column, too.
	group   *group
	node    *node
	is      rows.Kind
	stated  bool
	narrow  *node // of a wide column, as the file has it
	leaves  []*leaf
	bufs    []*pageBuffers
	parts   []*entries
	cells   arrow.Array // of Arrow records, in place of leaves
	v, path value       // of the current row, for forms that take one value
}

// plan is how rows become samples.
type plan struct {
	rows.Plan
	columns []*column // all columns of all files, in order
	byName  map[string]*column
	read    []*column // those that are read
	walk    *rows.Walk
	log     *slog.Logger
	twice   bool     // it has said that a map has a key twice
	classes []string // class names, if exactly one column has some
	// types are the features of columns on which all files agree.
	types map[*column]string
}

// newPlan checks options against the columns of files.
func newPlan(files []*parquetFile, opt *Options) (*plan, error) {
	p := &plan{log: opt.Log, types: map[*column]string{}, byName: map[string]*column{}}
	if err := p.merge(files, opt.Widen); err != nil {
		return nil, err
	}
	p.addConstants(files)
	names := make([]string, len(p.columns))
	for i, c := range p.columns {
		names[i] = c.Name
	}
	of, err := rows.New(opt.choice(), names, false, func() error {
		key := p.byName[opt.Key]
		if key == nil {
			return &hint.OptionError{Option: "key", Err: rows.None(opt.Key, names)}
		}
		key.compared = true
		return checkKey(opt.Key, files)
	})
	if err != nil {
		return nil, err
	}
	p.Plan = *of
	if err := p.chooseFields(files, opt); err != nil {
		return nil, err
	}
	if err := p.chooseAttrs(); err != nil {
		return nil, err
	}
	if err := p.chooseRows(); err != nil {
		return nil, err
	}
	for _, c := range p.columns {
		if c.Wanted && c.clash != nil {
			return nil, c.clash
		}
		if c.Wanted {
			p.read = append(p.read, c)
		}
	}
	p.walk = p.Walk(func(name string) *rows.Column { return &p.byName[name].Column })
	return p, nil
}

// chooseRows binds the conditions to columns.
func (p *plan) chooseRows() error {
	for _, f := range p.Conditions {
		c := p.byName[f.Column]
		if c.first == nil {
			continue // it has only nulls
		}
		c.compared = c.compared || !f.Nulls()
		if err := f.Bind(c.first.kind(), c.first, c.labels); err != nil {
			return err
		}
	}
	return nil
}

// merge combines the columns of all files, whose types must agree.
func (p *plan) merge(files []*parquetFile, widen bool) error {
	seen := map[*string]bool{} // schemas already merged, by the features that files share with them
	for _, f := range files {
		if len(f.columns) == 0 || seen[&f.features[0]] {
			continue
		}
		seen[&f.features[0]] = true
		inFile := map[string]bool{}
		for i, n := range f.columns {
			if inFile[n.name] {
				return fmt.Errorf("%s: two columns are called %q, and fields are named by columns: rename one of them", f.Path, n.name)
			}
			inFile[n.name] = true
			c := p.byName[n.name]
			if c == nil {
				c = p.add(n.name)
			}
			switch {
			case n.unread != nil && c.clash == nil:
				c.first, c.from = n, f.Path
				c.clash = fmt.Errorf("%s: column %s: %w; or take the other columns only", f.Path, n.name, n.unread)
			case n.other() && c.clash == nil:
				c.first, c.from = n, f.Path
				c.clash = fmt.Errorf("%s: column %s is of type %v, which is not read: take the other columns only, or write it as another type", f.Path, n.name, n)
			case n.isNull():
			case c.first == nil:
				c.first, c.from, p.types[c] = n, f.Path, f.features[i]
			case c.clash == nil && widen && widens(c.first, n):
				c.wide = true
			case c.clash == nil && !compatible(c.first, n):
				c.clash = widenable(fmt.Errorf("%s: column %s is %s here and %s in %s: take the other columns only, or write one of the files again",
					f.Path, n.name, n.unlike(c.first), c.first.unlike(n), c.from), c.first, n)
			}
			if f.features[i] != p.types[c] && !n.isNull() {
				p.types[c] = ""
			}
			if labels := f.labels[n.name]; c.labels == nil && labels != nil {
				c.labels = labels
			}
		}
	}
	for _, c := range p.columns {
		if c.wide {
			c.first = c.first.widened()
			p.types[c] = c.first.feature(nil)
		}
	}
	return nil
}

// add adds a column.
func (p *plan) add(name string) *column {
	c := &column{Column: rows.Column{Name: name}, names: map[string]string{}}
	c.Form = c
	p.byName[name] = c
	p.columns = append(p.columns, c)
	return c
}

// addConstants adds the columns of the folders of files.
func (p *plan) addConstants(files []*parquetFile) {
	for i, k := range files[0].Constants {
		// no leaf of the file
		n := &node{name: k.Name, def: 1, last: -1, leaf: leafType{scalar{class: classText}, pq.Types.ByteArray}}
		if k.Integer {
			n.leaf = leafType{scalar{class: classInteger, bits: 64}, pq.Types.Int64}
		}
		c := p.byName[k.Name]
		if c == nil {
			c = p.add(k.Name)
			c.constant, c.first, p.types[c] = true, n, n.feature(nil)
			continue
		}
		for _, f := range files {
			if own := &f.Constants[i]; own.Folder != "" && f.column(k.Name) == nil && c.clash == nil {
				c.clash = hint.At(f.Path, writer.Optionf("columns", "the column %q is in the folder %s alone, and in %s itself: take the other columns only", k.Name, own.Folder, c.from))
			}
		}
	}
}

// chooseFields selects the columns that become fields, and their names.
func (p *plan) chooseFields(files []*parquetFile, opt *Options) error {
	taken := rows.Names{}
	for i, c := range p.columns {
		c.Field, c.Base, c.Wanted = p.Field(c.Name), p.Base(c.Name), p.Wanted(c.Name)
		if c.setForm(); c.form == formText && opt.Arrays && c.labels == nil {
			s, _ := c.first.leaf.number(value{})
			if dtype, _ := s.dtype(); dtype != "" {
				c.form = formScalar
				c.mayBeNull = slices.ContainsFunc(files, func(f *parquetFile) bool { return f.mayBeNull(c.Name) })
			}
		}
		if !c.Field || c.form == formAbsent && opt.Nulls != source.NullsEmpty {
			continue
		}
		if c.Base == "" {
			return rows.Unnamed(i)
		}
		if c.usual = c.fieldName(c.extensions()[0]); c.form == formFiles {
			c.usual = c.Base // no field, but what its elements are called by
		}
		if err := taken.Take(c.Name, c.usual); err != nil {
			return err
		}
		if !c.mayBeNull {
			continue
		}
		if c.Mask = "mask.npy"; c.usual != "npy" {
			c.Mask = strings.TrimSuffix(c.usual, ".npy") + ".mask.npy"
		}
		if err := taken.Take(c.Name, c.Mask); err != nil {
			return err
		}
	}
	for _, c := range p.columns { // what only some rows have gives way
		if c.usual == "" {
			continue
		}
		if err := c.elementsOf(p.columns); err != nil {
			return err
		}
		for _, ext := range c.extensions()[1:] {
			if other, ok := taken[c.fieldName(ext)]; ok && other != c.Name {
				c.names[ext] = c.usual + "." + ext
			}
			if err := taken.Take(c.Name, c.fieldName(ext)); err != nil {
				return err
			}
		}
	}
	return nil
}

// elementsOf refuses a column whose field would be an element of another column's list.
func (c *column) elementsOf(columns []*column) error {
	for _, list := range columns {
		if _, is := fieldname.Element(c.usual, list.usual); is && list.form == formFiles {
			return writer.Optionf("columns",
				"column %q would become the field %s, as the files of column %q do: rename one of them", c.Name,
				c.usual, list.Name)
		}
	}
	return nil
}

// setForm sets the form by the column's type.
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
	case c.first.isFiles():
		c.form = formFiles
	case c.first.arrays():
		c.form = formNumpy
	default:
		c.form = formJSON
	}
}

// extensions returns the possible extensions of the column's field. Which one a file has is known
// only when it is read.
func (c *column) extensions() []string {
	switch {
	case c.form == formRaw:
		return []string{rawFields[c.first.leaf.scalar.class].extension}
	case c.form == formText && c.first.leaf.scalar.family() == "integer" && (c.labels != nil || fields.IsClass(c.Name)):
		return []string{"cls"}
	}
	return formExtensions[c.form]
}

// formExtensions are the extensions of the other forms.
var formExtensions = map[form][]string{
	formText: {"txt"}, formFile: {"bin"}, formFiles: {"bin"}, formNumpy: {"npy", "json"}, formScalar: {"npy"}, formJSON: {"json"},
	formAbsent: {"txt"}, // an empty field
}

// kinds states what the fields of the columns contain.
func (p *plan) kinds() kinds.Kinds {
	out := kinds.Kinds{}
	for _, c := range p.columns {
		if !c.Field || c.form == formFile || c.form == formFiles { // the extension of a file is known when it is read
			continue
		}
		for _, ext := range c.extensions() {
			word := c.kind(ext)
			if c.Mask != "" {
				out[c.Mask] = "npy"
			} else if p.Nulls == source.NullsEmpty && word != "bytes" { // no bytes are a text, and nothing else
				word = kinds.Wider(word, "txt")
			}
			name := c.fieldName(ext)
			if before, ok := out[name]; ok { // of an array that some rows have as JSON, under one name
				word = kinds.Wider(before, word)
			}
			out[name] = word
		}
	}
	return out
}

// features states the types of the fields of the columns.
func (p *plan) features() kinds.Features {
	out, size := kinds.Features{}, 0
	for _, c := range p.columns {
		feature := p.types[c]
		if feature == "" && c.form == formFiles {
			feature = string(kinds.Files().AppendJSON(nil))
		}
		if size += len(feature); !c.Field || feature == "" || size > maxFeatures {
			continue
		}
		for _, ext := range c.extensions() {
			name := c.fieldName(ext)
			switch c.form {
			case formFile:
				name = fields.Name(c.Base, "*")
			case formFiles:
				name = c.Base
			}
			out[name] = json.RawMessage(feature)
		}
		if c.Mask != "" {
			out[c.Mask] = json.RawMessage(kinds.Value("bool").AppendJSON(nil))
		}
	}
	return out
}

// forms reports whether a column becomes another field than it did before columns kept their form.
// The fingerprint says so: a pack that such a release began is not resumed.
func (p *plan) forms() bool {
	return slices.ContainsFunc(p.columns, func(c *column) bool {
		return c.Field && c.first != nil && (c.first.tensor != nil || c.form == formFiles || c.first.maps() ||
			c.Mask != "" || c.first.shape == shapeScalar && c.first.leaf.scalar.unitStated())
	})
}

// kind returns the word for the field of the column that has the extension.
func (c *column) kind(ext string) string {
	switch c.form {
	case formJSON:
		return "json"
	case formNumpy:
		return ext
	case formScalar:
		s, _ := c.first.leaf.number(value{})
		switch dtype, _ := s.dtype(); dtype {
		case "<i8":
			return "int"
		case "<f8":
			return "float"
		}
		return "npy"
	case formRaw:
		return rawFields[c.first.leaf.scalar.class].kind
	case formText:
		switch s := c.first.leaf.scalar; {
		case s.class == classUnsigned && s.bits == 64: // beyond the integers of arrays
			return "json"
		case s.family() == "integer", s.class == classTime:
			return "int"
		case s.family() == "float":
			return "float"
		case s.class == classBool:
			return "json"
		}
	}
	return "txt"
}

// fieldName returns the column's field name with an extension.
func (c *column) fieldName(ext string) string {
	name, ok := c.names[ext]
	if !ok {
		name = fields.Name(c.Base, ext)
		if c.form == formNumpy && ext == "json" { // a ragged list is JSON
			name = fields.JSONName(c.Base)
		}
		if len(c.names) < 1000 {
			c.names[ext] = name
		}
	}
	return name
}

func checkKey(key string, files []*parquetFile) error {
	for _, f := range files {
		n := f.column(key)
		if n == nil {
			var names []string
			for _, c := range f.columns {
				names = append(names, c.name)
			}
			return rows.Lacks(f.Path, key, names)
		}
		if s := n.leaf.scalar; n.shape != shapeScalar || s.class != classText && s.family() != "integer" {
			return hint.At(f.Path, writer.Optionf("key", "column %s is of type %v: a key is a string or an integer",
				key, n))
		}
	}
	return nil
}

func (p *plan) chooseAttrs() error {
	for i := range p.Attributes {
		a := &p.Attributes[i]
		c := p.byName[a.Column]
		if c.first == nil {
			continue // the column has no values
		}
		a.Labels, c.compared = c.labels, true
		s := c.first.leaf.scalar
		switch {
		case c.first.shape == shapeScalar && s.class == classText, c.labels != nil:
			a.Kind = format.AttrLabel
		case c.first.shape == shapeScalar && (s.family() == "integer" || s.class == classBool):
			a.Kind = format.AttrInteger
		case c.first.shape == shapeScalar && s.family() == "float":
			a.Kind = format.AttrNumber
		default:
			return &hint.OptionError{Option: "attr", Value: a.Name,
				Err: fmt.Errorf("column %s is of type %v: an attribute is an integer, a float, a truth value or a string", a.Column, c.first)}
		}
	}
	var marked []*column
	for _, c := range p.columns {
		if c.Wanted && c.labels != nil {
			marked = append(marked, c)
		}
	}
	if len(marked) == 1 {
		p.classes = marked[0].labels
	}
	return nil
}

// featuresOf returns the features of columns in the metadata that Hugging Face writes next to the
// schema.
func featuresOf(text string) map[string]json.RawMessage {
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if len(text) > maxFeatures || json.Unmarshal([]byte(text), &meta) != nil {
		return nil
	}
	return meta.Info.Features
}

// classLabels finds the columns of class numbers.
func classLabels(features map[string]json.RawMessage) map[string][]string {
	out := map[string][]string{}
	for name, raw := range features {
		var feature struct {
			Type  string   `json:"_type"`
			Names []string `json:"names"`
		}
		if json.Unmarshal(raw, &feature) != nil || feature.Type != "ClassLabel" || len(feature.Names) == 0 {
			continue
		}
		out[name] = feature.Names
	}
	return out
}
