package lines

import (
	"slices"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// plan is how rows become samples. It is immutable.
type plan struct {
	rows.Plan
	opt Options
}

// scan finds the end of a number, or word, of JSON.
func (p *plan) scan(b []byte, i int) (rows.Kind, int, *syntaxError) {
	if p.opt.AllowNaN {
		return scanNumber(b, i)
	}
	return scanPlain(b, i)
}

// newPlan checks options against the files. Names are checked only if all files are CSV, because
// the members of JSON lines are not known in advance.
func newPlan(files []*textFile, opt *Options) (*plan, error) {
	columns, json := columnsOf(files)
	of, err := rows.New(opt.choice(), columns, json, func() error {
		for _, f := range files {
			if f.header != nil && !slices.Contains(f.header, opt.Key) {
				return rows.Lacks(f.Path, opt.Key, f.header)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p := &plan{Plan: *of, opt: *opt}
	if err := p.checkNames(columns); err != nil {
		return nil, err
	}
	return p, p.checkEncodings(files)
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

// checkNames checks that the columns of headers can become fields with different names.
func (p *plan) checkNames(columns []string) error {
	taken := rows.Names{}
	for i, name := range columns {
		c := &column{Column: p.Column(name)}
		if !c.Field {
			continue
		}
		if c.Base == "" {
			return rows.Unnamed(i)
		}
		for _, ext := range []extension{extText, extClass} {
			full, err := c.fieldName(ext)
			if err != nil {
				return writer.Optionf("columns", "%w", err)
			}
			if err := taken.Take(name, full); err != nil {
				return err
			}
		}
	}
	return nil
}
