package objstore

import (
	"fmt"
	"strings"
)

// MaxNameLen is the longest name a store accepts, in bytes. It is S3's limit on a key.
const MaxNameLen = 1024

// CheckName reports whether name is one a store accepts: nil, or an error that wraps [ErrName] and says which rule is
// broken. The name itself is not in the message; callers add it with their position.
//
// Bytes other than backslash and NUL are free: spaces, newlines and bytes that are not UTF-8 are accepted here. A store
// whose medium cannot hold such a name (S3 wants UTF-8, a file system at most 255 bytes an element) refuses it with
// ErrName as well.
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
