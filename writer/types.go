package writer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore"
)

// MetaTypes is the key of META that has the types of fields: a JSON object from names to the words
// by which the Python package decodes payloads (SPEC 4.6).
const MetaTypes = "types"

// Types returns the types of fields that the current generation of a data set records, nil for
// none, and its number of samples. Where there is no data set it returns nil and 0.
func Types(ctx context.Context, store objstore.Store) (types map[string]string, samples int64, err error) {
	t, name, err := currentTotals(ctx, store)
	if err != nil {
		return nil, 0, err
	}
	types, err = typesOf(t.Meta, name)
	return types, int64(t.Samples), err
}

// Stacked reports whether the current generation of a data set has stacked shards, so that its
// readers read them. Where there is no data set or no sample it does not know: known is false.
func Stacked(ctx context.Context, store objstore.Store) (stacked, known bool, err error) {
	t, _, err := currentTotals(ctx, store)
	if err != nil || t.Samples == 0 {
		return false, false, err
	}
	return t.Minor() > 0, true, nil
}

// setTypes replaces the kinds that the source has stated in the metadata by the words of the fields
// that there are, under key. In a generation that appends to base, whose tables are in object, a
// field keeps its type only as far as base has recorded one.
func setTypes(m *metadata.Manifest, key string, base *metadata.Manifest, object string) error {
	stated, err := kinds.Parse(m.Meta, kinds.Key)
	if stated == nil || err != nil {
		return err
	}
	delete(m.Meta, kinds.Key)
	types, before := map[string]string{}, fieldSamples(base)
	var known map[string]string
	if base != nil {
		if known, err = typesOf(base.Meta, object); err != nil {
			return err
		}
	}
	for _, f := range m.Fields {
		word := stated.Of(f.Name)
		if old := before[f.Name]; old > 0 {
			if is := known[f.Name]; is == "" || old == f.Samples {
				word = is
			} else if word != "" {
				word = kinds.Wider(word, is)
			}
		}
		if word != "" {
			types[f.Name] = word
		}
	}
	if len(types) == 0 {
		return nil
	}
	text, err := json.Marshal(types)
	if err != nil {
		return err
	}
	m.Meta[key] = string(text)
	return nil
}

// setFeatures keeps the features that the source has stated of the fields that there are. In a
// generation that appends to base, a field keeps the feature that base has recorded, if the new
// samples have the same or lack the field.
func setFeatures(m, base *metadata.Manifest) {
	stated := kinds.ParseFeatures(m.Meta)
	var known kinds.Features
	if base != nil {
		known = kinds.ParseFeatures(base.Meta)
	}
	kept, before := kinds.Features{}, fieldSamples(base)
	for _, f := range m.Fields {
		feature := stated.Of(f.Name)
		if old := before[f.Name]; old == f.Samples {
			feature = known[f.Name]
		} else if old > 0 && !bytes.Equal(feature, known[f.Name]) {
			feature = nil
		}
		if feature != nil {
			kept[f.Name] = feature
		}
	}
	keepLists(m, base, stated, known, kept)
	kept.Put(m.Meta)
}

// keepLists keeps the features that are lists of files (SPEC 4.6): those that the source has
// stated, and those of base. Files of which it did not say what they are, are what all extensions
// say.
func keepLists(m, base *metadata.Manifest, stated, known, kept kinds.Features) {
	var names, before []string
	for _, f := range m.Fields {
		names = append(names, f.Name)
	}
	if base != nil {
		for _, f := range base.Fields {
			before = append(before, f.Name)
		}
	}
	old := known.Lists(before)
	for _, list := range stated.Lists(names) {
		if base != nil && !slices.Contains(old, list) && len(fieldname.Elements(list, before)) > 0 {
			continue // its samples have elements that are no list
		}
		kept[list] = stated[list]
		if before := known[list]; slices.Contains(old, list) && !bytes.Equal(before, stated[list]) {
			kept[list] = kinds.Files().AppendJSON(nil)
		}
	}
	for _, list := range old {
		if kept[list] == nil {
			kept[list] = known[list]
		}
	}
	for _, list := range kept.Lists(names) {
		classes := map[string]bool{}
		for _, field := range fieldname.Elements(list, names) {
			if is := kinds.MediaOf(field); is != "" || !strings.HasSuffix(field, ".bin") { // nulls have it
				classes[is] = true
			}
		}
		for is := range classes {
			if len(classes) == 1 && is != "" && !kinds.ElementOf(kept[list]).Media() {
				kept[list] = kinds.List(&kinds.Feature{Class: is}).AppendJSON(nil)
			}
		}
	}
}

// fieldSamples returns how many samples of a generation have each field; none if it is nil.
func fieldSamples(m *metadata.Manifest) map[string]uint64 {
	out := map[string]uint64{}
	if m != nil {
		for _, f := range m.Fields {
			out[f.Name] = f.Samples
		}
	}
	return out
}

// typesOf parses the types of META of an object.
func typesOf(meta format.Metadata, object string) (map[string]string, error) {
	types, err := kinds.Parse(meta, MetaTypes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	return types, nil
}
