package objstore

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// MaxNameLen is the length in bytes of the longest name that a store accepts, which is the limit of
// S3.
const MaxNameLen = 1024

// probePrefix begins the names of objects that are put to try a store, and deleted.
const probePrefix = ".shardtool-probe-"

// ProbeName returns a new name for an object that is put to try a store, and deleted.
func ProbeName() string { return probePrefix + strings.ToLower(rand.Text()) }

// IsProbe reports whether s is a name that ProbeName returns.
func IsProbe(s string) bool { return strings.HasPrefix(s, probePrefix) }

// PartPrefix begins the names of parts of uploads in stores where these are objects.
const PartPrefix = ".shardtool-part-"

// PartName returns the name of a part of an upload, in stores where parts are objects. Names ascend
// with the level and the number.
func PartName(upload string, level, number int) string {
	return fmt.Sprintf("%s%s-%d-%05d", PartPrefix, upload, level, number)
}

// IsPart reports whether s is a name that PartName returns, or one in a folder.
func IsPart(s string) bool {
	return strings.HasPrefix(s, PartPrefix) || strings.Contains(s, "/"+PartPrefix)
}

// CheckName returns nil if a store accepts name, or an error that wraps [ErrName] and states the
// rule that is broken. The error does not contain the name.
//
// All bytes except backslash and NUL are accepted, including spaces, newlines and invalid UTF-8. A
// store that cannot hold such a name refuses it with ErrName: S3 requires UTF-8, and file systems
// limit an element to 255 bytes.
func CheckName(name string) error {
	switch {
	case name == "":
		return nameError("it is empty")
	case len(name) > MaxNameLen:
		return nameError(fmt.Sprintf("it has %d bytes, the limit is %d", len(name), MaxNameLen))
	case strings.IndexByte(name, '\\') >= 0:
		return nameError("it has a backslash; use / between elements")
	case strings.IndexByte(name, 0) >= 0:
		return nameError("it has a NUL byte")
	case name[0] == '/':
		return nameError("it begins with /; names are relative to the store")
	}
	for element := range strings.SplitSeq(name, "/") {
		switch element {
		case "":
			return nameError("it has an empty element (// or / at the end)")
		case ".", "..":
			return nameError("it has the element " + element)
		}
	}
	return nil
}

func nameError(why string) error { return fmt.Errorf("%w: %s", ErrName, why) }
