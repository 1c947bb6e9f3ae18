package parquet

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// ErrOption is wrapped by errors in Options: a column that no file has, a filter that cannot be read.
var ErrOption = errors.New("option")

func optionf(msg string, args ...any) error {
	return fmt.Errorf("%w %w", ErrOption, fmt.Errorf(msg, args...))
}

// Input is one Parquet file: an object of a store.
type Input struct {
	Store objstore.Store
	Name  string
	// Path is what errors call the file and keys are made of: slashes, without secrets. Default: Name.
	Path string
}

// Options say which rows become samples and how. The zero value takes all columns of all rows.
type Options struct {
	// Key names the column of keys: strings, or integers, which are written in decimal. It becomes a field only where Columns
	// names it. Without one, keys are the file's name without .parquet, a slash, and the number of the row in nine digits; as
	// many folders come before the name as tell files apart.
	Key string
	// Columns are the columns that become fields, nil for all. Others are not read, unless Key, Attrs or Where wants them.
	Columns []string
	// Rename gives columns another name in fields: {"image": "jpg"}.
	Rename map[string]string
	// Attrs are attributes and the columns of their values: integers and truth values become integer attributes, floats numbers,
	// strings labels, and columns of class labels as Hugging Face marks them labels, by name. Null is no value.
	Attrs map[string]string
	// Where keeps rows for which all of these hold: "col=value", "col!=value", "col<n", "<=", ">", ">=", "col is null",
	// "col is not null". A comparison with null does not hold.
	Where []string
}

// stems gives each file the beginning of its keys: its name without the suffix, and as many folders as tell files apart.
func stems(inputs []Input) ([]string, error) {
	parts := make([][]string, len(inputs))
	for i, in := range inputs {
		name := strings.TrimLeft(path.Clean(strings.ReplaceAll(in.Path, "\\", "/")), "/")
		if _, rest, ok := strings.Cut(name, ":/"); ok { // the scheme of a URL
			name = strings.TrimLeft(rest, "/")
		}
		for _, suffix := range []string{".parquet", ".parq", ".pq"} {
			if rest, ok := strings.CutSuffix(name, suffix); ok && path.Base(rest) != "." && rest != "" {
				name = rest
				break
			}
		}
		for element := range strings.SplitSeq(name, "/") {
			if element != "." && element != ".." && element != "" {
				parts[i] = append(parts[i], element)
			}
		}
	}
	out := make([]string, len(inputs))
	for elements := 1; ; elements++ {
		seen := map[string]int{}
		same, longer := -1, false
		for i, p := range parts {
			out[i] = strings.Join(p[max(0, len(p)-elements):], "/")
			longer = longer || len(p) > elements
			if _, ok := seen[out[i]]; ok && same < 0 {
				same = i
			}
			seen[out[i]] = i
		}
		if same < 0 {
			return out, nil
		}
		if !longer {
			return nil, optionf("inputs: %s is given twice", inputs[same].Path)
		}
	}
}
