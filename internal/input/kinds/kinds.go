// Package kinds names what the fields of a pack contain, by the words of the metadata "types" (SPEC
// 4.6). A source knows the words by its schema, or learns them from its rows.
package kinds

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/shardtool/shardtool/format"
)

// Key is the key of META under which a source states kinds, and a part keeps them until the commit.
const Key = "kinds"

// Kinds maps names of fields to words. A name with a dot in front is an extension, and states the
// word of all fields that end in it and are not named themselves.
type Kinds map[string]string

// OfFiles are the kinds of files that become fields.
func OfFiles() Kinds { return Kinds{".npy": "npy", ".txt": "txt", ".json": "json", ".cls": "int"} }

// Meta returns the kinds as metadata.
func (k Kinds) Meta() format.Metadata {
	return format.Metadata{Key: string(encoded(k))}
}

// encoded returns the JSON of strings, or of what was parsed.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("kinds: " + err.Error())
	}
	return b
}

// Parse returns the kinds in metadata, nil if there are none.
func Parse(meta format.Metadata, key string) (k Kinds, err error) {
	text, ok := meta[key]
	if !ok {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return nil, fmt.Errorf("%w: metadata %s: %w", format.ErrCorrupt, key, err)
	}
	return k, nil
}

// Cover sets the words and features of fields to those in the metadata of the data set or layer
// that has them. Where it records none, what was set before is of a field that is no longer seen.
func Cover(words Kinds, features Features, meta format.Metadata, fields []format.FieldTotal) error {
	own, err := Parse(meta, "types")
	known := ParseFeatures(meta)
	var names []string
	for _, f := range fields {
		words[f.Name], features[f.Name] = own[f.Name], known[f.Name]
		names = append(names, f.Name)
	}
	for _, list := range known.Lists(names) {
		features[list] = known[list]
	}
	return err
}

// Of returns the word of a field, empty if it is not known.
func (k Kinds) Of(field string) string {
	if word, ok := k[field]; ok {
		return word
	}
	return k[path.Ext("."+field)]
}

// texts are the words of fields that are stored as text: each decodes what those before it decode.
var texts = []string{"int", "float", "json", "txt"}

// Wider returns the word that decodes the fields of both words: of integers and other numbers it is
// float. It is bytes if there is no other.
func Wider(a, b string) string {
	if a == b {
		return a
	}
	i, j := slices.Index(texts, a), slices.Index(texts, b)
	if i < 0 || j < 0 {
		return "bytes"
	}
	return texts[max(i, j)]
}
