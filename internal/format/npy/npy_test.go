package npy

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
)

// header is one of a version with any text.
func header(version byte, text string) []byte {
	out := append([]byte(Magic), version, 0)
	if version == 1 {
		out = binary.LittleEndian.AppendUint16(out, uint16(len(text)))
	} else {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(text)))
	}
	return append(out, text...)
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Header
	}{
		{"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n", Header{Kind: 'u', Size: 2, Shape: []int64{3}, Descr: "<u2"}},
		{`{"shape":(2L, 3),"descr":">i8","fortran_order":True}`, Header{Kind: 'i', Size: 8, Big: true, Fortran: true, Shape: []int64{2, 3}, Descr: ">i8"}},
		{"{'descr': '|b1', 'fortran_order': False, 'shape': ()}", Header{Kind: 'b', Size: 1, Descr: "|b1"}},
		{"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", Header{Kind: 'O', Shape: []int64{1}, Descr: "|O"}},
		{"{'descr': '<U17', 'fortran_order': False, 'shape': (1,)}", Header{Kind: 'U', Shape: []int64{1}, Descr: "<U17"}},
		{"{'descr': [('a', '<i4'), ('b)', '<f8', (2, 2))], 'fortran_order': False, 'shape': (1,)}", Header{Shape: []int64{1}, Descr: "[('a', '<i4'), ('b)', '<f8', (2, 2))]"}},
	} {
		for version := byte(1); version <= 3; version++ {
			h, err := Parse(header(version, c.text))
			if err != nil || h.Kind != c.want.Kind || h.Size != c.want.Size || h.Big != c.want.Big || h.Fortran != c.want.Fortran || h.Descr != c.want.Descr || !slices.Equal(h.Shape, c.want.Shape) {
				t.Errorf("%q: %+v %v", c.text, h, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	const good = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }"
	swap := func(old, new string) []byte { return header(1, strings.Replace(good, old, new, 1)) }
	for want, content := range map[string][]byte{
		"it is not an .npy file":                     []byte("{\"a\": 1}"),
		`begins with "" instead`:                     nil,
		"less than any header":                       []byte(Magic + "\x01\x00"),
		"its version is 9.0":                         header(9, good),
		"claims 4294967295 bytes":                    append([]byte(Magic+"\x02\x00"), 0xff, 0xff, 0xff, 0xff),
		"a dictionary is expected at byte 0":         header(1, "[1]"),
		"a key is expected":                          swap("'descr'", "descr"),
		`key "x" is none of`:                         swap("descr", "x"),
		`key "shape" occurs twice`:                   header(1, "{'shape': (), 'shape': ()}"),
		"it lacks one":                               header(1, "{}"),
		"a comma is expected":                        swap("False,", "False"),
		"True or False is expected":                  swap("False", "0"),
		"the shape's tuple is expected":              swap("(3,)", "3"),
		"a dimension below 2^63 is expected":         swap("3", "9223372036854775808"),
		"a dimension below 2^63 is expected at byte": swap("3", "-1"),
		"a type is expected":                         swap("'<u2'", "None"),
		`type "<"`:                                   swap("<u2", "<"),
		`type "<u0"`:                                 swap("<u2", "<u0"),
		`type "<u+2"`:                                swap("<u2", "<u+2"),
		`type "<u02"`:                                swap("<u2", "<u02"),
		`type "<u0000`:                               swap("<u2", "<u"+strings.Repeat("0", 60_000)+"2"),
		`type "<q2"`:                                 swap("<u2", "<q2"),
		`type "u2" has no byte order`:                swap("<u2", "u2"),
		"its end is expected":                        header(1, good+"x"),
		"the end of the type is expected":            swap("'<u2'", "[('a'"),
		"the end of a text is expected":              swap("'<u2'", `['a\'`),
		"its header has 66 bytes instead of 67":      header(1, good)[:66],
		"dimension":                                  swap("3", strings.Repeat("1, ", 65)),
	} {
		if _, err := Parse(content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

// TestAppendHeader: a header can be parsed, and arrays begin at multiples of 64 bytes.
func TestAppendHeader(t *testing.T) {
	for _, shape := range [][]int64{{}, {0}, {2048}, {1 << 40, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1 << 62}} {
		head := AppendHeader([]byte("x"), "<u2", shape...)[1:]
		h, err := Parse(head)
		if err != nil || len(head)%64 != 0 || !slices.Equal(h.Shape, shape) || h.Kind != 'u' || h.Size != 2 || h.Fortran {
			t.Errorf("%v: %q: %+v %v", shape, head, h, err)
		}
	}
}

// FuzzParse: no header causes a panic; an accepted one can be written and parsed again.
func FuzzParse(f *testing.F) {
	f.Add(header(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n"))
	f.Add(header(3, "{'descr': [('é', '<i4')], 'fortran_order': True, 'shape': (2L, 3)}"))
	f.Add(AppendHeader(nil, "|u1", int64(7)))
	f.Fuzz(func(t *testing.T, content []byte) {
		n, err := HeaderLen(content[:min(Lead, len(content))])
		if err != nil || n > int64(len(content)) {
			return
		}
		h, err := Parse(content[:n])
		if err != nil {
			return
		}
		if h.Size < 0 || h.Size > 64 || len(h.Shape) > maxDims || slices.ContainsFunc(h.Shape, func(d int64) bool { return d < 0 }) {
			t.Fatalf("%+v", h)
		}
		if strings.ContainsAny(h.Descr, "'\"\\\n") || bytes.ContainsAny([]byte(h.Descr), "[(") {
			return
		}
		back, err := Parse(AppendHeader(nil, h.Descr, h.Shape...))
		if err != nil || back.Descr != h.Descr || !slices.Equal(back.Shape, h.Shape) {
			t.Fatalf("%+v came back as %+v, %v", h, back, err)
		}
	})
}

func TestHalf(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint16]float64{0: 0, 1: 0x1p-24, 0x3ff: 0x3ffp-24, 0x400: 0x1p-14, 0x3c00: 1, 0xc100: -2.5, 0x7bff: 65504, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := Half(bits); got != want {
			t.Errorf("%#x: %v, want %v", bits, got, want)
		}
	}
	if !math.IsNaN(Half(0x7e00)) {
		t.Error("no NaN")
	}
}
