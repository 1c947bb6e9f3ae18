// Package fieldname finds the field that a name stands for, by one rule for all programs: the field
// of that name, or else the list of files of that name, or else the only field that is the name
// with an extension, as caption.txt is caption.
package fieldname

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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

// FindAll returns the fields that a name stands for, where a name may also be one of lists, which
// are lists of files: then they are its elements, in order, and there may be none. list reports
// that.
func FindAll(name string, have, lists []string) (fields []string, list bool, err error) {
	if !slices.Contains(have, name) && slices.Contains(lists, name) {
		return Elements(name, have), true, nil
	}
	field, err := Find(name, have)
	if err != nil || field == "" && !slices.Contains(have, name) {
		return nil, false, err
	}
	return []string{field}, false, nil
}

// MaxElements is the most elements of a list of files.
const MaxElements = 1000

// Element returns which element of a list a field is: NAME.<n>.<ext>.
func Element(field, list string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(field, list+".")
	number, extension, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	ok = ok && dot && err == nil && n >= 0 && n < MaxElements && strconv.Itoa(n) == number && extension != "" &&
		!strings.Contains(extension, ".")
	return n, ok
}

// Elements returns the fields among have that are elements of a list, by their numbers.
func Elements(list string, have []string) (fields []string) {
	for _, field := range have {
		if _, ok := Element(field, list); ok && !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	slices.SortFunc(fields, func(a, b string) int {
		i, _ := Element(a, list)
		j, _ := Element(b, list)
		return cmp.Or(cmp.Compare(i, j), strings.Compare(a, b))
	})
	return fields
}
