package parquet_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/float16"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// typed is a column of two values and the fields that it becomes.
type typed struct {
	name     string
	logical  schema.LogicalType
	physical pq.Type
	size     int
	values   any
	field    string
	want     [2]string
}

func allTypes() []typed {
	required := pq.Types
	int96 := func(day uint32, nanos uint64) (v pq.Int96) {
		binary.LittleEndian.PutUint64(v[:], nanos)
		binary.LittleEndian.PutUint32(v[8:], day)
		return v
	}
	half := func(f float32) string { return string(float16.New(f).ToLEBytes()) }
	at := time.Date(2024, 2, 29, 23, 59, 58, 123456789, time.UTC)
	return []typed{
		{"flag", nil, required.Boolean, 0, []bool{true, false}, "flag.txt", [2]string{"true", "false"}},
		{"i32", nil, required.Int32, 0, []int32{-7, math.MaxInt32}, "i32.txt", [2]string{"-7", "2147483647"}},
		{"i64", nil, required.Int64, 0, []int64{math.MinInt64, 5}, "i64.txt", [2]string{"-9223372036854775808", "5"}},
		{"i8", schema.NewIntLogicalType(8, true), required.Int32, 0, []int32{-128, 127}, "i8.txt", [2]string{"-128", "127"}},
		{"i16", schema.NewIntLogicalType(16, true), required.Int32, 0, []int32{-300, 300}, "i16.txt", [2]string{"-300", "300"}},
		{"u8", schema.NewIntLogicalType(8, false), required.Int32, 0, []int32{0, 255}, "u8.txt", [2]string{"0", "255"}},
		{"u32", schema.NewIntLogicalType(32, false), required.Int32, 0, []int32{-1, 1}, "u32.txt", [2]string{"4294967295", "1"}},
		{"u64", schema.NewIntLogicalType(64, false), required.Int64, 0, []int64{-1, 1}, "u64.txt", [2]string{"18446744073709551615", "1"}},
		{"label", nil, required.Int64, 0, []int64{3, 4}, "label.cls", [2]string{"3", "4"}},
		{"cls", nil, required.Int32, 0, []int32{3, 4}, "cls", [2]string{"3", "4"}},
		{"f32", nil, required.Float, 0, []float32{0.1, float32(math.Inf(-1))}, "f32.txt", [2]string{"0.1", "-Inf"}},
		{"f64", nil, required.Double, 0, []float64{1e300, math.NaN()}, "f64.txt", [2]string{"1e+300", "NaN"}},
		{"f16", schema.Float16LogicalType{}, required.FixedLenByteArray, 2, []string{half(1.5), "\x01\x00"}, "f16.txt", [2]string{"1.5", "5.9604645e-08"}},
		{"old", nil, required.Int96, 0, []pq.Int96{int96(2440588, 1), int96(2460370, 86398_123456789e0)}, "old.txt",
			[2]string{"1970-01-01T00:00:00.000000001Z", "2024-02-29T23:59:58.123456789Z"}},
		{"bytes", nil, required.ByteArray, 0, []string{"\x00\xff", ""}, "bytes.bin", [2]string{"\x00\xff", ""}},
		{"fixed", nil, required.FixedLenByteArray, 3, []string{"abc", "\x00\x01\x02"}, "fixed.bin", [2]string{"abc", "\x00\x01\x02"}},
		{"jpg", nil, required.ByteArray, 0, []string{"a", "b"}, "jpg", [2]string{"a", "b"}},
		{"depth.png", nil, required.ByteArray, 0, []string{"a", "b"}, "depth.png", [2]string{"a", "b"}},
		{"text", schema.StringLogicalType{}, required.ByteArray, 0, []string{"häß", strings.Repeat("long ", 40000)}, "text.txt", [2]string{"häß", strings.Repeat("long ", 40000)}},
		{"kind", schema.EnumLogicalType{}, required.ByteArray, 0, []string{"A", "B"}, "kind.txt", [2]string{"A", "B"}},
		{"meta", schema.JSONLogicalType{}, required.ByteArray, 0, []string{`{"a": 1}`, `[]`}, "meta.json", [2]string{`{"a": 1}`, `[]`}},
		{"doc", schema.BSONLogicalType{}, required.ByteArray, 0, []string{"\x05\x00\x00\x00\x00", "x"}, "doc.bson", [2]string{"\x05\x00\x00\x00\x00", "x"}},
		{"dec32", schema.NewDecimalLogicalType(9, 2), required.Int32, 0, []int32{-5, 123456789}, "dec32.txt", [2]string{"-0.05", "1234567.89"}},
		{"dec64", schema.NewDecimalLogicalType(18, 0), required.Int64, 0, []int64{-5, 12}, "dec64.txt", [2]string{"-5", "12"}},
		{"decfix", schema.NewDecimalLogicalType(20, 3), required.FixedLenByteArray, 9, []string{"\xff\xff\xff\xff\xff\xff\xff\xff\xfe", "\x01\x00\x00\x00\x00\x00\x00\x00\x00"},
			"decfix.txt", [2]string{"-0.002", "18446744073709551.616"}},
		{"decvar", schema.NewDecimalLogicalType(20, 1), required.ByteArray, 0, []string{"\x80", "\x00\x80"}, "decvar.txt", [2]string{"-12.8", "12.8"}},
		{"date", schema.DateLogicalType{}, required.Int32, 0, []int32{-1, int32(at.Unix() / 86400)}, "date.txt", [2]string{"1969-12-31", "2024-02-29"}},
		{"ms", schema.NewTimeLogicalType(true, schema.TimeUnitMillis), required.Int32, 0, []int32{0, 86399123}, "ms.txt", [2]string{"0", "86399123"}},
		{"ns", schema.NewTimeLogicalType(false, schema.TimeUnitNanos), required.Int64, 0, []int64{1, 3600e9}, "ns.txt", [2]string{"1", "3600000000000"}},
		{"tms", schema.NewTimestampLogicalType(true, schema.TimeUnitMillis), required.Int64, 0, []int64{-1, at.UnixMilli()}, "tms.txt",
			[2]string{"1969-12-31T23:59:59.999Z", "2024-02-29T23:59:58.123Z"}},
		{"tus", schema.NewTimestampLogicalType(false, schema.TimeUnitMicros), required.Int64, 0, []int64{0, at.UnixMicro()}, "tus.txt",
			[2]string{"1970-01-01T00:00:00Z", "2024-02-29T23:59:58.123456Z"}},
		{"tns", schema.NewTimestampLogicalType(true, schema.TimeUnitNanos), required.Int64, 0, []int64{0, at.UnixNano()}, "tns.txt",
			[2]string{"1970-01-01T00:00:00Z", "2024-02-29T23:59:58.123456789Z"}},
		{"uuid", schema.UUIDLogicalType{}, required.FixedLenByteArray, 16, []string{"0123456789abcdef", "\xff\xee\xdd\xcc\xbb\xaa\x99\x88\x77\x66\x55\x44\x33\x22\x11\x00"}, "uuid.txt",
			[2]string{"30313233-3435-3637-3839-616263646566", "ffeeddcc-bbaa-9988-7766-554433221100"}},
	}
}

// TestTypes reads every physical and logical type, required and with nulls, in every compression
// and both versions of pages.
func TestTypes(t *testing.T) {
	codecs := map[string]compress.Compression{
		"none": compress.Codecs.Uncompressed, "snappy": compress.Codecs.Snappy, "gzip": compress.Codecs.Gzip,
		"zstd": compress.Codecs.Zstd, "brotli": compress.Codecs.Brotli, "lz4_raw": compress.Compression(7),
	}
	for name, codec := range codecs {
		for _, version := range []pq.DataPageVersion{pq.DataPageV1, pq.DataPageV2} {
			for _, dictionary := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s,pages=%d,dictionary=%v", name, version+1, dictionary), func(t *testing.T) {
					t.Parallel()
					testTypes(t, pq.WithCompression(codec), pq.WithDataPageVersion(version), pq.WithDictionaryDefault(dictionary))
				})
			}
		}
	}
}

func testTypes(t *testing.T, props ...pq.WriterProperty) {
	columns := allTypes()
	tab := table{props: props, groups: make([][]data, 2)}
	for _, c := range columns {
		tab.fields = append(tab.fields, leafNode(c.name, pq.Repetitions.Required, c.logical, c.physical, c.size))
		tab.groups[0] = append(tab.groups[0], data{values: c.values})
		tab.groups[1] = append(tab.groups[1], data{values: c.values})
	}
	for i, r := range read(t, write(t, tab), parquet.Options{}) {
		want := map[string]string{}
		for _, c := range columns {
			want[c.field] = c.want[i%2]
		}
		sameFields(t, r.key, r.fields, want)
		if key := fmt.Sprintf("x/%09d", i); r.key != key {
			t.Errorf("row %d has the key %s, want %s", i, r.key, key)
		}
	}
	// Optional: value, null, value.
	tab = table{props: props, groups: make([][]data, 1)}
	tab.fields = append(tab.fields, leafNode("always", pq.Repetitions.Required, nil, pq.Types.Int32, 0))
	tab.groups[0] = append(tab.groups[0], data{values: []int32{0, 1, 2}})
	for _, c := range columns {
		tab.fields = append(tab.fields, leafNode(c.name, pq.Repetitions.Optional, c.logical, c.physical, c.size))
		tab.groups[0] = append(tab.groups[0], data{values: c.values, defs: []int16{1, 0, 1}})
	}
	for i, r := range read(t, write(t, tab), parquet.Options{}) {
		want := map[string]string{"always.txt": fmt.Sprint(i)}
		for _, c := range columns {
			if i != 1 {
				want[c.field] = c.want[i/2]
			}
		}
		sameFields(t, r.key, r.fields, want)
	}
}

// TestEncodings reads columns in every encoding that a writer may choose for them, over many pages.
func TestEncodings(t *testing.T) {
	const n = 5000
	var i32 []int32
	var i64 []int64
	var text []string
	var flags []bool
	for i := range n {
		i32 = append(i32, int32(i*i%1000-500))
		i64 = append(i64, int64(i)*1e12-7)
		text = append(text, fmt.Sprintf("prefix %d/%d", i/100, i))
		flags = append(flags, i%3 == 0)
	}
	for name, columns := range map[string]map[string]pq.Encoding{
		"plain":        {"i32": pq.Encodings.Plain, "i64": pq.Encodings.Plain, "text": pq.Encodings.Plain, "flag": pq.Encodings.Plain},
		"delta":        {"i32": pq.Encodings.DeltaBinaryPacked, "i64": pq.Encodings.DeltaBinaryPacked, "text": pq.Encodings.DeltaByteArray, "flag": pq.Encodings.RLE},
		"delta length": {"text": pq.Encodings.DeltaLengthByteArray},
		"dictionary":   nil,
	} {
		for _, version := range []pq.DataPageVersion{pq.DataPageV1, pq.DataPageV2} {
			for _, optional := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,pages=%d,optional=%v", name, version+1, optional), func(t *testing.T) {
					props := []pq.WriterProperty{pq.WithDataPageVersion(version), pq.WithDataPageSize(2000), pq.WithCompression(compress.Codecs.Snappy), pq.WithBatchSize(64)}
					if name != "dictionary" {
						props = append(props, pq.WithDictionaryDefault(false))
					}
					for c, e := range columns {
						props = append(props, pq.WithEncodingFor(c, e))
					}
					rep, defs := pq.Repetitions.Required, []int16(nil)
					present := func(int) bool { return true }
					if optional {
						rep = pq.Repetitions.Optional
						present = func(i int) bool { return i%7 != 3 }
						for i := range n {
							d := int16(0)
							if present(i) {
								d = 1
							}
							defs = append(defs, d)
						}
					}
					tab := table{props: props, fields: schema.FieldList{
						leafNode("i32", rep, nil, pq.Types.Int32, 0), leafNode("i64", rep, nil, pq.Types.Int64, 0),
						leafNode("text", rep, schema.StringLogicalType{}, pq.Types.ByteArray, 0), leafNode("flag", rep, nil, pq.Types.Boolean, 0),
						leafNode("no", pq.Repetitions.Required, nil, pq.Types.Int32, 0),
					}}
					tab.groups = [][]data{{{values: keep(i32, present), defs: defs}, {values: keep(i64, present), defs: defs},
						{values: keep(text, present), defs: defs}, {values: keep(flags, present), defs: defs}, {values: make([]int32, n)}}}
					got := read(t, write(t, tab), parquet.Options{})
					if len(got) != n {
						t.Fatalf("%d rows, want %d", len(got), n)
					}
					for i, r := range got {
						want := map[string]string{"no.txt": "0"}
						if present(i) {
							want = map[string]string{"no.txt": "0", "i32.txt": fmt.Sprint(i32[i]), "i64.txt": fmt.Sprint(i64[i]), "text.txt": text[i], "flag.txt": fmt.Sprint(flags[i])}
						}
						sameFields(t, r.key, r.fields, want)
						if t.Failed() {
							t.FailNow()
						}
					}
				})
			}
		}
	}
}

func keep[T any](all []T, present func(int) bool) (out []T) {
	for i, v := range all {
		if present(i) {
			out = append(out, v)
		}
	}
	return out
}

// TestNoTime: an invalid time is not converted to text.
func TestNoTime(t *testing.T) {
	int96 := func(day uint32, nanos int64) (v pq.Int96) {
		binary.LittleEndian.PutUint64(v[:], uint64(nanos))
		binary.LittleEndian.PutUint32(v[8:], day)
		return v
	}
	const day = int64(24 * time.Hour)
	for _, c := range []struct {
		what     string
		logical  schema.LogicalType
		physical pq.Type
		values   any
		want     string // "" where there is a text
	}{
		{"day", nil, pq.Types.Int96, []pq.Int96{int96(2440588, day-1)}, ""},
		{"day and more", nil, pq.Types.Int96, []pq.Int96{int96(2440588, day)}, "a 96-bit timestamp at 86400000000000 nanoseconds of the Julian day 2440588, which is not a time"},
		{"before the day", nil, pq.Types.Int96, []pq.Int96{int96(2440588, -1)}, "a 96-bit timestamp at 18446744073709551615 nanoseconds"},
		{"before year 0", nil, pq.Types.Int96, []pq.Int96{int96(1721057, 0)}, ""},
		{"far", nil, pq.Types.Int96, []pq.Int96{int96(math.MaxInt32, 0)}, ""},
		{"too far", nil, pq.Types.Int96, []pq.Int96{int96(math.MaxInt32+1, 0)}, "of the Julian day 2147483648, which is not a time"},
		{"time", schema.NewTimeLogicalType(true, schema.TimeUnitMillis), pq.Types.Int32, []int32{86_399_999}, ""},
		{"time and more", schema.NewTimeLogicalType(true, schema.TimeUnitMillis), pq.Types.Int32, []int32{86_400_000}, "not a time of day"},
		{"time before", schema.NewTimeLogicalType(true, schema.TimeUnitMicros), pq.Types.Int64, []int64{-1}, "not a time of day"},
	} {
		t.Run(c.what, func(t *testing.T) {
			leaf := leafNode("t", pq.Repetitions.Required, c.logical, c.physical, 0)
			element := leafNode("element", pq.Repetitions.Required, c.logical, c.physical, 0)
			content := write(t, table{fields: schema.FieldList{leaf, listOf("l", element)},
				groups: [][]data{{{values: c.values}, {c.values, []int16{2}, []int16{0}}}}})
			if _, err := first(t, content, parquet.Options{Columns: []string{"l"}, Where: []string{"t >= 0001-01-01"}}); c.physical == pq.Types.Int96 && c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), "column t: it has a 96-bit timestamp")) {
				t.Errorf("under a condition: %v", err)
			}
			for _, column := range []string{"t", "l"} {
				got, err := first(t, content, parquet.Options{Columns: []string{column}})
				switch {
				case c.want == "" && err != nil:
					t.Errorf("column %s: %v", column, err)
				case c.want != "" && (err == nil || errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "column "+column+": ") || !strings.Contains(err.Error(), c.want)):
					t.Errorf("column %s: %v, %v", column, got.fields, err)
				}
			}
		})
	}
}

// TestFloatsInJSON: a float in JSON has a point or an exponent, so that programs read all rows of a
// column as floats.
func TestFloatsInJSON(t *testing.T) {
	for _, c := range []struct {
		physical pq.Type
		values   any
	}{
		{pq.Types.Double, []float64{2, math.Copysign(0, -1), 0, 2.5, 1e300, -7, math.NaN(), math.Inf(-1)}},
		{pq.Types.Float, []float32{2, float32(math.Copysign(0, -1)), 0, 2.5, 1e30, -7, float32(math.NaN()), float32(math.Inf(-1))}},
	} {
		box := schema.MustGroup(schema.NewGroupNode("box", pq.Repetitions.Required, schema.FieldList{leafNode("x", pq.Repetitions.Required, nil, c.physical, 0)}, -1))
		got := read(t, write(t, table{fields: schema.FieldList{box}, groups: [][]data{{{values: c.values}}}}), parquet.Options{})
		for i, want := range []string{"2.0", "-0.0", "0.0", "2.5", "1e+300", "-7.0", `"NaN"`, `"-Infinity"`} {
			if c.physical == pq.Types.Float {
				want = strings.Replace(want, "300", "30", 1)
			}
			sameFields(t, want, got[i].fields, map[string]string{"box.json": `{"x":` + want + `}`})
		}
	}
}
