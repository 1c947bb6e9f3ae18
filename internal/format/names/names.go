// Package names has the names of the objects of a data set (SPEC 3). Names that contain a hash are
// never written twice with other bytes.
//
//	manifest-<16 hex>.bin        tables of a generation
//	keys-<16 hex>.bin            keys table
//	skipped-<16 hex>.jsonl       samples that a pack left out
//	<archive>.<16 hex>.shidx     sidecar of an uncompressed shard
//	view-<16 hex>.bin            view
//	views/<label>.json           name of a view
//	layers/<label>/…             a layer, which is a data set of its own
package names

import (
	"encoding/hex"
	"regexp"
	"strings"
)

var (
	tables  = regexp.MustCompile(`^manifest-[0-9a-f]{16}\.bin$`)
	keys    = regexp.MustCompile(`^keys-[0-9a-f]{16}\.bin$`)
	skipped = regexp.MustCompile(`^skipped-[0-9a-f]{16}\.jsonl$`)
	sidecar = regexp.MustCompile(`^(.+\.tar)\.([0-9a-f]{16})\.shidx$`)
	view    = regexp.MustCompile(`^view-[0-9a-f]{16}\.bin$`)
	viewID  = regexp.MustCompile(`^[0-9a-f]{16}$`)
	label   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)
)

var (
	// Shards matches the shards and sidecars that a Writer names by number. Other objects beside them
	// belong to the user.
	Shards = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*)-[0-9]{6,}(?:-x[0-9a-f]{16})?(?:\.tar\.zst|\.tar|\.tar\.shidx)$`)
	// Parts matches the manifests of parts of a pack.
	Parts = regexp.MustCompile(`^part-([A-Za-z0-9_][A-Za-z0-9._-]*)-([0-9]{4,})-of-([0-9]{4,})\.bin$`)
)

// LikeOurs reports whether an object has a name like those that a Writer puts.
func LikeOurs(name string) bool {
	_, _, sidecar := ParseSidecar(name)
	return sidecar || Shards.MatchString(name) || Parts.MatchString(name) || IsTables(name) || IsKeys(name) ||
		IsSkipped(name) || IsView(name)
}

// Tables returns the object name of tables with that hash.
func Tables(hash [32]byte) string { return "manifest-" + hex.EncodeToString(hash[:8]) + ".bin" }

// IsTables reports whether s is a name that Tables returns.
func IsTables(s string) bool { return tables.MatchString(s) }

// Generation returns the 16 hexadecimal digits in the name of a generation's tables, by which it
// can be opened; empty for another name.
func Generation(tables string) string {
	if !IsTables(tables) {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(tables, "manifest-"), ".bin")
}

// Keys returns the object name of a keys table with that hash.
func Keys(hash [32]byte) string { return "keys-" + hex.EncodeToString(hash[:8]) + ".bin" }

// IsKeys reports whether s is a name that Keys returns.
func IsKeys(s string) bool { return keys.MatchString(s) }

// Skipped returns the object name of a list of skipped samples with that hash.
func Skipped(hash [32]byte) string { return "skipped-" + hex.EncodeToString(hash[:8]) + ".jsonl" }

// IsSkipped reports whether s is a name that Skipped returns.
func IsSkipped(s string) bool { return skipped.MatchString(s) }

// Sidecar returns the name of the sidecar of an archive with the tag in it.
func Sidecar(archive string, tag [8]byte) string {
	return archive + "." + hex.EncodeToString(tag[:]) + ".shidx"
}

// ParseSidecar is the inverse of Sidecar; ok is false for any other name.
func ParseSidecar(s string) (archive string, tag [8]byte, ok bool) {
	m := sidecar.FindStringSubmatch(s)
	if m == nil {
		return "", tag, false
	}
	_, err := hex.Decode(tag[:], []byte(m[2]))
	return m[1], tag, err == nil
}

// View returns the object name of the view with an ID.
func View(id string) string { return "view-" + id + ".bin" }

// IsView reports whether s is a name that View returns.
func IsView(s string) bool { return view.MatchString(s) }

// IsViewID reports whether s can be the ID of a view: 16 hexadecimal digits.
func IsViewID(s string) bool { return viewID.MatchString(s) }

// LabelFolder begins the names of the objects that name views.
const LabelFolder = "views/"

// Label returns the name of the object that names a view.
func Label(name string) string { return LabelFolder + name + ".json" }

// ParseLabel is the inverse of Label; ok is false for any other name, and for names that a view
// cannot have.
func ParseLabel(object string) (name string, ok bool) {
	name, ok = strings.CutPrefix(object, LabelFolder)
	if ok {
		name, ok = strings.CutSuffix(name, ".json")
	}
	return name, ok && IsLabel(name)
}

// LayerFolder begins the names of the objects of layers.
const LayerFolder = "layers/"

// Layer returns the folder of a layer, without a slash at its end.
func Layer(name string) string { return LayerFolder + name }

// IsLabel reports whether s can be the name of a view or of a layer: 1 to 64 of the characters A-Z,
// a-z, 0-9, '.', '_' and '-', of which the first is not '.' or '-', and not 16 hexadecimal digits,
// which would be an ID.
func IsLabel(s string) bool { return label.MatchString(s) && !IsViewID(s) }
