package reshard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/writer"
)

func optionf(name, msg string, args ...any) error { return writer.Optionf(name, msg, args...) }

// fieldChoice selects fields.
type fieldChoice struct {
	fields []string
	rename map[string]string
}

func (c fieldChoice) String() string { return strings.Join(c.fields, ", ") }

// chooseFields checks that the named fields exist.
func (s *joined) chooseFields(opt Options) error {
	have := map[string]bool{}
	var lists []string
	for _, of := range s.sets {
		for _, f := range of.Fields() {
			have[f.Name] = true
		}
		lists = append(lists, of.Lists()...)
	}
	all := slices.Sorted(maps.Keys(have))
	find := func(option, name string) (fields []string, list bool, err error) {
		fields, list, err = fieldname.FindAll(name, all, lists)
		if err == nil && len(fields) == 0 && !list {
			err = fmt.Errorf("there is no field %q, there are %q", name, all)
		}
		for _, field := range fields {
			err = cmp.Or(err, format.CheckField(field))
		}
		if err != nil {
			return nil, false, optionf(option, "%w", err)
		}
		return fields, list, nil
	}
	s.shape.rename = map[string]string{}
	for _, name := range opt.Fields {
		fields, list, err := find("fields", name)
		if err != nil {
			return err
		}
		if s.shape.fields = append(s.shape.fields, fields...); list {
			s.shape.fields = append(s.shape.fields, name)
		}
	}
	for name, to := range opt.Rename {
		fields, list, err := find("rename", name)
		if err != nil {
			return err
		}
		for _, field := range fields {
			s.shape.rename[field] = to
			if list {
				s.shape.rename[field] = to + strings.TrimPrefix(field, name)
			}
		}
		if list {
			s.shape.rename[name] = to
		}
	}
	became := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		n := s.name(name)
		if n.drop {
			continue
		}
		if other, twice := became[n.name]; twice {
			return optionf("rename", "fields %q and %q would both be %q", other, name, n.name)
		}
		if err := format.CheckField(n.name); err != nil {
			return optionf("rename", "%w", err)
		}
		became[n.name] = name
	}
	return nil
}

// name returns what becomes of a field.
func (s *joined) name(field string) *fieldName {
	n := s.names[field]
	if n == nil {
		n = &fieldName{name: field, drop: len(s.shape.fields) > 0 && !slices.Contains(s.shape.fields, field)}
		if to, ok := s.shape.rename[field]; ok {
			n.name = to
		}
		s.names[field] = n
	}
	return n
}

// writers are the keys of metadata that every pack writes itself, and those of objects and
// generations that another data set does not have.
var writers = []string{"tool", "options", "source", "cursor_start", "cursor_end", "content", "mode", "skipped",
	"skipped_list", "left_out",
	"revises", writer.MetaTypes, kinds.FeaturesKey}

// mergeMeta keeps the metadata that all sets agree on. The names of classes may grow at the end
// from one set to the next.
func mergeMeta(sets []*set, classes []string) (format.Metadata, error) {
	out := format.Metadata{}
	for key, value := range sets[0].Info().Meta {
		same := !slices.ContainsFunc(sets, func(of *set) bool { return of.Info().Meta[key] != value })
		if same && !slices.Contains(writers, key) {
			out[key] = value
		}
	}
	delete(out, "classes")
	from := "the data set that is there"
	for _, of := range sets {
		more, err := metadata.Classes(of.Info().Meta)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.path, err)
		}
		n := min(len(classes), len(more))
		for i := range n {
			if classes[i] != more[i] {
				return nil, fmt.Errorf("%w: class %d is %q in %s and %q in %s: their class numbers would be mixed up; pack them from "+
					"their files together, with one class field", errClasses, i, classes[i], from, more[i], of.path)
			}
		}
		if len(more) > len(classes) {
			classes, from = more, of.path
		}
	}
	if len(classes) > 0 {
		text, err := json.Marshal(classes)
		if err != nil {
			return nil, err
		}
		out["classes"] = string(text)
	}
	return out, nil
}

// types states what each field is where all sets that have it record the same.
func (s *joined) types() (format.Metadata, error) {
	all, features := kinds.Kinds{}, kinds.Features{}
	lists, without := map[string][]json.RawMessage{}, map[string]bool{} // those that a set has as fields are none
	for _, of := range s.sets {
		var names []string
		own, known, err := typesOf(of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.path, err)
		}
		for _, f := range of.Fields() {
			n, word, feature := s.name(f.Name), own[f.Name], known[f.Name]
			if n.drop {
				continue
			}
			if before, ok := all[n.name]; ok {
				if before != word {
					word = ""
				}
				if !bytes.Equal(features[n.name], feature) {
					feature = nil
				}
			}
			all[n.name], features[n.name] = word, feature
			names = append(names, n.name)
		}
		for _, list := range of.Lists() {
			if n := s.name(list); !n.drop {
				lists[n.name] = append(lists[n.name], known[list])
				names = slices.DeleteFunc(names, func(field string) bool {
					_, is := fieldname.Element(field, n.name)
					return is
				})
			}
		}
		for _, field := range names {
			without[field] = true
		}
	}
	for list, of := range lists {
		switch {
		case len(fieldname.Elements(list, slices.Collect(maps.Keys(without)))) > 0:
		case slices.ContainsFunc(of, func(feature json.RawMessage) bool { return !bytes.Equal(feature, of[0]) }):
			features[list] = kinds.Files().AppendJSON(nil)
		default:
			features[list] = of[0]
		}
	}
	maps.DeleteFunc(all, func(_, word string) bool { return word == "" })
	maps.DeleteFunc(features, func(_ string, feature json.RawMessage) bool { return feature == nil })
	meta := all.Meta()
	features.Put(meta)
	return meta, nil
}

// typesOf returns what a data set and its layers record of their fields.
func typesOf(of *set) (all kinds.Kinds, features kinds.Features, err error) {
	all, features = kinds.Kinds{}, kinds.Features{}
	if err := kinds.Cover(all, features, of.Info().Meta, of.Info().Fields); err != nil {
		return nil, nil, err
	}
	for name, layer := range of.Layers() {
		if err := kinds.Cover(all, features, layer.Info().Meta, layer.Info().Fields); err != nil {
			return nil, nil, fmt.Errorf("layer %s: %w", name, err)
		}
	}
	return all, features, nil
}

// errClasses: the data sets number their classes differently.
var errClasses = fmt.Errorf("%w of class names", format.ErrMismatch)

// fingerprint covers the samples and their order.
func fingerprint(sets []*set, opt Options) string {
	h := sha256.New()
	for _, of := range sets {
		fmt.Fprintf(h, "%s %s\n", of.Info().OrderDigest, of.Info().Tables)
		for _, layer := range of.Layers() {
			fmt.Fprintf(h, "layer %s %s\n", layer.Info().OrderDigest, layer.Info().Tables)
		}
	}
	opt.Classes = nil // they change no sample
	text, err := json.Marshal(opt)
	if err != nil {
		panic("reshard: options: " + err.Error()) // strings and integers
	}
	_, _ = h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}
