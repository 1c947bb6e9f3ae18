package format

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxName bounds key and field together, in bytes. It is PATH_MAX of Linux, so that every member
// can be extracted.
const MaxName = 4096

// SplitName divides a member's name into the sample's key and the field: the key is the path up to
// the first dot of the base name, the field what follows that dot. A base name without a dot has
// the empty field (SPEC 2.1). Both results are slices of name.
func SplitName(name []byte) (key, field []byte) {
	base := bytes.LastIndexByte(name, '/') + 1
	dot := bytes.IndexByte(name[base:], '.')
	if dot < 0 {
		return name, nil
	}
	return name[:base+dot], name[base+dot+1:]
}

// JoinName returns the member's name of a field: key "." field, or the key alone for the empty
// field.
func JoinName(key, field string) string {
	if field == "" {
		return key
	}
	return key + "." + field
}

// CheckKey checks that a key can be stored and read back unchanged: it is a relative path of at
// most MaxName bytes without NUL, without empty, "." or ".." elements, and without a dot in its
// last element, which would split there. The error wraps ErrName and has what to do.
func CheckKey(key string) error {
	bad := func(why string) error { return fmt.Errorf("%w: key %q %s", ErrName, key, why) }
	switch {
	case key == "":
		return fmt.Errorf("%w: empty key (a name that begins with a dot has none): rename the source", ErrName)
	case len(key) > MaxName:
		return fmt.Errorf("%w: key %q… of %d bytes is longer than %d", ErrName, key[:64], len(key), MaxName)
	case strings.IndexByte(key, 0) >= 0:
		return bad("contains a NUL byte")
	case key[0] == '/':
		return bad("is an absolute path: make it relative")
	}
	rest := key
	for {
		i := strings.IndexByte(rest, '/')
		elem := rest
		if i >= 0 {
			elem = rest[:i]
		}
		if elem == "" || elem == "." || elem == ".." {
			return bad(fmt.Sprintf("has the path element %q: use plain names between slashes", elem))
		}
		if i < 0 {
			if strings.IndexByte(elem, '.') >= 0 {
				return bad("has a dot in its last element, where key and field would be divided: replace the dot")
			}
			return nil
		}
		rest = rest[i+1:]
	}
}

// CheckMember checks that the name of a member in a block gives a key that CheckKey accepts. The
// error wraps ErrCorrupt: no writer stores another name, and a tool that extracted it could be led
// outside its folder. It allocates only if it fails.
func CheckMember(name []byte) error {
	rest := name
	bad := len(name) > MaxName || bytes.IndexByte(name, 0) >= 0
	for !bad {
		i := bytes.IndexByte(rest, '/')
		if i < 0 {
			break
		}
		elem := rest[:i]
		bad = len(elem) == 0 || elem[0] == '.' && (len(elem) == 1 || len(elem) == 2 && elem[1] == '.')
		rest = rest[i+1:]
	}
	if bad || len(rest) == 0 || rest[0] == '.' {
		return fmt.Errorf("%w: a member has the name %.100q, which is not a key and a field", ErrCorrupt, name)
	}
	return nil
}

// CheckField checks that a field name can be stored: no slash, no NUL, at most MaxName bytes. The
// empty field is allowed.
func CheckField(field string) error {
	switch {
	case len(field) > MaxName:
		return fmt.Errorf("%w: field %q… of %d bytes is longer than %d", ErrName, field[:64], len(field), MaxName)
	case strings.IndexByte(field, 0) >= 0:
		return fmt.Errorf("%w: field %q contains a NUL byte", ErrName, field)
	case strings.IndexByte(field, '/') >= 0:
		return fmt.Errorf("%w: field %q contains a slash", ErrName, field)
	}
	return nil
}
