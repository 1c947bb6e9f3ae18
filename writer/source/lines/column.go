package lines

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
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
var extensionOf = [...]extension{kindList: extJSON, kindObject: extJSON, kindBytes: extBytes, kindArray: extNumpy, kindJPEG: extJPEG, kindPNG: extPNG}

// column is a member or column and its value in the current row.
type column struct {
	name   string
	base   string // field name, without extension
	class  bool   // its integers are class numbers
	field  bool   // it becomes a field
	wanted bool   // as a field, key, attribute or filter
	names  [len(extensions)]string
	row    int64 // the last row that had the column
	v      value
	// words are the kinds that the fields of the chunk had so far, by extension.
	chunk int64
	words [len(extensions)]string
}

// fieldName returns the column's field name with an extension.
func (c *column) fieldName(ext extension) (string, error) {
	if name := c.names[ext]; name != "" {
		return name, nil
	}
	name := fields.Name(c.base, extensions[ext])
	if ext == extJSON {
		name = fields.JSONName(c.base)
	}
	if err := format.CheckField(name); err != nil || c.base == "" {
		if err == nil {
			err = fmt.Errorf("%w: it is empty", format.ErrName)
		}
		return "", fmt.Errorf("column %s cannot be the name of a field (%w): rename it, or take the other columns only", quoted(c.name), err)
	}
	c.names[ext] = name
	return name, nil
}

// quoted returns a name as errors show it.
func quoted(name string) string {
	if len(name) > 100 {
		return fmt.Sprintf("%q…", name[:100])
	}
	return fmt.Sprintf("%q", name)
}
