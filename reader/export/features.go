package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/reader"
)

// keyColumn is the column of the keys in tables.
const keyColumn = "__key__"

// extension returns the extension of a field, without a dot in front: a name without a dot is one.
func extension(field string) string { return strings.TrimPrefix(path.Ext("."+field), ".") }

// column is a column of a table, and the fields that fill it: several where a field's extension
// depends on the sample, as img.png and img.jpg.
type column struct {
	name    string
	fields  []string       // nil: the key
	feature *kinds.Feature // nil: the feature of the first array
	stored  *kinds.Storage
	// recorded reports that the data set records the feature. An array may then be JSON, and an empty
	// payload is null where it can be no value.
	recorded bool
	list     bool // of files, which are elements of the list
}

// columnsOf returns the columns of a data set: first the key, then the fields. A column is named as
// the field without its extension, if no field of another type has that name, and no other column.
func columnsOf(ctx context.Context, d *reader.Dataset) ([]column, error) {
	types, features, err := typesOf(d)
	if err != nil {
		return nil, err
	}
	labels, err := metadata.Classes(d.Info().Meta)
	if err != nil {
		return nil, err
	}
	stems, samples := map[string][]column{}, map[string]uint64{}
	lists, err := listsOf(d, features)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		stems[list.name] = append(stems[list.name], list)
	}
	for _, f := range d.Fields() {
		if slices.ContainsFunc(lists, func(list column) bool { return slices.Contains(list.fields, f.Name) }) {
			continue
		}
		ext := extension(f.Name)
		c := column{name: strings.TrimSuffix(strings.TrimSuffix(f.Name, ext), "."), fields: []string{f.Name}}
		if c.name == "" {
			c.name = f.Name
		}
		if c.setRecorded(features[f.Name]); !c.recorded {
			word := types[f.Name]
			if word == "" {
				word = kinds.OfFiles().Of(f.Name)
			}
			c.setWord(word, labels)
		}
		stems[c.name] = append(stems[c.name], c)
		samples[c.name] += f.Samples
	}
	out := []column{{name: keyColumn, feature: kinds.Value("string")}}
	whole := map[string]bool{keyColumn: true} // columns that are named as fields, which sort before a stem of that name
	for _, stem := range slices.Sorted(maps.Keys(stems)) {
		all := stems[stem]
		one := samples[stem] <= d.NumSamples() && !whole[stem]
		for _, c := range all[1:] {
			one = one && c.name == all[0].name && c.merges(&all[0])
		}
		switch {
		case one:
			for _, c := range all[1:] {
				all[0].fields = append(all[0].fields, c.fields...)
			}
			out = append(out, all[0])
		default:
			for _, c := range all {
				if !c.list {
					c.name = c.fields[0]
				}
				if c.name == keyColumn {
					return nil, fmt.Errorf("%w: a table has the keys in column %q, and a field has that name too: pack again with another name for it, or leave it out", ErrName, keyColumn)
				}
				whole[c.name] = true
				out = append(out, c)
			}
		}
	}
	if err := arrayTypes(ctx, d, out); err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].stored, err = out[i].feature.Storage(); err != nil {
			return nil, fmt.Errorf("column %q: %w", out[i].name, err)
		}
	}
	return out, nil
}

// listsOf returns the columns of lists of files. Each has its own name, and those of its elements.
func listsOf(d *reader.Dataset, features kinds.Features) (lists []column, err error) {
	var names []string
	for _, f := range d.Fields() {
		names = append(names, f.Name)
	}
	for _, list := range d.Lists() {
		f, err := kinds.ParseFeature(features[list])
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", list, err)
		}
		lists = append(lists, column{name: list, fields: fieldname.Elements(list, names), feature: f, recorded: true,
			list: true})
	}
	return lists, nil
}

// setRecorded sets the feature that the data set records, if this version knows it. Bytes whose
// field has the extension of a medium are that.
func (c *column) setRecorded(text json.RawMessage) {
	f, err := kinds.ParseFeature(text)
	if err != nil {
		return
	}
	s, err := f.Storage()
	if err != nil || len(s.Parts) == 0 && (s.Base == kinds.Null || s.Base == kinds.Binary &&
		kinds.MediaOf(c.fields[0]) != "") {
		return
	}
	c.feature, c.recorded = f, true
}

// setWord sets the feature of the word for the field.
func (c *column) setWord(word string, labels []string) {
	medium := kinds.MediaOf(c.fields[0])
	switch {
	case word == "npy":
	case word == "int" && labels != nil && strings.ToLower(extension(c.fields[0])) == "cls":
		c.feature = kinds.Labels(labels)
	case word == "int":
		c.feature = kinds.Value("int64")
	case word == "float":
		c.feature = kinds.Value("float64")
	case word == "txt":
		c.feature = kinds.Value("string")
	case word == "json":
		c.feature = &kinds.Feature{Class: "Json"}
	case medium != "":
		c.feature = &kinds.Feature{Class: medium}
	default:
		c.feature = kinds.Value("binary")
	}
}

// merges reports whether the fields of both columns may fill one.
func (c *column) merges(with *column) bool {
	return !c.list && !with.list && c.feature != nil && with.feature != nil && c.feature.Class != "Value" &&
		bytes.Equal(c.feature.AppendJSON(nil), with.feature.AppendJSON(nil))
}

// typesOf returns the recorded types of the fields of a data set and its layers: the words, and the
// features.
func typesOf(d *reader.Dataset) (kinds.Kinds, kinds.Features, error) {
	words, features := kinds.Kinds{}, kinds.Features{}
	err := kinds.Cover(words, features, d.Info().Meta, d.Info().Fields)
	for _, layer := range d.Layers() {
		if err == nil {
			err = kinds.Cover(words, features, layer.Info().Meta, layer.Info().Fields)
		}
	}
	return words, features, err
}

// arrayTypes sets the types of the columns of arrays by the first array of each: a table has one
// type and number of dimensions.
func arrayTypes(ctx context.Context, d *reader.Dataset, columns []column) error {
	left := 0
	for i := range columns {
		if columns[i].feature == nil {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	for s, err := range d.Samples(ctx, reader.Range{}) {
		if err != nil {
			return err
		}
		for i := range columns {
			c := &columns[i]
			if c.feature != nil {
				continue
			}
			data, ok := s.Field(c.fields[0])
			if !ok {
				continue
			}
			h, _, err := parseArray(data)
			if err == nil {
				c.feature, err = arrayFeature(&h)
			}
			if err != nil {
				return fieldError(s.Key, c.fields[0], err)
			}
			left--
		}
		if left == 0 {
			return nil
		}
	}
	for i := range columns {
		if columns[i].feature == nil {
			columns[i].feature = kinds.Value("binary")
		}
	}
	return nil
}

// arrayFeature returns the feature of an array.
func arrayFeature(h *npy.Header) (*kinds.Feature, error) {
	dtype, err := dtypeOf(h)
	if err != nil {
		return nil, err
	}
	f := kinds.Value(dtype)
	for range h.Shape {
		f = kinds.List(f)
	}
	return f, nil
}

// parseArray splits a .npy payload into its header and the bytes of its items, whose number it
// checks.
func parseArray(data []byte) (h npy.Header, items []byte, err error) {
	n, err := npy.HeaderLen(data[:min(len(data), npy.Lead)])
	if err != nil {
		return h, nil, err
	}
	if n > int64(len(data)) {
		return h, nil, fmt.Errorf("%w: its header ends after its %d bytes", format.ErrCorrupt, len(data))
	}
	if h, err = npy.Parse(data[:n]); err != nil {
		return h, nil, err
	}
	if items = data[n:]; h.Size == 0 {
		return h, nil, fmt.Errorf("its items are of type %s", h.Descr)
	}
	want, left := int64(h.Size), int64(len(items))
	for _, dim := range h.Shape {
		if dim != 0 && want > left/dim {
			want = left + 1
			break
		}
		want *= dim
	}
	if slices.Contains(h.Shape, 0) {
		want = 0
	}
	if want != left {
		return h, nil, fmt.Errorf("%w: an array of shape %v of %s has %d bytes", format.ErrCorrupt, h.Shape, h.Descr,
			left)
	}
	return h, items, nil
}

// maxDims is the most dimensions of an array in a table; NumPy has 64.
const maxDims = 64

// dtypeOf returns the name of an element type in Arrow.
func dtypeOf(h *npy.Header) (string, error) {
	name := map[byte]string{'i': "int", 'u': "uint", 'f': "float", 'b': "bool"}[h.Kind]
	switch {
	case name == "bool" && h.Size == 1:
		return name, nil
	case len(h.Shape) > maxDims:
		return "", fmt.Errorf("%w: it has %d dimensions, and a table has at most %d", ErrName, len(h.Shape), maxDims)
	case name == "" || name == "bool" || !slices.Contains([]int{1, 2, 4, 8}, h.Size) || name == "float" && h.Size == 1:
		return "", fmt.Errorf("%w: its items are of type %s, for which a table has no column: leave the field out",
			ErrName, h.Descr)
	}
	return fmt.Sprint(name, h.Size*8), nil
}

// fieldError names the sample and the field of an error.
func fieldError(key []byte, field string, err error) error {
	return fmt.Errorf("sample %q: field %q: %w", key, field, err)
}
