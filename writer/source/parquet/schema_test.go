package parquet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// edit replaces the only place in a file's footer that has some bytes.
func edit(t testing.TB, content []byte, old, with string) []byte {
	t.Helper()
	n := int(binary.LittleEndian.Uint32(content[len(content)-8:]))
	footer := content[len(content)-8-n : len(content)-8]
	if bytes.Count(footer, []byte(old)) != 1 {
		t.Fatalf("%q is %d times in the footer", old, bytes.Count(footer, []byte(old)))
	}
	footer = bytes.Replace(footer, []byte(old), []byte(with), 1)
	out := append(bytes.Clone(content[:len(content)-8-n]), footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}

// jsonElement is the end of a column of JSON as the writer of these tests puts it into the footer:
// field 6, the converted type 19, and field 10, the union of logical types with its member 12.
const jsonElement = "\x25\x26\x4c\xcc\x00\x00"

func jsonFile(t testing.TB) []byte {
	return write(t, table{
		fields: schema.FieldList{
			leafNode("before", pq.Repetitions.Required, nil, pq.Types.Int32, 0),
			leafNode("shape", pq.Repetitions.Required, schema.JSONLogicalType{}, pq.Types.ByteArray, 0),
			leafNode("after", pq.Repetitions.Required, schema.StringLogicalType{}, pq.Types.ByteArray, 0),
		},
		groups: [][]data{{{values: []int32{7}}, {values: []string{`{"x":1}`}}, {values: []string{"text"}}}},
	})
}

// TestUnknownTypes: a column of a type that came after this reader is one of its physical type, and
// all others are what they are.
func TestUnknownTypes(t *testing.T) {
	content := jsonFile(t)
	const geometry = "\x0c\x22\x00\x00" // the member 17, in the long form of a field's head
	for what, with := range map[string]string{
		"logical type":              "\x6c" + geometry,
		"and more fields after it":  "\x6c" + geometry + "\x15\x02\x18\x01z",
		"and one with a long head":  "\x6c" + geometry + "\x05\xc8\x01\x02",
		"converted type":            "\x25\x7e",
		"both":                      "\x25\x7e\x4c" + geometry,
		"both, and more fields":     "\x25\x7e\x4c" + geometry + "\x15\x02",
		"unit of time":              "\x6c\x7c\x11\x1c\x9c\x00\x00\x00\x00",
		"logical type with content": "\x6c\x0c\x22\x18\x09OGC:CRS84\x15\x04\x00\x00",
	} {
		t.Run(what, func(t *testing.T) {
			got := read(t, edit(t, content, jsonElement, with), parquet.Options{})
			if len(got) != 1 {
				t.Fatal(got)
			}
			sameFields(t, what, got[0].fields, map[string]string{"before.txt": "7", "shape.bin": `{"x":1}`, "after.txt": "text"})
		})
	}
	// Where the older annotation is known, it counts.
	got := read(t, edit(t, content, jsonElement, "\x25\x26\x4c"+geometry), parquet.Options{Columns: []string{"shape"}})
	sameFields(t, "known converted type", got[0].fields, map[string]string{"shape.json": `{"x":1}`})
}

// TestSchemaErrors: what is wrong with the types of a schema is found before the library meets it,
// with the column.
func TestSchemaErrors(t *testing.T) {
	content := jsonFile(t)
	for what, c := range map[string]struct{ with, want string }{
		"converted type": {"\x25\x1e", `column "shape": values of type BYTE_ARRAY: INT_8 can only annotate INT32`},
		"logical type":   {"\x6c\x6c\x00\x00", `column "shape": values of type BYTE_ARRAY are marked as Date, which the format does not allow`},
		"decimal":        {"\x6c\x5c\x15\x13\x15\x02\x00\x00", `column "shape": corrupt data: it does not decode: parquet: scale must be`},
		"integer":        {"\x6c\xac\x13\x07\x11\x00\x00", `column "shape": corrupt data: it does not decode: its integers are 7 bits wide`},
		"list":           {"\x6c\x3c\x00\x00", `column "shape": values of type BYTE_ARRAY are marked as List`},
	} {
		t.Run(what, func(t *testing.T) {
			refused(t, edit(t, content, jsonElement, c.with), c.want)
		})
	}
	// The element begins with its type, repetition and name.
	const head = "\x15\x0c\x25\x00\x18\x05shape"
	for what, c := range map[string]struct{ with, want string }{
		"physical type": {"\x15\x0d\x25\x00\x18\x05shape", `column "shape": its values are of type number -7, the format has 0 to 7`},
		"repetition":    {"\x15\x0c\x25\x06\x18\x05shape", `column "shape": its repetition is number 3`},
		"no type":       {"\x35\x00\x18\x05shape", `column "shape": it is a group without columns`},
		"fixed":         {"\x15\x0e\x25\x00\x18\x05shape", `column "shape": its values are 0 bytes long`},
	} {
		t.Run(what, func(t *testing.T) {
			refused(t, edit(t, content, head, c.with), c.want)
		})
	}
}

// refused wants New to refuse a file, with no word of Go's run-time.
func refused(t *testing.T, content []byte, want string) {
	t.Helper()
	_, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), parquet.Options{})
	var own runtime.Error
	if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.parquet") || errors.As(err, &own) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestNoName: a column without a name is no key, and is not left out silently.
func TestNoName(t *testing.T) {
	content := write(t, table{
		fields: schema.FieldList{
			leafNode("a", pq.Repetitions.Required, nil, pq.Types.Int32, 0),
			leafNode("", pq.Repetitions.Required, nil, pq.Types.Int32, 0),
		},
		groups: [][]data{{{values: []int32{7}}, {values: []int32{8}}}},
	})
	_, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), parquet.Options{})
	if !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), "columns: column 2 has no name") {
		t.Errorf("%v", err)
	}
	got := read(t, content, parquet.Options{Rename: map[string]string{"": "b"}})
	sameFields(t, "renamed", got[0].fields, map[string]string{"a.txt": "7", "b.txt": "8"})
	got = read(t, content, parquet.Options{Columns: []string{"a"}})
	sameFields(t, "left out", got[0].fields, map[string]string{"a.txt": "7"})
}
