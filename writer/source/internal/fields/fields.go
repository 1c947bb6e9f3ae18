// Package fields names the fields, keys and classes of samples that are made from rows.
package fields

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
)

// known lists field names that already state their content.
var known = []string{
	"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "avif", "jxl", "wav", "flac", "mp3", "ogg",
	"opus", "m4a", "mp4", "webm",
	"mkv", "avi", "mov", "pdf", "svg", "txt", "json", "cls", "npy", "npz", "bin", "bson",
}

// Name returns the field name of a column: the column's name if that states the content or has an
// extension, else the name with ext.
func Name(base, ext string) string {
	if strings.IndexByte(base, '.') >= 0 || slices.Contains(known, base) {
		return base
	}
	return base + "." + ext
}

// JSONName returns the field name for a value stored as JSON of a column whose name promises an
// array.
func JSONName(base string) string {
	if base == "npy" {
		return "json"
	}
	return Name(strings.TrimSuffix(base, ".npy"), "json")
}

// IsClass reports whether a column of integers has a name that is common for class numbers.
func IsClass(column string) bool {
	switch column {
	case "label", "labels", "class", "cls", "target":
		return true
	}
	return false
}

// Classes returns the metadata that names classes.
func Classes(names []string) format.Metadata {
	b, err := json.Marshal(names)
	if err != nil {
		panic("source: classes: " + err.Error()) // strings always encode
	}
	return format.Metadata{"classes": string(b)}
}

// RowKey returns the key that AppendRowKey appends.
func RowKey(stem string, row int64) string {
	return string(AppendRowKey(make([]byte, 0, len(stem)+20), stem, row))
}

// CheckKey checks a key from a column.
func CheckKey(column, key string) error {
	if key == "" {
		return NoKey(column, "empty:", "!=")
	}
	if err := format.CheckKey(key); err != nil {
		return fmt.Errorf("the key, column %s: %w, or take keys from another column, or from none", Quoted(column), err)
	}
	return nil
}

// NoKey is the error of a row without a key, where the column's value is as said. The condition holds
// for rows with one.
func NoKey(column, is, condition string) error {
	return hint.With(fmt.Errorf("the key, column %s, is %s leave such rows out by the condition '%s%s'", Quoted(column),
		is, column, condition), hint.Option("where"))
}

// Quoted returns a name as errors show it.
func Quoted(name string) string {
	if len(name) > 100 {
		return fmt.Sprintf("%q…", name[:100])
	}
	return fmt.Sprintf("%q", name)
}

// AppendRowKey appends the key of a row without a key column: the stem of its file, a slash, and
// the row's number in nine digits.
func AppendRowKey(dst []byte, stem string, row int64) []byte {
	dst = append(append(dst, stem...), '/')
	for limit := int64(1e8); limit > 1 && row < limit; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, row, 10)
}
