// Package fields is what sources of rows have in common: how fields are called, how rows are numbered, the conditions of
// filters.
package fields

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
)

// known are names of fields that say by themselves what is in them.
var known = []string{
	"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "avif", "jxl", "wav", "flac", "mp3", "ogg", "opus", "m4a", "mp4", "webm",
	"mkv", "avi", "mov", "pdf", "svg", "txt", "json", "cls", "npy", "npz", "bin", "bson",
}

// Name is the name of a column's field: its own where that says what is in it, else with an extension.
func Name(base, ext string) string {
	if strings.IndexByte(base, '.') >= 0 || slices.Contains(known, base) {
		return base
	}
	return base + "." + ext
}

// JSONName is that of a column named for arrays in a row whose value is none, but JSON.
func JSONName(base string) string {
	if base == "npy" {
		return "json"
	}
	return Name(strings.TrimSuffix(base, ".npy"), "json")
}

// IsClass says whether a column of integers goes by a name of class numbers.
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

// RowKey is AppendRowKey to a string.
func RowKey(stem string, row int64) string {
	return string(AppendRowKey(make([]byte, 0, len(stem)+20), stem, row))
}

// CheckKey checks a key from a column. Errors call the column shown, and conditions name it.
func CheckKey(shown, column, key string) error {
	if key == "" {
		return fmt.Errorf("the key, column %s, is empty: leave such rows out by the condition '%s!='", shown, column)
	}
	if err := format.CheckKey(key); err != nil {
		return fmt.Errorf("the key, column %s: %w, or take keys from another column, or from none", shown, err)
	}
	return nil
}

// AppendRowKey appends the key of a row that has none of its own: the stem of its file, a slash, and its number in nine digits.
func AppendRowKey(dst []byte, stem string, row int64) []byte {
	dst = append(append(dst, stem...), '/')
	for limit := int64(1e8); limit > 1 && row < limit; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, row, 10)
}
