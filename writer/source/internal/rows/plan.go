// Package rows makes samples of rows, whatever files they are from. It knows no format.
//
// A Choice is what a user says of columns. New makes a Plan of it, among the columns that files
// have: which are read, and as which fields, key, attributes and conditions. A Walk then takes row
// after row: the folders of the file are columns as well, a row for which the conditions do not
// hold is left out, a column has the key, those that have a value become fields, and a row without
// any is an error, left out, or empty. Walk.Take has all of this, in order.
//
// A format turns bytes into cells. It has a Column for each of its columns, with a Form that makes
// fields of its cells: text, an image, a .npy file, JSON. Package lines does so for JSON, CSV,
// text, TFRecord and MDS, package parquet for Parquet and Arrow. Package tokens takes the Plan
// alone: rows of arrays have no nulls, no conditions and no keys of their own.
//
// # Why rows of cells
//
// The values of a row are in the columns' cells, one row at a time, rather than in vectors of many
// rows: rows of JSON and TFRecord each have columns of their own, in their own order, and errors,
// cursors and conditions are of rows, too. Vectors of cells for the 5,000 short rows of a chunk of
// text have taken 66 to 79 ns a row of four columns, where one row at a time took 53 to 70. A
// format that has vectors, as Arrow and the pages of Parquet are, makes a field of a value where it
// lies, and a cell only of what is compared.
package rows

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/curate/where"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// Choice is what a user says of columns, by the same options for all formats.
type Choice struct {
	Key           string
	Columns       []string // nil: all
	Rename, Attrs map[string]string
	Where         []string
	Nulls         source.Nulls
}

// Check refuses what is wrong whatever columns there are.
func (c *Choice) Check() error {
	for i, name := range c.Columns {
		if slices.Contains(c.Columns[:i], name) {
			return writer.Optionf("columns", "%q is there twice", name)
		}
	}
	for _, from := range slices.Sorted(maps.Keys(c.Rename)) {
		if c.Rename[from] == "" {
			return writer.Optionf("rename", "column %q gets an empty name", from)
		}
		if !c.Field(from) {
			return writer.Optionf("rename", "column %q becomes no field", from)
		}
	}
	return nil
}

// Field reports whether a column becomes a field.
func (c *Choice) Field(name string) bool {
	if c.Columns != nil {
		return slices.Contains(c.Columns, name)
	}
	return c.Key == "" || name != c.Key
}

// Base returns the name of a column's field, without extension.
func (c *Choice) Base(name string) string {
	if to, ok := c.Rename[name]; ok {
		return to
	}
	return name
}

// Plan is a Choice among columns.
type Plan struct {
	Choice
	// Attributes are those of Attrs, by name, and Column their columns.
	Attributes []Attr
	// Expr holds for the rows that are taken; nil: all. Conditions are those of it, in its order.
	Expr       *where.Expr
	Conditions []*Condition

	columns []string
	open    bool
	// Rows that are open say one by one which columns they have: met says of each column that the
	// options name whether a row had it, and others has the columns of a row that lacked one.
	met    map[string]*atomic.Bool
	others *atomic.Pointer[[]string]
}

// New chooses among the columns of all files, after Check. open reports that rows may have others.
// key checks the column of keys, if there is one.
func New(c Choice, columns []string, open bool, key func() error) (*Plan, error) {
	p := &Plan{Choice: c, columns: columns, open: open, met: map[string]*atomic.Bool{},
		others: new(atomic.Pointer[[]string])}
	if open {
		for _, names := range []iter.Seq[string]{slices.Values(c.Columns), maps.Keys(c.Rename), maps.Values(c.Attrs)} {
			for name := range names {
				p.met[name] = new(atomic.Bool)
			}
		}
	}
	for _, name := range c.Columns {
		if err := p.Find("columns", "", name); err != nil {
			return nil, err
		}
	}
	for _, from := range slices.Sorted(maps.Keys(c.Rename)) {
		if err := p.Find("rename", "", from); err != nil {
			return nil, err
		}
	}
	if c.Key != "" {
		if err := key(); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Attrs)) {
		from := c.Attrs[name]
		if name == "" {
			return nil, writer.Optionf("attr", "column %s is given for an attribute without a name", from)
		}
		if err := p.Find("attr", name, from); err != nil {
			return nil, err
		}
		p.Attributes = append(p.Attributes, Attr{Attribute: format.Attribute{Name: name}, Column: from})
	}
	var err error
	if p.Expr, err = where.ParseAll(c.Where); err != nil || p.Expr == nil {
		return p, err
	}
	for i := range p.Expr.Conditions {
		c := &p.Expr.Conditions[i]
		if !p.has(c.Column) {
			return nil, c.Errorf("%w", p.none(c.Column))
		}
		p.Conditions = append(p.Conditions, newCondition(c))
	}
	return p, nil
}

func (p *Plan) has(name string) bool { return p.open || slices.Contains(p.columns, name) }

func (p *Plan) none(name string) error { return None(name, p.columns) }

// None is the error of a column that there is not among columns.
func None(name string, columns []string) error {
	return fmt.Errorf("there is no column %q; there are: %s", name, list(columns))
}

// Find refuses a column that there is not.
func (p *Plan) Find(option, value, name string) error {
	if p.has(name) {
		return nil
	}
	return &hint.OptionError{Option: option, Value: value, Err: p.none(name)}
}

// Lacks is the error of a file without the column of keys.
func Lacks(path, key string, columns []string) error {
	return hint.At(path, writer.Optionf("key", "the file has no column %q; it has: %s", key, list(columns)))
}

// Column returns what becomes of a column.
func (p *Plan) Column(name string) Column {
	return Column{Name: name, Base: p.Base(name), Field: p.Field(name), Wanted: p.Wanted(name)}
}

// Unmet has an error for each column in Columns, Rename and Attrs that no row had so far.
func (p *Plan) Unmet() (all []*hint.OptionError) {
	unmet := func(option, value, name, lost string) {
		if met := p.met[name]; met == nil || met.Load() {
			return
		}
		err := fmt.Errorf("no row that was read has a column %q: %s", name, lost)
		if others := p.others.Load(); others != nil {
			err = fmt.Errorf("%w; a row has: %s", err, list(*others))
		}
		all = append(all, &hint.OptionError{Option: option, Value: value, Err: err})
	}
	for _, name := range p.Columns {
		unmet("columns", "", name, "it became no field")
	}
	for _, from := range slices.Sorted(maps.Keys(p.Rename)) {
		if !slices.Contains(p.Columns, from) {
			unmet("rename", "", from, "no field was renamed")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Attrs)) {
		unmet("attr", name, p.Attrs[name], "no sample has the attribute")
	}
	return all
}

// Wanted reports whether a column is read.
func (p *Plan) Wanted(name string) bool {
	if p.Field(name) || p.Key != "" && name == p.Key {
		return true
	}
	if slices.ContainsFunc(p.Attributes, func(a Attr) bool { return a.Column == name }) {
		return true
	}
	names := func(c where.Condition) bool { return c.Column == name }
	return p.Expr != nil && slices.ContainsFunc(p.Expr.Conditions, names)
}

// list lists columns for an error.
func list(columns []string) string {
	const most = 20
	if more := len(columns) - most; more > 0 {
		columns = append(slices.Clone(columns[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(columns, ", ")
}

// Unnamed is the error of column number i, whose name its field needs.
func Unnamed(i int) error {
	return writer.Optionf("columns",
		"column %d has no name (an index, perhaps): rename it, or take the other columns only", i+1)
}

// CheckField refuses what cannot be the name of a column's field.
func CheckField(column, field string) error {
	err := format.CheckField(field)
	if err == nil && field == "" {
		err = fmt.Errorf("%w: it is empty", format.ErrName)
	}
	if err != nil {
		return fmt.Errorf("column %s cannot be the name of a field (%w): rename it, or take the other columns only",
			fields.Quoted(column), err)
	}
	return nil
}

// Names are the columns of fields.
type Names map[string]string

// Take gives a column a field of that name.
func (n Names) Take(column, field string) error {
	if err := CheckField(column, field); err != nil {
		return writer.Optionf("columns", "%w", err)
	}
	if other, ok := n[field]; ok && other != column {
		return writer.Optionf("columns", "%q and %q would both become the field %s: rename one of them", other, column,
			field)
	}
	n[field] = column
	return nil
}
