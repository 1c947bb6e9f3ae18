package kinds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
)

// FeaturesKey is the key of META that has the features of fields.
const FeaturesKey = "features"

// Features maps names of fields to the JSON of a Feature. A name that ends in ".*" stands for
// all fields with another extension there that are not named themselves.
type Features map[string]json.RawMessage

// ParseFeatures returns the features in metadata, each of which ParseFeature parses. Metadata that
// cannot be parsed, such as a later version's, has none.
func ParseFeatures(meta format.Metadata) (f Features) {
	if json.Unmarshal([]byte(meta[FeaturesKey]), &f) != nil {
		return nil
	}
	return f
}

// Put sets the features in metadata, or removes them if there are none.
func (f Features) Put(meta format.Metadata) {
	if delete(meta, FeaturesKey); len(f) > 0 {
		meta[FeaturesKey] = string(encoded(f))
	}
}

// Of returns the feature of a field, nil if it is not known.
func (f Features) Of(field string) json.RawMessage {
	if is, ok := f[field]; ok {
		return is
	}
	return f[field[:max(0, strings.LastIndexByte(field, '.'))]+".*"]
}

// Lists returns the names of lists of files: features of lists of media, or of bytes and paths,
// that no field has as its name. Their elements are the fields NAME.<n>.<ext> (SPEC 4.6).
func (f Features) Lists(fields []string) (names []string) {
	for name, text := range f {
		if !slices.Contains(fields, name) && ElementOf(text) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ElementOf returns the feature of the elements if text is that of lists of files, else nil.
func ElementOf(text json.RawMessage) *Feature {
	f, err := ParseFeature(text)
	if err != nil || f.Class != "List" && f.Class != "LargeList" {
		return nil
	}
	of := f.Parts[0]
	if s, err := of.Storage(); err == nil && files.Holds(s) {
		return of
	}
	return nil
}

// Files returns the feature of lists of files of which no more is known.
func Files() *Feature {
	return List(&Feature{Names: files.Names, Parts: []*Feature{Value("binary"), Value("string")}})
}

// A feature may be nested as deeply, and have as many parts: a table has a column for each.
const (
	maxDepth = 32
	maxParts = 4096
)

// Feature is a type of Hugging Face datasets. Its JSON is what their DatasetInfo has.
type Feature struct {
	Class string // Value, ClassLabel, Image, ...; List and LargeList have one part; empty for a struct
	Rest  map[string]json.RawMessage
	Names []string // of the parts of a struct
	Parts []*Feature
}

// Value returns the feature of scalars.
func Value(dtype string) *Feature { return newFeature("Value", "dtype", dtype) }

// Labels returns the feature of class numbers.
func Labels(names []string) *Feature { return newFeature("ClassLabel", "names", names) }

func newFeature(class, member string, value any) *Feature {
	return &Feature{Class: class, Rest: map[string]json.RawMessage{member: encoded(value)}}
}

// Array returns the feature of arrays of two to five dimensions.
func Array(dtype string, shape []int) *Feature {
	f := newFeature(fmt.Sprintf("Array%dD", len(shape)), "dtype", dtype)
	f.Rest["shape"] = encoded(shape)
	return f
}

// List returns the feature of lists.
func List(of *Feature) *Feature { return &Feature{Class: "List", Parts: []*Feature{of}} }

// ParseFeature reads the JSON of a feature. It replaces forms that older releases write by today's.
func ParseFeature(text []byte) (*Feature, error) {
	p := featureParser{}
	return p.feature(text, 0)
}

type featureParser struct{ parts int }

func (p *featureParser) feature(text json.RawMessage, depth int) (*Feature, error) {
	if p.parts++; p.parts > maxParts || depth > maxDepth {
		return nil, fmt.Errorf("a feature has more than %d parts, or %d below each other", maxParts, maxDepth)
	}
	if text = bytes.TrimSpace(text); len(text) > 0 && text[0] == '[' {
		var of []json.RawMessage
		if err := json.Unmarshal(text, &of); err != nil || len(of) != 1 {
			return nil, errors.New("a list of features has one of them")
		}
		part, err := p.feature(of[0], depth+1)
		return List(part), err
	}
	names, values, err := object(text)
	if err != nil {
		return nil, err
	}
	f := &Feature{}
	if at := slices.Index(names, "_type"); at >= 0 && json.Unmarshal(values[at], &f.Class) == nil {
		f.Rest = map[string]json.RawMessage{}
		for i, name := range names {
			switch {
			case name == "_type" || string(values[i]) == "null" || f.Class == "Value" && name != "dtype":
			case name == "feature":
				part, err := p.feature(values[i], depth+1)
				if err != nil {
					return nil, err
				}
				f.Parts = []*Feature{part}
			default:
				f.Rest[name] = values[i]
			}
		}
		return f.today()
	}
	f.Names = names
	for _, v := range values {
		part, err := p.feature(v, depth+1)
		if err != nil {
			return nil, err
		}
		f.Parts = append(f.Parts, part)
	}
	return f, nil
}

// today replaces Sequence, which is a list, or of a struct a struct of lists.
func (f *Feature) today() (*Feature, error) {
	list := f.Class == "Sequence" || f.Class == "List" || f.Class == "LargeList"
	if list != (len(f.Parts) == 1) {
		return nil, fmt.Errorf("the feature %s has %d parts", f.Class, len(f.Parts))
	}
	if f.Class != "Sequence" {
		return f, nil
	}
	f.Class = "List"
	of := f.Parts[0]
	if of.Class != "" || !slices.ContainsFunc(of.Parts, func(part *Feature) bool { return part.Class != "List" }) {
		return f, nil
	}
	for i, part := range of.Parts {
		of.Parts[i] = &Feature{Class: "List", Rest: f.Rest, Parts: []*Feature{part}}
	}
	return of, nil
}

// object splits a JSON object, in order.
func object(text []byte) (names []string, values []json.RawMessage, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return nil, nil, errors.New("a feature is a JSON object")
	}
	seen := map[string]bool{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, nil, err
		}
		if seen[name.(string)] {
			return nil, nil, fmt.Errorf("a feature has two members %q", name)
		}
		seen[name.(string)] = true
		names, values = append(names, name.(string)), append(values, value)
	}
	_, err = in.Token()
	return names, values, err
}

// AppendJSON appends the feature as DatasetInfo has it. Lists are called as all releases of
// datasets read them.
func (f *Feature) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, name := range f.Names {
		dst = append(appendQuoted(dst, name), ':')
		if dst = f.Parts[i].AppendJSON(dst); i < len(f.Names)-1 {
			dst = append(dst, ',')
		}
	}
	if f.Class == "" {
		return append(dst, '}')
	}
	class := f.Class
	if class == "List" && f.Parts[0].Class != "" {
		class = "Sequence"
	}
	if len(f.Parts) > 0 {
		dst = append(f.Parts[0].AppendJSON(append(dst, `"feature":`...)), ',')
	}
	dst = f.appendRest(dst)
	return append(appendQuoted(append(dst, `"_type":`...), class), '}')
}

func (f *Feature) appendRest(dst []byte) []byte {
	for _, name := range slices.Sorted(maps.Keys(f.Rest)) {
		dst = append(append(append(appendQuoted(dst, name), ':'), f.Rest[name]...), ',')
	}
	return dst
}

// Quoted returns a string as JSON.
func Quoted(text string) []byte { return encoded(text) }

func appendQuoted(dst []byte, text string) []byte { return append(dst, Quoted(text)...) }

// AppendCard appends the members of the feature in the card of a data set, without braces, in the
// order in which datasets look at them. JSON is YAML.
func (f *Feature) AppendCard(dst []byte) []byte {
	rest := func(dst []byte) []byte { return bytes.TrimSuffix(f.appendRest(dst), []byte(",")) }
	switch {
	case f.Class == "":
		return f.appendParts(append(dst, `"struct":`...))
	case len(f.Parts) > 0:
		name := `"sequence":`
		if f.Class == "LargeList" {
			name = `"large_list":`
		} else if f.Parts[0].Class == "" {
			name = `"list":`
		}
		dst = append(dst, name...)
		switch part := f.Parts[0]; {
		case part.Class == "":
			dst = part.appendParts(dst)
		case part.Class == "Value" && len(part.Rest) == 1:
			dst = append(dst, part.Rest["dtype"]...)
		default:
			dst = append(part.AppendCard(append(dst, '{')), '}')
		}
		return rest(append(dst, ','))
	case f.Class == "Value":
		return rest(dst)
	}
	dst = append(dst, `"dtype":`...)
	name := snake(f.Class)
	if len(f.Rest) == 0 {
		return appendQuoted(dst, name)
	}
	dst = append(appendQuoted(append(dst, '{'), name), ":{"...)
	var names []string
	if f.Class != "ClassLabel" || json.Unmarshal(f.Rest["names"], &names) != nil {
		return append(rest(dst), "}}"...)
	}
	dst = append(dst, `"names":{`...)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(fmt.Appendf(dst, `"%d":`, i), name)
	}
	return append(dst, "}}}"...)
}

// appendParts appends the parts of a struct as a list.
func (f *Feature) appendParts(dst []byte) []byte {
	dst = append(dst, '[')
	for i, name := range f.Names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(append(dst, `{"name":`...), name), ',')
		dst = append(f.Parts[i].AppendCard(dst), '}')
	}
	return append(dst, ']')
}

// snake returns the name of a class in a card: array2_d for Array2D.
func snake(class string) string {
	var out []byte
	for i, c := range []byte(class) {
		if upper := c >= 'A' && c <= 'Z'; upper && i > 0 && (class[i-1] < 'A' || class[i-1] > 'Z') {
			out = append(out, '_')
		}
		out = append(out, c)
	}
	return strings.ToLower(string(out))
}
