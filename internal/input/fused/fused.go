// Package fused finds files that the rule of the first dot makes fields of one sample although they
// look like samples of their own: cat.0.jpg and cat.1.jpg, or 1.2.840.1.dcm and 1.2.840.2.dcm.
package fused

import (
	"fmt"
	"path"
	"strings"

	"github.com/shardtool/shardtool/format"
)

// Watch counts files and samples. The zero value is ready to use.
type Watch struct {
	Files, Samples int64
	// Key is the first sample with two fields that begin with digits up to their first dot, which are
	// One and Two. It is empty if there is none.
	Key, One, Two string

	numbered string // the first such field of the current sample
}

// Sample begins the next sample.
func (w *Watch) Sample() {
	w.Samples++
	w.numbered = ""
}

// File adds a file to the sample, and reports whether it is the first that shows fused files.
func (w *Watch) File(key, field string) bool {
	w.Files++
	if w.Key != "" || !numbered(field) {
		return false
	}
	if w.numbered == "" {
		w.numbered = field
		return false
	}
	w.Key, w.One, w.Two = key, w.numbered, field
	return true
}

// Add adds the counts of files that come after the files in w.
func (w *Watch) Add(o *Watch) {
	w.Files, w.Samples = w.Files+o.Files, w.Samples+o.Samples
	if w.Key == "" {
		w.Key, w.One, w.Two = o.Key, o.One, o.Two
	}
}

// numbered reports whether a field begins with digits up to a dot.
func numbered(field string) bool {
	number, _, dotted := strings.Cut(field, ".")
	return dotted && number != "" && strings.Trim(number, "0123456789") == ""
}

// Few reports whether there are fewer than a tenth as many samples as files.
func (w *Watch) Few() bool { return w.Samples < w.Files/10 }

// Rule says how files become samples, and what to do about names that it fuses.
const Rule = "the files of a sample share the name up to the first dot"

// LastDot divides a name at the last dot of its base name. A key has no dot there, so each dot
// before it becomes a hyphen: 1.2.840.1.dcm is the field dcm of the sample 1-2-840-1.
func LastDot(name string) (key, field string) {
	base := strings.LastIndexByte(name, '/') + 1
	key = stem(name)
	field = strings.TrimPrefix(name[len(key):], ".")
	return key[:base] + strings.ReplaceAll(key[base:], ".", "-"), field
}

// stem returns a name up to the last dot of its base name.
func stem(name string) string {
	if dot := strings.LastIndexByte(name, '.'); dot > strings.LastIndexByte(name, '/') {
		return name[:dot]
	}
	return name
}

// Cut returns an error if the name of a file ends with a dot and so has no field: its sample would
// give it back without the dot.
func Cut(name, field string) error {
	if field != "" || !strings.HasSuffix(name, ".") {
		return nil
	}
	return fmt.Errorf("%w: the name ends with a dot, which tar would give back as %q: rename the file", format.ErrName,
		path.Base(strings.TrimSuffix(name, ".")))
}

// Meet returns the error of two files of a sample that LastDot made of names that differ before the
// last dot, such as a.b.jpg and a-b.txt, or nil.
func Meet(a, b string) error {
	if stem(a) == stem(b) {
		return nil
	}
	return fmt.Errorf("%w: %q and %q become one sample, because a key has hyphens for dots: rename one of them",
		format.ErrDuplicate, a, b)
}

// Example says which files were fused.
func (w *Watch) Example() string {
	return fmt.Sprintf("%s and %s become the fields %s and %s of one sample, %s", format.JoinName(w.Key, w.One),
		format.JoinName(w.Key, w.Two), w.One, w.Two, w.Key)
}

// Renamed is a name that keeps the first of the files apart.
func (w *Watch) Renamed() string {
	end := strings.LastIndexByte(w.One, '.')
	return w.Key + "-" + strings.ReplaceAll(w.One[:end], ".", "-") + w.One[end:]
}
