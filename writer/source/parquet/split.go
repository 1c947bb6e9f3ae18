package parquet

import (
	"fmt"

	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// Unit is a row group, the smallest piece that a source can be divided by.
type unit struct {
	file, group int
	rows, bytes int64
}

// Units are the row groups that hold rows, in order; after Split those of the part.
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

// Split limits the source to one of so many parts, counted from 0, and goes to its beginning. Parts are runs of row groups,
// together all of them: a row group belongs to part ⌊first row × parts ÷ rows⌋, where both are counted over all files. A part
// may be empty. The fingerprint stays that of the whole.
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

// Total counts rows, and bytes that columns decode to: those of the part after Split. Rows that Where leaves out are counted.
func (p *Parquet) Total() (samples, bytes int64) {
	for _, u := range p.units() {
		samples += u.rows
		bytes += u.bytes
	}
	return samples, bytes
}
