package kinds

import (
	"encoding/json"
	"testing"
)

// TestFeature: the JSON and the card of a feature are as datasets write them, those of older
// releases as today's.
func TestFeature(t *testing.T) {
	t.Parallel()
	const value = `{"dtype":"int8","_type":"Value"}`
	for _, c := range [][3]string{
		{`{"_type":"Value","id":null,"dtype":"int8","x":1}`, value, `"dtype":"int8"`},
		{`{"_type":"List","feature":` + value + `}`, `{"feature":` + value + `,"_type":"Sequence"}`, `"sequence":"int8"`},
		{`{"_type":"List","length":3,"feature":` + value + `}`, `{"feature":` + value + `,"length":3,"_type":"Sequence"}`, `"sequence":"int8","length":3`},
		{`{"_type":"LargeList","feature":` + value + `}`, `{"feature":` + value + `,"_type":"LargeList"}`, `"large_list":"int8"`},
		{`[{"b":` + value + `,"a":{"c":` + value + `}}]`, `{"feature":{"b":` + value + `,"a":{"c":` + value + `}},"_type":"List"}`, `"list":[{"name":"b","dtype":"int8"},{"name":"a","struct":[{"name":"c","dtype":"int8"}]}]`},
		{`{"_type":"Sequence","length":2,"feature":{"b":` + value + `}}`, `{"b":{"feature":` + value + `,"length":2,"_type":"Sequence"}}`, `"struct":[{"name":"b","sequence":"int8","length":2}]`},
		{`{"_type":"Sequence","feature":[` + value + `]}`, `{"feature":{"feature":` + value + `,"_type":"Sequence"},"_type":"Sequence"}`, `"sequence":{"sequence":"int8"}`},
		{`{"_type":"ClassLabel","names":["a","\""]}`, `{"names":["a","\""],"_type":"ClassLabel"}`, `"dtype":{"class_label":{"names":{"0":"a","1":"\""}}}`},
		{`{"_type":"Audio","sampling_rate":16000}`, `{"sampling_rate":16000,"_type":"Audio"}`, `"dtype":{"audio":{"sampling_rate":16000}}`},
		{`{"_type":"Array2D","shape":[1,2],"dtype":"int8"}`, `{"dtype":"int8","shape":[1,2],"_type":"Array2D"}`, `"dtype":{"array2_d":{"dtype":"int8","shape":[1,2]}}`},
		{`{"_type":{"_type":"Image"}}`, `{"_type":{"_type":"Image"}}`, `"struct":[{"name":"_type","dtype":"image"}]`},
	} {
		f, err := ParseFeature([]byte(c[0]))
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		text, card := string(f.AppendJSON(nil)), string(f.AppendCard(nil))
		if text != c[1] || card != c[2] {
			t.Errorf("%s: %s, %s", c[0], text, card)
		}
		if again, err := ParseFeature([]byte(text)); err != nil || string(again.AppendJSON(nil)) != text {
			t.Errorf("%s: %v", text, err)
		}
		if s, err := f.Storage(); err != nil || !s.Holds(s) || !json.Valid([]byte("{"+card+"}")) {
			t.Errorf("%s: %v, %v", c[0], s, err)
		}
	}
	for _, text := range []string{"", "1", "[]", "{", `{"a":1}`, `[` + value + `,` + value + `]`, `{"_type":"Image","feature":` + value + `}`, `{"a":` + value + `,"a":` + value + `}`} {
		if f, err := ParseFeature([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, f)
		}
	}
}

// TestHolds: a type that would change a value of another does not hold it.
func TestHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of, in string
		want   bool
	}{
		{"int64", "int8", true}, {"int8", "int64", false}, {"int64", "uint32", true}, {"int32", "uint32", false}, {"uint8", "int8", false}, {"float64", "float", true},
		{"halffloat", "float32", false}, {"string", "large_string", true}, {"string", "binary", false}, {"large_binary", "fixed_size_binary[3]", true},
		{"fixed_size_binary[3]", "fixed_size_binary[4]", false}, {"date32", "date64", true}, {"timestamp[ns]", "timestamp[us, tz=Asia/Tokyo]", true},
		{"timestamp[ms]", "timestamp[us]", false}, {"timestamp[s]", "timestamp[ms]", true}, {"time64[us]", "time32[ms]", true}, {"duration[us]", "int64", true},
		{"duration[us]", "int32", false}, {"decimal256(40, 2)", "decimal128(10, 2)", true}, {"decimal128(10, 2)", "decimal128(10, 3)", false}, {"bool", "null", true}, {"bool", "int8", false},
	} {
		a, err := ParseScalar(c.of)
		b, err2 := ParseScalar(c.in)
		if err != nil || err2 != nil || a.holds(b) != c.want {
			t.Errorf("%s holds %s: want %v; %v, %v", c.of, c.in, c.want, err, err2)
		}
	}
	for _, dtype := range []string{"", "int7", "int8[s]", "uint", "float8", "time32[us]", "time64[s]", "timestamp", "timestamp[h]", "duration[us, tz=UTC]", "decimal128(39, 2)", "decimal128(2, 3)", "map", "fixed_size_binary[0]"} {
		if s, err := ParseScalar(dtype); err == nil {
			t.Errorf("%s: %v", dtype, s)
		}
	}
}

// FuzzFeature: what is parsed is parsed again as it was written.
func FuzzFeature(f *testing.F) {
	f.Add([]byte(`{"_type":"Sequence","feature":{"b":{"_type":"Value","dtype":"int8"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		is, err := ParseFeature(text)
		if err != nil {
			return
		}
		once := is.AppendJSON(nil)
		again, err := ParseFeature(once)
		if err != nil || string(again.AppendJSON(nil)) != string(once) {
			t.Errorf("%q: %q, %v", text, once, err)
		}
		_, _ = is.Storage()
		_ = is.AppendCard(nil)
	})
}
