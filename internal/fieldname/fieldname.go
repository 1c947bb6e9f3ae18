// Package fieldname finds the field that a name stands for, by one rule for all programs: the field
// of that name, or else the only one that is the name with an extension, as caption.txt is caption.
package fieldname

import (
	"fmt"
	"slices"
	"strings"
)

// Find returns the field among have that a name stands for. If there is none, it returns the empty
// string, and an error if there are several.
func Find(name string, have []string) (string, error) {
	if slices.Contains(have, name) {
		return name, nil
	}
	var found []string
	for _, field := range have {
		if Extends(field, name) && !slices.Contains(found, field) {
			found = append(found, field)
		}
	}
	if len(found) < 2 {
		return strings.Join(found, ""), nil
	}
	slices.Sort(found)
	return "", fmt.Errorf("the field %q may be %s: give one of these names", name, strings.Join(found, " or "))
}

// Extends reports whether a field is a name with an extension.
func Extends(field, name string) bool {
	extension, is := strings.CutPrefix(field, name+".")
	return is && name != "" && extension != "" && !strings.Contains(extension, ".")
}
