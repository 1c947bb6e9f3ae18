package lines

import (
	"maps"

	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// parser converts the rows of chunks to samples. It is not safe for concurrent use.
type parser struct {
	*rows.Walk
	plan    *plan
	into    *chunk // of the current row
	columns map[string]*column
	named   map[string]*column // the columns that the options name

	file    *textFile // the file of the cached cells
	cells   []*column
	headed  bool  // a row of the file's header is no sample
	valid   bool  // the whole chunk is valid UTF-8
	chunks  int64 // that were begun
	scratch []byte
	stack   []byte
	array   array
}

func newParser(p *plan) *parser {
	out := &parser{plan: p, columns: map[string]*column{}, named: map[string]*column{}}
	out.Walk = p.Walk(func(name string) *rows.Column {
		c := out.find(name)
		out.named[name] = c
		return &c.Column
	})
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
	c := &column{Column: p.plan.Column(name), of: p, class: fields.IsClass(name)}
	c.Form = c
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
