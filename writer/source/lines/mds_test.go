package lines

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zlib"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

const mdsData = "../../../testdata/mds"

// mdsFolder returns the shards of a folder of testdata.
func mdsFolder(t testing.TB, name string) (in []source.Input) {
	t.Helper()
	dir := filepath.Join(mdsData, name)
	store, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.mds*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		in = append(in, source.Input{Store: store, Name: filepath.Base(f)})
	}
	return in
}

// TestMDS: the fields are what the library reads, whatever the compression.
func TestMDS(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(mdsData, "values.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"raw", "zstd", "gz", "bz2"} {
		s := open(t, Options{Attrs: map[string]string{"n": "int", "x": "float64"}, chunk: 1000}, mdsFolder(t, folder))
		for no, row := range rows {
			sample, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(folder, no, err)
			}
			got := map[string][]byte{}
			for _, f := range sample.Fields {
				got[f.Name] = f.Data
			}
			fields := 0
			for column, want := range row {
				fields += checkMDS(t, got, column, want)
			}
			if fields != len(got) || len(sample.Attrs) != 2 || strconv.FormatInt(sample.Attrs[0].Integer, 10) != row["int"] {
				t.Fatalf("%s: sample %d has %d fields, not %d, and attributes %v", folder, no, len(got), fields, sample.Attrs)
			}
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for _, word := range []string{`"float64.txt":"float"`, `"int64.txt":"int"`, `"uint64.txt":"json"`, `"label.cls":"int"`, `"json":"json"`, `"ndarray.npy":"npy"`, `"str.txt":"txt"`, `"pil.png":"bytes"`} {
			if !strings.Contains(s.Learned()["kinds"], word) {
				t.Errorf("%s is not in %s", word, s.Learned()["kinds"])
			}
		}
	}
}

// checkMDS compares the fields of a column and returns their number.
func checkMDS(t *testing.T, got map[string][]byte, column string, want any) int {
	t.Helper()
	list, isList := want.([]any)
	switch {
	case column == "bytes":
		if hex.EncodeToString(got["bytes.bin"]) != want {
			t.Errorf("bytes: %x", got["bytes.bin"])
		}
	case column == "json":
		var v any
		if err := json.Unmarshal(got["json"], &v); err != nil || fmt.Sprint(v) != fmt.Sprint(want) && fmt.Sprint(v) != fmt.Sprint(want, "") {
			t.Errorf("json: %s, want %v", got["json"], want)
		}
	case isList && len(list) == 3 && column[0] != 'l' && column != "jpegarray": // an array
		data := got[column+".npy"]
		at := bytes.IndexByte(data, '\n') + 1
		shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(list[1]), " ", ", "), "[]")
		if head := string(data[:at]); !strings.Contains(head, "'"+list[0].(string)+"'") || !strings.Contains(head, "("+shape) || hex.EncodeToString(data[at:]) != list[2] {
			t.Errorf("%s: %q, want %v", column, data, want)
		}
	case isList && column == "pil":
		return checkPixels(t, got["pil.png"], list)
	case isList && (column == "jpeg" || column == "png"):
		checkMagic(t, column, got[column])
	case isList:
		for i, e := range list {
			switch _, ext, _ := strings.Cut(column, "_"); ext {
			case "pil":
				checkPixels(t, got[fmt.Sprintf("%s.%d.png", column, i)], e.([]any))
			case "png":
				checkMagic(t, "png", got[fmt.Sprintf("%s.%d.png", column, i)])
			default:
				checkMagic(t, "jpeg", got[fmt.Sprintf("%s.%d.jpg", column, i)])
			}
		}
		return len(list)
	case column == "label":
		if string(got["label.cls"]) != want {
			t.Errorf("label: %s", got["label.cls"])
		}
	case strings.Contains(column, "float"):
		f, err := strconv.ParseFloat(string(got[column+".txt"]), 64)
		w, err2 := strconv.ParseFloat(want.(string), 64)
		if errors.Join(err, err2) != nil || f != w && !(math.IsNaN(f) && math.IsNaN(w)) && (column != "float16" || float32(f) != float32(w)) {
			t.Errorf("%s: %s, want %s", column, got[column+".txt"], want)
		}
	default:
		if string(got[column+".txt"]) != want {
			t.Errorf("%s: %q, want %q", column, got[column+".txt"], want)
		}
	}
	return 1
}

func checkMagic(t *testing.T, kind string, data []byte) {
	t.Helper()
	if magic := map[string]string{"jpeg": "\xff\xd8\xff", "png": "\x89PNG"}[kind]; !strings.HasPrefix(string(data), magic) {
		t.Errorf("%s: %q", kind, data)
	}
}

// checkPixels compares a PNG file with a mode, a width, a height and pixels.
func checkPixels(t *testing.T, file []byte, want []any) int {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(want[0], err)
	}
	if b := img.Bounds(); fmt.Sprint(b.Dx(), b.Dy()) != fmt.Sprint(want[1], want[2]) {
		t.Errorf("%v, want %v", b, want)
	}
	const ihdr = 8 + 8 + 13 + 4
	n := binary.BigEndian.Uint32(file[ihdr:])
	z, err := zlib.NewReader(bytes.NewReader(file[ihdr+8 : ihdr+8+n]))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	pixels, _ := hex.DecodeString(want[3].(string))
	row := len(pixels) / img.Bounds().Dy()
	above := make([]byte, row)
	for y := range img.Bounds().Dy() {
		line := lines[y*(row+1)+1:][:row]
		for i := range line {
			above[i] += line[i]
		}
		this := slices.Clone(above)
		if want[0] == "I;16" {
			for i := 0; i < row; i += 2 {
				this[i], this[i+1] = this[i+1], this[i]
			}
		}
		if !bytes.Equal(this, pixels[y*row:][:row]) {
			t.Fatalf("%v: row %d: %x, want %x", want[0], y, this, pixels[y*row:][:row])
		}
	}
	return 1
}

// TestMDSSeek: from every cursor, and in any number of parts, the samples are the same.
func TestMDSSeek(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"raw", "zstd"} {
		opt := Options{Columns: []string{"str_int", "of_shape"}, chunk: 5000}
		s := open(t, opt, mdsFolder(t, folder))
		var cursors, want []string
		for {
			cursors = append(cursors, s.Cursor())
			one, err := some(t.Context(), s, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(one) == 0 {
				break
			}
			want = append(want, one...)
		}
		if len(want) != 24 {
			t.Fatal(len(want))
		}
		for i, cursor := range cursors {
			other := open(t, opt, mdsFolder(t, folder))
			if err := other.Seek(t.Context(), cursor); err != nil {
				t.Fatal(err)
			}
			same(t, all(t, other), want[i:])
		}
		for _, parts := range []int{1, 2, 3, 7} {
			var got []string
			for part := range parts {
				other := open(t, opt, mdsFolder(t, folder))
				if err := other.Split(part, parts); err != nil {
					t.Fatal(err)
				}
				got = append(got, all(t, other)...)
			}
			same(t, got, want)
		}
	}
}

// TestMDSOptions: keys, conditions and names of columns, which are known before anything is read.
func TestMDSOptions(t *testing.T) {
	t.Parallel()
	got := all(t, open(t, Options{Key: "str_int", Columns: []string{"label", "list_png"}, Rename: map[string]string{"label": "class"}, Attrs: map[string]string{"label": "label"},
		Where: []string{"label = 3 and float64 < 1"}}, mdsFolder(t, "raw")))
	if len(got) != 2 || !strings.HasPrefix(got[1], "100000000 | class.cls=3 | list_png.0.png=\x89PNG") || !strings.Contains(got[1], " | @label=3") {
		t.Errorf("%q", got)
	}
	got = all(t, open(t, Options{Columns: []string{"x"}}, mdsFolder(t, "pkl")))
	same(t, got, []string{"shard.00000/000000000 | x.txt=0", "shard.00000/000000001 | x.txt=1", "shard.00000/000000002 | x.txt=2"})
	for want, opt := range map[string]Options{`"y" is pickled`: {}, "as docs/mosaicml.md shows": {Key: "y"}, "no column \"z\"; there are: x, y": {Columns: []string{"z"}}} {
		if s, err := New(t.Context(), mdsFolder(t, "pkl"), opt); err == nil || !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v %v", s, err)
		}
	}
	_, err := New(t.Context(), mdsFolder(t, "pkl"), Options{})
	if got, want := hint.Of(err), []hint.Hint{hint.Set("columns", "x", "takes others")}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestMDSUnknown: values of an encoding that is not known are passed over, whatever their size, and
// those of the other columns are found behind them.
func TestMDSUnknown(t *testing.T) {
	t.Parallel()
	store, opt := mem.New(), Options{Columns: []string{"b"}}
	var in []source.Input
	var list []string
	for i, size := range []string{"3", "null", "0", "2"} { // 0 and null: each value has its own
		columns := `"column_names":["a","b"],"column_encodings":["quantum","str"],"column_sizes":[` + size + `,null]`
		sample := map[string]string{"3": u32(1) + "xyzb", "2": u32(1) + "xyb"}[size]
		if sample == "" {
			sample = u32(3) + u32(1) + "xyzb"
		}
		file, name := shardOf("{"+columns+"}", sample, sample), fmt.Sprintf("%d.mds", i)
		put(t, store, "d/"+name, file)
		in = append(in, source.Input{Store: store, Name: "d/" + name})
		list = append(list, fmt.Sprintf(`{"format":"mds","version":2,"samples":2,"raw_data":{"basename":%q,"bytes":%d,"hashes":{}},"zip_data":null,%s}`, name, len(file), columns))
	}
	for _, index := range []string{"", `{"version":2,"shards":[` + strings.Join(list, ",") + `]}`} {
		if index != "" {
			put(t, store, "d/index.json", []byte(index))
		}
		got := all(t, open(t, opt, in))
		same(t, got, []string{"0/000000000 | b.txt=b", "0/000000001 | b.txt=b", "1/000000000 | b.txt=b", "1/000000001 | b.txt=b",
			"2/000000000 | b.txt=b", "2/000000001 | b.txt=b", "3/000000000 | b.txt=b", "3/000000001 | b.txt=b"})
	}
	for _, size := range []string{"-1", "4294967296"} {
		text := `{"column_names":["a"],"column_encodings":["quantum"],"column_sizes":[` + size + `]}`
		if _, err := readMDS(t, "s.mds", shardOf(text, "x"), ""); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), size+" bytes are stated") {
			t.Error(err)
		}
	}
}

// shardOf makes a shard of samples.
func shardOf(config string, samples ...string) []byte {
	n := len(samples)
	b := binary.LittleEndian.AppendUint32(nil, uint32(n))
	at := uint32(8 + 4*n + len(config))
	b = binary.LittleEndian.AppendUint32(b, at)
	for _, s := range samples {
		at += uint32(len(s))
		b = binary.LittleEndian.AppendUint32(b, at)
	}
	return append(b, config+strings.Join(samples, "")...)
}

func configOf(encodings ...string) string {
	names, sizes := make([]string, len(encodings)), make([]*int, len(encodings))
	for i := range encodings {
		names[i] = string(rune('a' + i))
		for width := range 9 {
			if strings.HasSuffix(encodings[i], "nt"+strconv.Itoa(8*width)) {
				sizes[i] = &width
			}
		}
	}
	text, _ := json.Marshal(map[string]any{"column_names": names, "column_encodings": encodings, "column_sizes": sizes})
	return string(text)
}

func u32(n int) string { return string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }

// readMDS reads a shard, with an index if it is not empty.
func readMDS(t testing.TB, name string, file []byte, index string) (got []string, err error) {
	t.Helper()
	store := mem.New()
	put(t, store, "d/"+name, file)
	if index != "" {
		put(t, store, "d/index.json", []byte(index))
	}
	s, err := New(t.Context(), []source.Input{{Store: store, Name: "d/" + name}}, Options{MaxLine: 1 << 20})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return some(t.Context(), s, -1)
}

// TestMDSDamage: a shard that is cut is an error at every byte, and flipped bits are found by the
// hash of the index.
func TestMDSDamage(t *testing.T) {
	t.Parallel()
	file := shardOf(configOf("str", "int8"), u32(1)+"a\x01", u32(2)+"bc\x02")
	if got, err := readMDS(t, "s.mds", file, ""); err != nil || len(got) != 2 || got[1] != "s/000000001 | a.txt=bc | b.txt=2" {
		t.Fatal(got, err)
	}
	for n := range file {
		if got, err := readMDS(t, "s.mds", file[:n], ""); !errors.Is(err, format.ErrCorrupt) || len(got) > 0 {
			t.Fatalf("%d bytes: %q %v", n, got, err)
		}
	}
	if _, err := readMDS(t, "s.mds", append(slices.Clip(file), 0), ""); !errors.Is(err, format.ErrCorrupt) {
		t.Error(err)
	}
	folder := mdsFolder(t, "raw")
	index, err := os.ReadFile(filepath.Join(mdsData, "raw", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(mdsData, "raw", folder[4].Name))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 97 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 4
		if _, err := readMDS(t, folder[4].Name, damaged, string(index)); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
	_, err = readMDS(t, folder[4].Name, whole[:len(whole)-1], string(index))
	if err == nil || !strings.Contains(err.Error(), "index.json states") {
		t.Error(err)
	}
}

// TestMDSBad: what a shard or an index states wrongly is an error that says so.
func TestMDSBad(t *testing.T) {
	t.Parallel()
	lying := func(at int, v uint32) []byte {
		b := shardOf(configOf("str"), u32(1)+"a", u32(1)+"b")
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	stated := func(size int64, more string) string {
		return fmt.Sprintf(`{"version":2,"shards":[{"format":"mds","version":2,"samples":1,"raw_data":{"basename":"s.mds","bytes":%d,"hashes":{}},"zip_data":null,%s}]}`, size, more)
	}
	good := shardOf(configOf("str"), u32(1)+"a")
	columns := `"column_names":["a"],"column_encodings":["str"],"column_sizes":[null]`
	image := func(w, h int, mode, pixels string) string {
		return u32(12+len(mode)+len(pixels)) + u32(w) + u32(h) + u32(len(mode)) + mode + pixels
	}
	for _, c := range []struct {
		file  []byte
		index string
		want  string // of the error, or of a row's if it begins with "! "
	}{
		{nil, "", "it is cut off"},
		{[]byte("PAR1PAR1PAR1PAR1"), "", "no MDS shard"},
		{lying(0, 1<<31), "", "no MDS shard"},
		{lying(0, 1), "", "not JSON"},
		{lying(4, 1<<30), "", "no MDS shard"},
		{lying(8, 1<<30), "", "sample 1 ends at byte"},
		{lying(12, 1<<30), "", "its last sample ends at byte"},
		{good, stated(int64(len(good))+1, columns), "index.json states"},
		{good, stated(int64(len(good)), columns+`,"samples":3`), "its index.json 3"},
		{good, stated(int64(len(good)), `"column_names":["a"],"column_encodings":["str"],"column_sizes":[4]`), "values of 4 bytes are stated"},
		{good, stated(int64(len(good)), `"column_names":["a","a"],"column_encodings":["str","str"],"column_sizes":[null,null]`), "two columns"},
		{good, stated(int64(len(good)), `"column_names":["a"],"column_encodings":["str"]`), "0 sizes"},
		{good, stated(int64(len(good)), `"column_names":["a"],"column_encodings":["ndarray:int32:0"],"column_sizes":[0]`), "no shape"},
		{good, stated(int64(len(good)), `"column_names":["a"],"column_encodings":["ndarray:text"],"column_sizes":[null]`), "no type"},
		{good, strings.ReplaceAll(stated(1, columns), "s.mds", "../s.mds"), "below the folder"},
		{good, stated(1, columns)[:150], "cut"},
		{good, strings.Replace(stated(1, columns), `"version":2`, `"version":3`, 1), "version is 3"},
		{shardOf(configOf("quantum"), u32(1)+"a"), "", "does not know"},
		{shardOf(configOf("str"), u32(9)+"a"), "", "! a value of 9 bytes"},
		{shardOf(configOf("str"), u32(0)+"a"), "", "! 1 bytes follow"},
		{shardOf(configOf("str"), "a"), "", "! the sizes of its values"},
		{shardOf(configOf("str"), u32(1)+"\xff"), "", "! UTF-8"},
		{shardOf(configOf("str_int"), u32(3)+"1.5"), "", "! no integer"},
		{shardOf(configOf("str_float"), u32(1)+"x"), "", "! no number"},
		{shardOf(configOf("ndarray"), u32(0)), "", "! an array is cut"},
		{shardOf(configOf("ndarray"), u32(2)+"\x07\x04"), "", "! type 7"},
		{shardOf(configOf("ndarray"), u32(4)+"\x08\x08\xff\xff"), "", "! dimension of 255"},
		{shardOf(configOf("ndarray"), u32(5)+"\x08\x04\x01\x01\x01"), "", "! takes 1 bytes, and there are 2"},
		{shardOf(configOf("ndarray"), u32(13)+"\x41\x07"+strings.Repeat("\xff", 11)), "", "! dimension"},
		{shardOf(configOf("jpegarray"), u32(4)+u32(1<<30)), "", "! 1073741824 elements"},
		{shardOf(configOf("jpegarray"), u32(9)+u32(1)+u32(9)+"a"), "", "! element 0"},
		{shardOf(configOf("list[png]"), u32(13)+u32(0)+u32(1)+u32(0)+"a"), "", "! follow the last element"},
		{shardOf(configOf("pil"), image(1<<30, 1<<30, "RGB", "abc")), "", "! 1073741824 × 1073741824"},
		{shardOf(configOf("pil"), image(1, 1, "CMYK", "abcd")), "", "! mode \"CMYK\""},
		{shardOf(configOf("pil"), u32(12)+u32(1)+u32(1)+u32(1<<20)), "", "! mode of 1048576"},
		{shardOf(configOf("pil"), image(0, 1, "L", "")), "", "! 0 × 1"},
	} {
		got, err := readMDS(t, "s.mds", c.file, c.index)
		text := fmt.Sprint(err)
		want, row := strings.CutPrefix(c.want, "! ")
		if row && len(got) == 1 {
			text = got[0]
		}
		if row != (err == nil) || !strings.Contains(text, want) {
			t.Errorf("want %q, got %q", c.want, text)
		}
	}
	if _, err := readMDS(t, "s.mds", shardOf(configOf("str"), strings.Repeat("a", 1<<20+1)), ""); !errors.Is(err, format.ErrTooLarge) {
		t.Error(err)
	}
	if got, err := readMDS(t, "s.mds", shardOf(configOf("str")), ""); err != nil || len(got) > 0 {
		t.Error(got, err)
	}
	// Headers that decompress to gigabytes are refused before they are held.
	for _, lead := range []string{u32(1<<32-1) + u32(0), u32(1) + u32(1<<32-1)} {
		file := pack(t, "s.mds.zst", lead+strings.Repeat("\x00", 8<<20))
		if _, err := readMDS(t, "s.mds.zst", file, ""); !errors.Is(err, format.ErrCorrupt) {
			t.Error(err)
		}
	}
}

// FuzzMDS: no shard causes a panic, a hang or a large allocation.
func FuzzMDS(f *testing.F) {
	f.Add(shardOf(configOf("str", "int8", "ndarray", "pil", "list[pil]", "json", "float16"), strings.Repeat("\x01", 64)), "")
	f.Add(shardOf(configOf("ndarray", "jpegarray"), u32(4)+u32(8)+"\x08\x04\x01\x01"+u32(1)+u32(0)), "")
	whole, err := os.ReadFile(filepath.Join(mdsData, "raw", "shard.00004.mds"))
	if err != nil {
		f.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(mdsData, "raw", "index.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, string(index))
	f.Fuzz(func(t *testing.T, file []byte, index string) {
		store := mem.New()
		put(t, store, "shard.00004.mds", file)
		put(t, store, "index.json", []byte(index))
		s, err := New(t.Context(), []source.Input{{Store: store, Name: "shard.00004.mds"}}, Options{MaxLine: 1 << 20})
		if err != nil {
			return
		}
		defer s.Close()
		for {
			sample, err := s.Next(t.Context())
			var se *writer.SampleError
			if err != nil && !errors.As(err, &se) {
				return
			}
			for _, field := range sample.Fields {
				if len(field.Data) > 2*len(file)+4096 {
					t.Fatalf("%d bytes of %d", len(field.Data), len(file))
				}
			}
		}
	})
}
