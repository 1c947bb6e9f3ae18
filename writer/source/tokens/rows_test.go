package tokens_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// contents reads the fields of samples as name=bytes after the header, from where the source is.
func contents(t testing.TB, src *tokens.Arrays) (out []string, err error) {
	t.Helper()
	for {
		s, err := src.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		line := s.Key
		for _, f := range s.Fields {
			data := f.Data
			if f.Payload != nil {
				data = make([]byte, f.Size)
				if err := f.Payload.ReadInto(t.Context(), data); err != nil {
					return out, err
				}
				r, err := f.Payload.Open(t.Context())
				if err != nil {
					return out, err
				}
				streamed, err := io.ReadAll(r)
				if r.Close(); err != nil || !bytes.Equal(streamed, data) {
					t.Errorf("%s: streamed %d bytes, read %d (%v)", s.Key, len(streamed), len(data), err)
				}
			}
			n := 10 + int(binary.LittleEndian.Uint16(data[8:]))
			line += fmt.Sprintf(" %s=%s", f.Name, data[n:])
			if head := string(data[10:n]); len(out) == 0 {
				line += head[:strings.IndexByte(head, '}')+1]
			}
		}
		out = append(out, line)
	}
}

func rowsOf(t testing.TB, in []source.Input, opt tokens.Options) (*tokens.Arrays, []string) {
	t.Helper()
	opt.Rows = true
	src := arrays(t, in, opt)
	out, err := contents(t, src)
	if err != nil {
		t.Fatal(err)
	}
	return src, out
}

// TestRowsOfAnyType: rows of any type keep their bytes, little-endian, with their shape.
func TestRowsOfAnyType(t *testing.T) {
	for _, c := range []struct {
		descr, shape, content string
		want                  []string
	}{
		{"<f2", "(2, 2)", "abcdefgh", []string{"x/000000000 x.npy=abcd{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }", "x/000000001 x.npy=efgh"}},
		{"|b1", "(2,)", "\x00\x01", []string{"x/000000000 x.npy=\x00{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "x/000000001 x.npy=\x01"}},
		{">f4", "(1, 2)", "dcbahgfe", []string{"x/000000000 x.npy=abcdefgh{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"}},
		{">c8", "(1,)", "dcbahgfe", []string{"x/000000000 x.npy=abcdefgh{'descr': '<c8', 'fortran_order': False, 'shape': (), }"}},
		{"|u1", "(2, 1, 2)", "abcd", []string{"x/000000000 x.npy=ab{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), }", "x/000000001 x.npy=cd"}},
		{"<f8", "(0, 3)", "", nil},
	} {
		src, out := rowsOf(t, one(t, "x.npy", file(c.descr, c.shape, []byte(c.content))), tokens.Options{})
		if !slices.Equal(out, c.want) || src.Samples != int64(len(c.want)) {
			t.Errorf("%s: %q", c.descr, out)
		}
	}
	st := mem.New()
	in := []source.Input{put(t, st, "a.npy", file("<f4", "(3, 1)", []byte("aaaabbbbcccc"))), put(t, st, "b.npy", file("<f4", "(1, 1)", []byte("dddd")))}
	src, out := rowsOf(t, in, tokens.Options{Rename: map[string]string{"a": "emb"}})
	if len(out) != 4 || out[3] != "b/000000000 emb.npy=dddd" {
		t.Fatalf("%q", out)
	}
	if err := src.Seek(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if rest, err := contents(t, src); err != nil || len(rest) != 2 || !strings.HasPrefix(rest[0], "a/000000002 emb.npy=cccc") {
		t.Errorf("%q, %v", rest, err)
	}
	if meta := src.Meta()["kinds"]; meta != `{"emb.npy":"npy"}` {
		t.Error(meta)
	}
	other := arrays(t, in[:1], tokens.Options{Rows: true})
	if other.Fingerprint() == src.Fingerprint() {
		t.Error("a name and another file have the same fingerprint")
	}
}

// version2 is a .npy file of version 2, whose header may be longer than in version 1.
func version2(descr, shape string, content []byte) []byte {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape)
	out := binary.LittleEndian.AppendUint32([]byte("\x93NUMPY\x02\x00"), uint32(len(head)))
	return append(append(out, head...), content...)
}

// TestRowsBad: arrays that are no rows of numbers are refused by what they hold.
func TestRowsBad(t *testing.T) {
	good := file("<f4", "(1, 1)", []byte("aaaa"))
	for what, c := range map[string]struct {
		content []byte
		want    string
		is      error
	}{
		"objects":    {file("|O", "(1,)", []byte("cos\nsystem\n")), "Python objects, which are pickled", nil},
		"text":       {file("<U3", "(1,)", make([]byte, 12)), "are text", nil},
		"times":      {file("<M8[ns]", "(1,)", make([]byte, 8)), "astype(np.int64)", nil},
		"records":    {numpy(t, "records.npy"), "np.savez", nil},
		"fortran":    {numpy(t, "fortran.npy"), "np.ascontiguousarray(array)", nil},
		"a number":   {file("<f8", "()", make([]byte, 8)), "single number", nil},
		"cut":        {file("<f4", "(1, 1)", []byte("aaa")), "it is cut off", format.ErrCorrupt},
		"more":       {file("<f4", "(1, 1)", []byte("aaaaa")), "1 bytes follow", format.ErrCorrupt},
		"huge":       {file("<f4", "(4611686018427387904, 1048576)", nil), "it is cut off", format.ErrCorrupt},
		"wide":       {file("<f4", "(0, 1099511627776)", nil), "more than 1073741824 bytes", format.ErrTooLarge},
		"no columns": {file("<f4", "(9, 0)", nil), "rows are empty: there is nothing to store", nil},
		"other type": {file("<f8", "(1, 1)", make([]byte, 8)), "save them with the same types and shapes", writer.ErrOptions},
		"no npy":     {[]byte("text"), "it is not an .npy file", format.ErrCorrupt},
		"empty":      {nil, "it is not an .npy file", format.ErrCorrupt},
		"zeros":      {version2("<f"+strings.Repeat("0", 65_475)+"4", "(1,)", []byte("aaaa")), "type \"<f000", format.ErrCorrupt},
		"long":       {file(">f12", "(1,)", make([]byte, 12)), "newbyteorder", nil},
	} {
		st := mem.New()
		_, err := tokens.NewArrays(t.Context(), []source.Input{put(t, st, "good.npy", good), put(t, st, "bad.npy", c.content)}, tokens.Options{Rows: true})
		if err == nil || !strings.Contains(err.Error(), "bad.npy") || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", what, err)
		}
	}
	both := map[string]string{"x": "a", "x.npy": "b"}
	for name, content := range map[string][]byte{"x.npy": good, "x.npz": zipped(t, packed{"x.npy", good, zip.Store})} {
		for want, opt := range map[string]tokens.Options{"none is named": {Rows: true, Columns: []string{}}, `"x" and "x.npy" are one field`: {Rows: true, Rename: both}} {
			if _, err := tokens.NewArrays(t.Context(), one(t, name, content), opt); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	two := zipped(t, packed{"x.npy", good, zip.Store}, packed{"y.npy", good, zip.Store})
	for want, opt := range map[string]tokens.Options{
		`columns: "x.npy" is there twice`:                             {Rows: true, Columns: []string{"x", "x.npy"}},
		`rename: column "y.npy" becomes no field`:                     {Rows: true, Columns: []string{"x"}, Rename: map[string]string{"y": "z"}},
		`columns: there is no column "z"; there are: x.npy, y.npy`:    {Rows: true, Columns: []string{"z"}},
		`"x.npy" and "y.npy" would both become the field x.npy: rena`: {Rows: true, Rename: map[string]string{"y": "x"}},
	} {
		if _, err := tokens.NewArrays(t.Context(), one(t, "two.npz", two), opt); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, opt := range []tokens.Options{{Rows: true, Length: 3}, {Columns: []string{"x"}}, {Rows: true, Columns: []string{"y"}}, {Rows: true, Rename: map[string]string{"x": "a/b"}}} {
		if _, err := tokens.NewArrays(t.Context(), one(t, "x.npy", good), opt); !errors.Is(err, writer.ErrOptions) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// packed is a member of a zip file: its name, its content and how it is stored.
type packed struct {
	name    string
	content []byte
	method  uint16
}

func zipped(t testing.TB, list ...packed) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, p := range list {
		m, err := w.CreateHeader(&zip.FileHeader{Name: p.name, Method: p.method})
		if err == nil {
			_, err = m.Write(p.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// twoArrays is a .npz file of a deflated and a stored array of n rows.
func twoArrays(t testing.TB, n int) []byte {
	var x, y []byte
	for i := range n {
		x = append(x, fmt.Sprintf("%04d", i)...)
		y = append(y, byte('a'+i%26))
	}
	return zipped(t, packed{"y.npy", file("|u1", fmt.Sprintf("(%d,)", n), y), zip.Store}, packed{"x.npy", file("<f2", fmt.Sprintf("(%d, 2)", n), x), zip.Deflate})
}

// TestArchive: the members of .npz files are the fields of rows, from any place and in parts.
func TestArchive(t *testing.T) {
	const n = 9_000
	in := one(t, "a.npz", twoArrays(t, n))
	src, out := rowsOf(t, in, tokens.Options{})
	if len(out) != n || !strings.HasPrefix(out[0], "a/000000000 x.npy=0000{'descr': '<f2'") || out[27] != "a/000000027 x.npy=0027 y.npy=b" {
		t.Fatalf("%d %q", len(out), out[:2])
	}
	for _, at := range []string{"8999", "3", "5000", "9000", "0"} {
		if err := src.Seek(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		s, err := src.Next(t.Context())
		if at == "9000" {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			continue
		}
		if err != nil || fmt.Sprintf("%09s", at) != strings.TrimPrefix(s.Key, "a/") || !strings.HasSuffix(string(s.Fields[0].Data), fmt.Sprintf("%04s", at)) {
			t.Errorf("%s: %+v, %v", at, s, err)
		}
	}
	var parts []string
	for part := range 3 {
		p := arrays(t, in, tokens.Options{Rows: true, Columns: []string{"y"}, Rename: map[string]string{"y.npy": "cls.npy"}})
		if err := p.Split(part, 3); err != nil {
			t.Fatal(err)
		}
		some, err := contents(t, p)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, some...)
	}
	if len(parts) != n || parts[n-1] != fmt.Sprintf("a/000008999 cls.npy=%c", 'a'+8999%26) {
		t.Errorf("%d %q", len(parts), parts[n-1])
	}
}

// TestArchiveBad: archives that are cut, changed, or that lie are errors, with the array's name.
func TestArchiveBad(t *testing.T) {
	good := twoArrays(t, 1000)
	flip := func(at int) []byte {
		out := bytes.Clone(good)
		out[at] ^= 0x40
		return out
	}
	directory := bytes.Index(good, []byte("PK\x01\x02"))
	second := directory + bytes.Index(good[directory+4:], []byte("PK\x01\x02")) + 4
	put32 := func(at int, v uint32) []byte {
		out := bytes.Clone(good)
		binary.LittleEndian.PutUint32(out[at:], v)
		return out
	}
	locked := bytes.Clone(good)
	locked[directory+8] |= 1
	row := file("<f4", "(2,)", []byte("aaaabbbb"))
	over := zipped(t, packed{"a.npy", row, zip.Store}, packed{"b.npy", file("<f4", "(2,)", []byte("aaaacccc")), zip.Store})
	at := bytes.LastIndex(over, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(over[at+42:], 0)
	var many []packed
	for i := range 257 {
		many = append(many, packed{fmt.Sprintf("%d.npy", i), row, zip.Store})
	}
	for what, c := range map[string]struct {
		content []byte
		want    string
		is      error
	}{
		"empty":                 {nil, "not a zip archive, or it is cut off", format.ErrCorrupt},
		"text":                  {[]byte("text"), "not a zip archive, or it is cut off", format.ErrCorrupt},
		"cut":                   {good[:len(good)-10], "not a zip archive, or it is cut off", format.ErrCorrupt},
		"many":                  {zipped(t, many...), "it holds more than 256 arrays", format.ErrTooLarge},
		"no members":            {zipped(t), "holds no array", nil},
		"a stored bit":          {flip(300), "array \"y.npy\", row 1000: corrupt data: its CRC-32 is", format.ErrCorrupt},
		"a deflated bit":        {flip(directory - 400), "array \"x.npy\"", format.ErrCorrupt},
		"longer than it is":     {put32(second+24, 4129), "array \"x.npy\"", format.ErrCorrupt},
		"a bomb that is none":   {put32(second+24, 1<<31), "can decompress to", format.ErrCorrupt},
		"outside of the file":   {put32(directory+42, 1<<30), "array \"y.npy\"", format.ErrCorrupt},
		"an array over another": {over, "array \"b.npy\", row 2: corrupt data: its CRC-32 is", format.ErrCorrupt},
		"encrypted":             {locked, "it is encrypted", nil},
		"a picture":             {zipped(t, packed{"a.jpg", row, zip.Store}), "\"a.jpg\": it is not an .npy file", nil},
		"twice":                 {zipped(t, packed{"a.npy", row, zip.Store}, packed{"a.npy", row, zip.Store}), "two members are called \"a.npy\"", format.ErrCorrupt},
		"other lengths":         {zipped(t, packed{"a.npy", row, zip.Store}, packed{"b.npy", file("<f4", "(1,)", []byte("aaaa")), zip.Store}), "the array a.npy has 2 rows and b.npy has 1: choose", writer.ErrOptions},
		"objects":               {zipped(t, packed{"a.npy", file("|O", "(1,)", []byte("x")), zip.Store}), "\"a.npy\": its elements (|O) are Python objects", nil},
		"a folder":              {zipped(t, packed{"a/b.npy", row, zip.Store}), "contains a slash", writer.ErrOptions},
		"a type of zeros":       {zipped(t, packed{"a.npy", version2("<f"+strings.Repeat("0", 65_475)+"4", "(1,)", []byte("aaaa")), zip.Deflate}), "\"a.npy\": corrupt data: its header: type", format.ErrCorrupt},
		"a header that lies":    {zipped(t, packed{"a.npy", file("<f4", "(2305843009213693952,)", []byte("aaaa")), zip.Deflate}), "it is cut off", format.ErrCorrupt},
	} {
		src, err := tokens.NewArrays(t.Context(), one(t, "bad.npz", c.content), tokens.Options{Rows: true})
		if err == nil {
			_, err = contents(t, src)
			src.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "bad.npz") || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", what, err)
		}
	}
	st := mem.New()
	in := []source.Input{put(t, st, "a.npz", good)}
	src := arrays(t, in, tokens.Options{Rows: true})
	put(t, st, "a.npz", twoArrays(t, 999))
	if _, err := src.Next(t.Context()); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("a file that changed: %v", err)
	}
	both := []source.Input{put(t, st, "x.npy", row), put(t, st, "b.npz", good)}
	if _, err := tokens.NewArrays(t.Context(), both, tokens.Options{Rows: true}); !errors.Is(err, writer.ErrOptions) {
		t.Errorf("two kinds: %v", err)
	}
}

// FuzzRows: no content makes reading panic, hang, or give more bytes than the file can hold.
func FuzzRows(f *testing.F) {
	f.Add(twoArrays(f, 20), true)
	f.Add(zipped(f, packed{"a.npy", file(">f4", "(2, 3)", make([]byte, 24)), zip.Deflate}), true)
	f.Add(file(">f4", "(2, 3)", make([]byte, 24)), false)
	f.Add(numpy(f, "float.npy"), false)
	f.Fuzz(func(t *testing.T, content []byte, isArchive bool) {
		if len(content) > 1<<14 {
			return
		}
		name := "x.npy"
		if isArchive {
			name = "x.npz"
		}
		src, err := tokens.NewArrays(t.Context(), one(t, name, content), tokens.Options{Rows: true})
		if err != nil {
			return
		}
		defer src.Close()
		if src.Samples > 1040*int64(len(content)) {
			t.Fatalf("%d rows of %d bytes", src.Samples, len(content))
		}
		for range 1000 {
			if _, err := src.Next(t.Context()); err != nil {
				return
			}
		}
	})
}
