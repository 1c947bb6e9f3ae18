package parquet_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// numpy is the .npy file of a list: the header as NumPy's documentation of version 1.0 has it.
func numpy(dtype, shape string, values ...any) string {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", dtype, shape)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	out := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head)))
	out = append(out, head...)
	for _, v := range values {
		out, _ = binary.Append(out, binary.LittleEndian, v)
	}
	if (len(head)+10)%64 != 0 {
		panic("not aligned")
	}
	return string(out)
}

// TestForeignImages reads images and class labels as Hugging Face stores them.
func TestForeignImages(t *testing.T) {
	content := foreign(t)["images.parquet"]
	got := read(t, content, parquet.Options{Attrs: map[string]string{"class": "label"}})
	for i, r := range got {
		want := map[string]string{"label.cls": fmt.Sprint(i % 3), "caption.txt": fmt.Sprintf("picture %d, “größer” \U0001f600", i)}
		if i%10 != 9 {
			if !strings.HasPrefix(r.fields["image.png"], "\x89PNG\r\n\x1a\n") {
				t.Fatalf("row %d: %q is no PNG", i, r.fields)
			}
			want["image.png"] = r.fields["image.png"]
		}
		sameFields(t, r.key, r.fields, want)
		if a := r.attrs["class"]; a.Kind != format.AttrLabel || a.Label != []string{"cat", "dog", "eel"}[i%3] {
			t.Errorf("row %d has the attribute %+v", i, a)
		}
	}
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x": content})), parquet.Options{Columns: []string{"label"}})
	if err != nil || src.Meta()["classes"] != `["cat","dog","eel"]` {
		t.Errorf("%v, %q", err, src.Meta())
	}
	got = read(t, content, parquet.Options{Where: []string{"label=eel", "image is not null"}, Columns: []string{"image"}, Rename: map[string]string{"image": "png"}})
	if len(got) != 18 || len(got[0].fields) != 1 || got[0].fields["png"] == "" || got[0].key != "x/000000002" {
		t.Errorf("%d rows, the first %v", len(got), got[0])
	}
}

// TestForeignNested reads lists, structs and maps.
func TestForeignNested(t *testing.T) {
	got := read(t, foreign(t)["nested.parquet"], parquet.Options{Key: "id"})
	if len(got) != 60 {
		t.Fatalf("%d rows", len(got))
	}
	for i, r := range got {
		want := map[string]string{"fixed.npy": numpy("<i2", "(2,)", int16(i), int16(-i)), "map.json": fmt.Sprintf(`{"k":%d,"l":null}`, i)}
		var vector, matrix []any
		for k := range i % 4 {
			vector = append(vector, float32(k)/2)
		}
		want["vector.npy"] = numpy("<f4", fmt.Sprintf("(%d,)", i%4), vector...)
		for row := range 1 + i%3 {
			for c := range 3 {
				matrix = append(matrix, int32(row*10+c))
			}
		}
		want["matrix.npy"] = numpy("<i4", fmt.Sprintf("(%d, 3)", 1+i%3), matrix...)
		switch i % 3 {
		case 0:
			want["ragged.npy"] = numpy("|u1", "(1, 0)")
		case 1:
			want["ragged.json"] = "[[],[1]]"
		default:
			want["ragged.json"] = "[[],[1],[1,1]]"
		}
		want["words.json"] = []string{`[]`, `["a"]`, `["a","b\"c"]`}[i%3]
		if i%2 == 1 {
			want["holes.json"] = "[1,null]"
			want["box.json"] = fmt.Sprintf(`{"x":%d,"tags":["t"],"at":null}`, i)
		} else {
			want["holes.npy"] = numpy("<i8", "(2,)", int64(1), int64(2))
			want["box.json"] = fmt.Sprintf(`{"x":%d,"tags":[],"at":null}`, i)
		}
		sameFields(t, r.key, r.fields, want)
		if r.key != fmt.Sprintf("row-%03d", i) {
			t.Errorf("row %d has the key %q", i, r.key)
		}
	}
}

// TestForeignScalars reads times, decimals and dictionaries, in newer and older ways of writing
// them.
func TestForeignScalars(t *testing.T) {
	files := foreign(t)
	moment := time.Date(2024, 2, 29, 12, 34, 56, 789012000, time.UTC)
	for _, name := range []string{"scalars.parquet", "legacy.parquet"} {
		for i, r := range read(t, files[name], parquet.Options{}) {
			at := moment.Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano)
			want := map[string]string{
				"day.txt": moment.AddDate(0, 0, i).Format(time.DateOnly), "when.txt": at, "utc.txt": at,
				"time.txt":  fmt.Sprint(3723_000_000 + i),
				"price.txt": fmt.Sprintf("%.2f", float64(i)/100-1), "huge.txt": fmt.Sprintf("1000000000000000000000000000%03d.000", i),
				"half.txt": fmt.Sprint(float64(i) / 4), "large.txt": fmt.Sprint("large ", i), "view.bin": strings.Repeat("\x00", i%3),
				"flag.txt": fmt.Sprint(i%2 == 0), "tiny.txt": fmt.Sprint(i - 100), "wide.txt": fmt.Sprint(uint64(math.MaxUint64) - uint64(i)),
			}
			want["huge.txt"] = "1" + fmt.Sprintf("%030d", i) + ".000"
			if i%3 != 2 {
				want["colour.txt"] = []string{"red", "green"}[i%3]
			}
			sameFields(t, name+" "+r.key, r.fields, want)
		}
	}
	for i, r := range read(t, files["split.parquet"], parquet.Options{}) {
		sameFields(t, r.key, r.fields, map[string]string{
			"half.txt": fmt.Sprint(float64(i) / 4), "large.txt": fmt.Sprint("large ", i), "tiny.txt": fmt.Sprint(i - 100),
			"wide.txt": fmt.Sprint(uint64(math.MaxUint64) - uint64(i)), "price.txt": fmt.Sprintf("%.2f", float64(i)/100-1),
		})
	}
}
