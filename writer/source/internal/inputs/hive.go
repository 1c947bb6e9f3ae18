package inputs

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/curate/where"
	"github.com/shardtool/shardtool/writer"
)

// hiveNull is what Hive writes for null.
const hiveNull = "__HIVE_DEFAULT_PARTITION__"

// Constant is a column that has one value in all rows of a file: a folder of its path, such as
// year=2020.
type Constant struct {
	Name string
	// Folder is how the path writes it, empty for a file without such a folder, whose value is null.
	Folder string
	Null   bool
	// Integer reports that the column has integers only, of which this one is N. Text is the value,
	// integers as they are written in decimal.
	Integer bool
	N       int64
	Text    string
}

// Hive sets the Constants of files: of the folders directly above a file whose names have the
// form key=value, percent-encoded. A column is of integers if all its values are. It returns the
// files of which conditions on these columns allow rows, at least one, and the paths of the others.
func Hive(files []File, conditions []string) (kept []File, passed []string, err error) {
	var names []string
	text := map[string]bool{} // columns that are not of integers
	for i := range files {
		f := &files[i]
		f.Constants = constants(f.Path)
		for j, c := range f.Constants {
			if slices.ContainsFunc(f.Constants[:j], func(o Constant) bool { return o.Name == c.Name }) {
				return nil, nil, writer.Optionf("inputs", "%s: two of its folders are called %s=", f.Path, c.Name)
			}
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
			text[c.Name] = text[c.Name] || !c.Null && !c.Integer
		}
	}
	if len(names) == 0 {
		return files, nil, nil
	}
	expr, err := where.ParseAll(conditions)
	if err != nil {
		expr = nil // the plan of the rows gives the error
	}
	for i := range files {
		files[i].align(names, text)
		if expr == nil || !expr.Never(func(k int) bool { return files[i].never(&expr.Conditions[k]) }) {
			kept = append(kept, files[i])
		} else {
			passed = append(passed, files[i].Path)
		}
	}
	if len(kept) == 0 {
		kept, passed = files[:1], passed[1:]
	}
	return kept, passed, nil
}

// constants returns the columns in the folders of a path.
func constants(path string) (out []Constant) {
	elements := strings.Split(strings.ReplaceAll(path, "\\", "/"), "/")
	for i := len(elements) - 2; i >= 0; i-- {
		name, value, ok := strings.Cut(elements[i], "=")
		if !ok || name == "" {
			break
		}
		c := Constant{Name: decoded(name), Folder: elements[i], Text: decoded(value), Null: value == hiveNull}
		if n, err := strconv.ParseInt(c.Text, 10, 64); err == nil && c.Text[0] != '+' {
			c.Integer, c.N = true, n
		}
		out = append(out, c)
	}
	slices.Reverse(out)
	return out
}

func decoded(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// align gives the file a constant for each name, of the type that the column has.
func (f *File) align(names []string, text map[string]bool) {
	own := f.Constants
	f.Constants = nil
	for _, name := range names {
		c := Constant{Name: name, Null: true}
		if i := slices.IndexFunc(own, func(o Constant) bool { return o.Name == name }); i >= 0 {
			c = own[i]
		}
		if c.Integer = !text[name]; c.Integer {
			c.Text = strconv.FormatInt(c.N, 10)
		}
		f.Constants = append(f.Constants, c)
	}
}

// Constant returns the column of that name of the path, or nil.
func (f *File) Constant(name string) *Constant {
	if i := slices.IndexFunc(f.Constants, func(k Constant) bool { return k.Name == name }); i >= 0 {
		return &f.Constants[i]
	}
	return nil
}

// never reports whether a condition holds for no row of the file, whichever source reads it.
// Sources differ about numbers that are quoted or not decimal, and rows of a file without such a
// folder may have the column themselves.
func (f *File) never(c *where.Condition) bool {
	k := f.Constant(c.Column)
	if k == nil || k.Folder == "" {
		return false
	}
	switch {
	case k.Null || c.Nulls():
		return !c.Holds(k.Null, 0, false)
	case k.Integer:
		n, ok := c.Number()
		if !ok {
			return false
		}
		order, ordered := n.CompareInt(k.N)
		return !c.Holds(false, order, ordered)
	default:
		return !c.Holds(false, strings.Compare(k.Text, c.Word), true)
	}
}

// Check returns an error for a row of a file that has the column itself, as some writers of such
// folders leave it there, unless the row and the folder have one value.
func (c *Constant) Check(null bool, text []byte) error {
	if c.Folder == "" || null && c.Null || !null && !c.Null && string(text) == c.Text {
		return nil
	}
	is := "null"
	if !null {
		is = fmt.Sprintf("%.100q", text)
	}
	return c.Twice(is)
}

// Twice returns the error of a column that the file has, as said, and a folder too.
func (c *Constant) Twice(is string) error {
	return fmt.Errorf("the column %q is in the file and in the folder %s, and is %s in the file: rename one of them, or take the other columns only",
		c.Name, c.Folder, is)
}
