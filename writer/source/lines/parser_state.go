package lines

import (
	"maps"

	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// parser converts the rows of chunks to samples. It is not safe for concurrent use.
type parser struct {
	plan    *plan
	columns map[string]*column
	named   map[string]*column // the columns that the options name
	key     *column
	attrs   []*column // in the order of Plan.Attributes
	filters []*column

	file    *textFile // the file of the cached cells
	cells   []*column
	headed  bool // a row of the file's header is no sample
	valid   bool // the whole chunk is valid UTF-8
	row     int64
	chunks  int64     // that were begun
	present []*column // columns of the current row
	scratch []byte
	stack   []byte
	none    rows.Cell
	array   array
	seen    func() // if not nil, called for each row that was parsed
}

func newParser(p *plan) *parser {
	out := &parser{plan: p, columns: map[string]*column{}, named: map[string]*column{}}
	name := func(name string) *column {
		if out.named[name] == nil {
			out.named[name] = p.column(name)
			out.columns[name] = out.named[name]
		}
		return out.named[name]
	}
	if p.opt.Key != "" {
		out.key = name(p.opt.Key)
	}
	for _, a := range p.Attributes {
		out.attrs = append(out.attrs, name(a.Column))
	}
	for _, f := range p.Conditions {
		out.filters = append(out.filters, name(f.Column))
	}
	return out
}

// find returns the column of a name.
func (p *parser) find(name string) *column {
	if c := p.columns[name]; c != nil {
		return c
	}
	return p.add(name)
}

func (p *parser) add(name string) *column {
	c := p.plan.column(name)
	p.columns[name] = c
	return c
}

// open finds the columns of a file's header.
func (p *parser) open(f *textFile) {
	if p.file == f {
		return
	}
	p.file, p.cells, p.headed = f, p.cells[:0], false
	for _, name := range f.header {
		p.cells = append(p.cells, p.find(name))
		_, number := (&rows.Cell{Kind: rows.Word, B: []byte(name)}).Float()
		p.headed = p.headed || !number // numbers, or one word, are a sample as well
	}
	p.headed = p.headed && !f.bare && len(f.header) > 1
}

// forget bounds the cache when lines have ever new names: it drops those that no option names. It
// is called between rows.
func (p *parser) forget() {
	if len(p.columns) > maxNamed {
		clear(p.columns)
		maps.Copy(p.columns, p.named)
	}
}

// value returns the value of a column in the current row.
func (p *parser) value(c *column) *rows.Cell {
	if c.row != p.row {
		return &p.none
	}
	return &c.v
}
