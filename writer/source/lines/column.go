package lines

import (
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// extension is the extension of a field's name.
type extension int

const (
	extText extension = iota
	extClass
	extNumpy
	extJSON
	extBytes
	extJPEG
	extPNG
)

var extensions = [...]string{"txt", "cls", "npy", "json", "bin", "jpg", "png"}

// extensionOf has the extensions of kinds, as far as no more than the kind decides.
var extensionOf = [...]extension{rows.List: extJSON, rows.Object: extJSON, rows.Bytes: extBytes, rows.Array: extNumpy,
	rows.JPEG: extJPEG, rows.PNG: extPNG}

// column is a member or column.
type column struct {
	rows.Column
	of    *parser
	class bool // its integers are class numbers
	names [len(extensions)]string
	// words are the kinds that the fields of the chunk had so far, by extension.
	chunk int64
	words [len(extensions)]string
}

// fieldName returns the column's field name with an extension.
func (c *column) fieldName(ext extension) (string, error) {
	if name := c.names[ext]; name != "" {
		return name, nil
	}
	name := fields.Name(c.Base, extensions[ext])
	if ext == extJSON {
		name = fields.JSONName(c.Base)
	}
	if c.Base == "" { // which an extension would hide
		return "", rows.CheckField(c.Name, "")
	}
	if err := rows.CheckField(c.Name, name); err != nil {
		return "", err
	}
	c.names[ext] = name
	return name, nil
}

// quoted returns a name as errors show it.
func quoted(name string) string { return fields.Quoted(name) }
