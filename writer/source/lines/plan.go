package lines

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/where"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
)

// plan is how rows become samples. It is immutable.
type plan struct {
	opt     Options
	take    map[string]bool // columns that become fields; nil for all but the key
	attrs   []attr
	where   *where.Expr  // nil: all rows
	filters []*condition // the conditions of where
}

// scan finds the end of a number, or word, of JSON.
func (p *plan) scan(b []byte, i int) (kind, int, *syntaxError) {
	if p.opt.AllowNaN {
		return scanNumber(b, i)
	}
	return scanPlain(b, i)
}

// newPlan checks options against the files. Names are checked only if all files are CSV, because
// the members of JSON lines are not known in advance.
func newPlan(files []*textFile, opt *Options) (*plan, error) {
	p := &plan{opt: *opt}
	columns, json := columnsOf(files)
	find := func(option, value, name string) error {
		if json || slices.Contains(columns, name) {
			return nil
		}
		return &hint.OptionError{Option: option, Value: value, Err: fmt.Errorf("there is no column %q; there are: %s", name, strings.Join(columns, ", "))}
	}
	if opt.Columns != nil {
		p.take = map[string]bool{}
	}
	for _, name := range opt.Columns {
		if err := find("columns", "", name); err != nil {
			return nil, err
		}
		p.take[name] = true
	}
	for _, from := range slices.Sorted(maps.Keys(opt.Rename)) {
		if err := find("rename", "", from); err != nil {
			return nil, err
		}
	}
	if opt.Key != "" {
		if err := p.checkKey(files); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(opt.Attrs)) {
		from := opt.Attrs[name]
		if name == "" {
			return nil, writer.Optionf("attr", "column %s is given for an attribute without a name", from)
		}
		if err := find("attr", name, from); err != nil {
			return nil, err
		}
		p.attrs = append(p.attrs, attr{format.Attribute{Name: name}, from})
	}
	var err error
	if p.where, err = where.ParseAll(opt.Where); err != nil {
		return nil, err
	}
	if p.where != nil {
		for i := range p.where.Conditions {
			c := newCondition(&p.where.Conditions[i])
			if !json && !slices.Contains(columns, c.Column) {
				return nil, c.Errorf("there is no column %q; there are: %s", c.Column, strings.Join(columns, ", "))
			}
			p.filters = append(p.filters, c)
		}
	}
	if err := p.checkConstants(files); err != nil {
		return nil, err
	}
	if err := p.checkNames(columns); err != nil {
		return nil, err
	}
	return p, p.checkEncodings(files)
}

// checkConstants checks that no header has a column of the folders.
func (p *plan) checkConstants(files []*textFile) error {
	for _, f := range files {
		for i := range f.Constants {
			if c := &f.Constants[i]; c.Folder != "" && slices.Contains(f.header, c.Name) && p.column(c.Name).wanted {
				return hint.At(f.Path, c.Twice())
			}
		}
	}
	return nil
}

// columnsOf lists the columns of all headers, and of the folders. json reports whether some files
// have none.
func columnsOf(files []*textFile) (columns []string, json bool) {
	seen := map[string]bool{}
	var last []string
	for _, c := range files[0].Constants {
		seen[c.Name], columns = true, append(columns, c.Name)
	}
	for _, f := range files {
		json = json || f.header == nil
		if len(f.header) > 0 && len(last) > 0 && &f.header[0] == &last[0] {
			continue
		}
		last = f.header
		for _, name := range f.header {
			if !seen[name] {
				seen[name] = true
				columns = append(columns, name)
			}
		}
	}
	return columns, json
}

func (p *plan) checkKey(files []*textFile) error {
	for _, f := range files {
		if f.header != nil && !slices.Contains(f.header, p.opt.Key) {
			return hint.At(f.Path, writer.Optionf("key", "the file has no column %q; it has: %s", p.opt.Key, strings.Join(f.header, ", ")))
		}
	}
	return nil
}

// checkNames checks that the columns of headers can become fields with different names.
func (p *plan) checkNames(columns []string) error {
	taken := map[string]string{}
	for i, name := range columns {
		c := p.column(name)
		if !c.field {
			continue
		}
		if c.base == "" {
			return writer.Optionf("columns", "column %d has no name (an index, perhaps): rename it, or take the other columns only", i+1)
		}
		for _, ext := range []extension{extText, extClass} {
			full, err := c.fieldName(ext)
			if err != nil {
				return writer.Optionf("columns", "%w", err)
			}
			if other, ok := taken[full]; ok && other != name {
				return writer.Optionf("columns", "%q and %q would both become the field %s: rename one of them", other, name, full)
			}
			taken[full] = name
		}
	}
	return nil
}

// column returns a new column with its role.
func (p *plan) column(name string) *column {
	c := &column{name: name, base: name, class: fields.IsClass(name)}
	if to, ok := p.opt.Rename[name]; ok {
		c.base = to
	}
	c.field = p.take == nil && (name != p.opt.Key || p.opt.Key == "") || p.take[name]
	c.wanted = c.field || name == p.opt.Key && p.opt.Key != ""
	for _, a := range p.attrs {
		c.wanted = c.wanted || a.column == name
	}
	for _, f := range p.filters {
		c.wanted = c.wanted || f.Column == name
	}
	return c
}
