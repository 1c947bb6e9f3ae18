package serve

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
)

func TestParseNpy(t *testing.T) {
	for _, c := range []struct {
		header string
		want   arrayType
		size   int
		plain  bool
		bad    bool
	}{
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 224, 224), }   \n", want: arrayType{"<f4", []int{3, 224, 224}, false}, size: 602112, plain: true},
		{header: "{'descr': '|u1', 'fortran_order': True, 'shape': (), }", want: arrayType{"|u1", []int{}, true}, size: 1, plain: true},
		{header: `{"shape":(7L,),"descr":"<U3","fortran_order":False}`, want: arrayType{"<U3", []int{7}, false}, size: 84, plain: true},
		{header: "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 9)}", want: arrayType{"<i8", []int{0, 9}, false}, size: 0, plain: true},
		{header: "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"},
		{header: "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }"},
		{header: "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }"},
		{header: "", bad: true},
		{header: "{}", bad: true},
		{header: "{'descr': '<f4', 'shape': (3,)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (3 3)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} + 1", bad: true},
		{header: "{'descr': '<f\\4', 'fortran_order': False, 'shape': (3,)}", bad: true},
		{header: "{'descr': '<f4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 65) + ")}", bad: true},
		{header: "{'other': '<f4', 'fortran_order': False, 'shape': (3,)}", bad: true},
	} {
		got, size, plain, err := parseNpy(slices.Concat([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(c.header))), []byte(c.header)))
		if (err != nil) != c.bad || plain != c.plain || size != c.size || plain && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %d bytes, plain %v, %v", c.header, got, size, plain, err)
		}
	}
}

func FuzzNpy(f *testing.F) {
	f.Add([]byte("\x93NUMPY\x01\x00\x0a\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"))
	f.Add([]byte("\x93NUMPY\x02\x00\x36\x00\x00\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"))
	f.Add([]byte("\x93NUMPY\x03\x00\xff\xff\xff\xff{"))
	f.Fuzz(func(t *testing.T, file []byte) {
		header, data, err := npy.Cut(file, int64(len(file)))
		if err != nil {
			return
		}
		if len(header)+len(data) > len(file) {
			t.Fatalf("%d and %d bytes of %d", len(header), len(data), len(file))
		}
		kind, size, plain, err := parseNpy(header)
		if err == nil && plain && (size < 0 || kind.Shape == nil) {
			t.Fatalf("%+v has %d bytes", kind, size)
		}
	})
}
