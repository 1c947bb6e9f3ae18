package parquet

import (
	"fmt"

	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// unit is a row group, the smallest part of a source. file and group count from 0, bytes is the
// decoded size of all columns.
type unit struct {
	file, group int
	rows, bytes int64
}

// units returns the row groups that hold rows, in order, of the current part after Split.
func (p *Parquet) units() []unit {
	var out []unit
	for i, f := range p.files {
		for k, rows := range f.rows {
			before := i < p.begin.file || i == p.begin.file && k < p.begin.group
			behind := i > p.end.file || i == p.end.file && k >= p.end.group
			if rows > 0 && !before && !behind {
				out = append(out, unit{i, k, rows, f.bytes[k]})
			}
		}
	}
	return out
}

// Split limits the source to part of parts, counted from 0, and moves to its beginning. Parts are
// runs of row groups: a row group belongs to part ⌊first row × parts ÷ rows⌋, with rows counted
// over all files. A part may be empty. The fingerprint does not change.
func (p *Parquet) Split(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("parquet: there is no part %d of %d: parts count from 0", part, parts)
	}
	p.closeGroup()
	p.begin, p.end = place{}, place{file: len(p.files)}
	units := p.units()
	total := int64(0)
	for _, u := range units {
		total += u.rows
	}
	p.begin = p.end
	first, found := int64(0), false
	for _, u := range units {
		at := place{file: u.file, group: u.group}
		of := int(inputs.MulDiv(first, int64(parts), total))
		switch {
		case of == part && !found:
			p.begin, found = at, true
		case of > part && found:
			p.end = at
			p.at = p.begin
			return nil
		}
		first += u.rows
	}
	if !found {
		p.end = p.begin
	}
	p.at = p.begin
	return nil
}

// Total returns the number of rows and the decoded bytes of their columns, of the current part
// after Split. It includes the rows that Where drops.
func (p *Parquet) Total() (samples, bytes int64) {
	for _, u := range p.units() {
		samples += u.rows
		bytes += u.bytes
	}
	return samples, bytes
}
