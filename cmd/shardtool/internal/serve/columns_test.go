package serve

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer"
)

func mustJSON(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// npyFile is a file as numpy 2 writes it.
func npyFile(descr, shape string, data []byte) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	for (10+len(header)+1)%64 != 0 {
		header += " "
	}
	header += "\n"
	out := append([]byte(npy.Magic), 1, 0, byte(len(header)), byte(len(header)>>8))
	return append(append(out, header...), data...)
}

// columnsOf reads one batch of all samples with one column.
func columnsOf(t *testing.T, n int, column, tail string, fields func(i int) []writer.Field) got {
	t.Helper()
	c := dial(t, pack(t, n, fields))
	c.info()
	c.start(1, fmt.Sprintf(`{"batch_size":%d,"tail":%q,"columns":[%s]}`, n+len(tail)-len("short"), tail, column))
	g := c.batch()
	c.end()
	return g
}

func TestColumns(t *testing.T) {
	one := func(name string, data func(i int) []byte) func(i int) []writer.Field {
		return func(i int) []writer.Field { return []writer.Field{{Name: name, Data: data(i)}} }
	}
	rows := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 12) }
	many := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 4*i) }
	none := func(int) []byte { return nil }
	for _, c := range []struct {
		name, column string
		data         func(i int) []byte
		kind, flags  uint16
		typ          *arrayType
		want         func(i int) []byte // payload; data where nil
	}{
		{name: "bytes", column: `{"name":"x","decode":"bytes"}`, data: many},
		{name: "bytes of one size", column: `{"name":"x","decode":"bytes"}`, data: rows, flags: columnFixed},
		{name: "empty", column: `{"name":"x","decode":"bytes"}`, data: none, flags: columnFixed},
		{name: "optional", column: `{"name":"y","decode":"bytes","optional":true}`, data: rows, flags: columnAbsent, want: none},
		{name: "array", column: `{"name":"x","decode":"array","dtype":"<i4","item_size":4,"shape":[3]}`, data: rows, kind: columnArray, flags: columnFixed,
			typ: &arrayType{"<i4", []int{3}, false}},
		{name: "array of nothing", column: `{"name":"x","decode":"array","dtype":"<i4","item_size":4,"shape":[3,0]}`, data: none, kind: columnArray, flags: columnFixed,
			typ: &arrayType{"<i4", []int{3, 0}, false}},
		{name: "arrays", column: `{"name":"x","decode":"array","dtype":"<i4","item_size":4,"shape":[-1]}`, data: many, kind: columnArrays,
			typ: &arrayType{"<i4", []int{-1}, false}},
		{name: "int", column: `{"name":"x","decode":"int"}`, data: func(i int) []byte { return fmt.Appendf(nil, " %d\n", i-3) }, kind: columnArray, flags: columnFixed,
			typ: &arrayType{"<i8", []int{}, false}, want: func(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i-3)) }},
		{name: "float", column: `{"name":"x","decode":"float"}`, data: func(i int) []byte { return fmt.Appendf(nil, "%de-1", i) }, kind: columnArray, flags: columnFixed,
			typ: &arrayType{"<f8", []int{}, false}, want: func(i int) []byte {
				return binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(i)/10))
			}},
		{name: "npy", column: `{"name":"x","decode":"npy"}`, data: func(i int) []byte { return npyFile("<f4", "(3,)", rows(i)) }, kind: columnArray, flags: columnFixed,
			typ: &arrayType{"<f4", []int{3}, false}, want: rows},
		{name: "npy of differing shapes", column: `{"name":"x","decode":"npy"}`, data: func(i int) []byte { return npyFile("<f4", fmt.Sprintf("(%d,)", i), many(i)) }, kind: columnNpy},
		{name: "npy of structures", column: `{"name":"x","decode":"npy"}`, data: func(i int) []byte {
			return bytes.Replace(npyFile("<f4", "(3,)", rows(i)), []byte("'<f4'"), []byte("[  ] "), 1)
		}, kind: columnNpy},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := columnsOf(t, 9, c.column, "short", one("x", c.data))
			col := g.columns[0]
			var typ *arrayType
			if col.typ != "" {
				mustJSON(t, []byte(col.typ), &typ)
			}
			if col.kind != c.kind || col.flags != c.flags || !reflect.DeepEqual(typ, c.typ) {
				t.Fatalf("kind %d, flags %d, type %s", col.kind, col.flags, col.typ)
			}
			if c.want == nil {
				c.want = c.data
			}
			var whole []byte
			for i, got := range col.payloads {
				want := c.want(i)
				if !bytes.Equal(got, want) || (got == nil) != (c.flags == columnAbsent) {
					t.Fatalf("sample %d: % x, want % x", i, got, want)
				}
				whole = append(whole, want...)
			}
			if col.flags&columnFixed != 0 && (!bytes.Equal(col.data, whole) || int(col.stride)*9 != len(whole)) {
				t.Fatalf("the data is no array of stride %d: % x", col.stride, col.data)
			}
		})
	}
}

// TestPaddingColumns: padding repeats samples, in arrays and elsewhere.
func TestPaddingColumns(t *testing.T) {
	store := pack(t, 10, func(i int) []writer.Field {
		return []writer.Field{{Name: "n.npy", Data: npyFile("|u1", "(5,)", bytes.Repeat([]byte{9}, 5))}, {Name: "x", Data: bytes.Repeat([]byte{7}, 8)}}
	})
	c := dial(t, store)
	c.info()
	c.start(1, `{"batch_size":4,"tail":"pad","prefetch":0,"columns":[{"name":"x","decode":"array","dtype":"<i8","item_size":8,"shape":[]},{"name":"x.","decode":"bytes","optional":true},{"name":"n.npy","decode":"npy"}]}`)
	for i := range uint64(3) {
		c.ask(1, i)
		g := c.batch()
		if i == 2 {
			want := bytes.Repeat([]byte{7}, 32)
			if x := g.columns[0]; !bytes.Equal(x.data, want) || x.payloads[3] == nil || x.flags != columnFixed {
				t.Errorf("x: % x, flags %d", x.data, x.flags)
			}
			want = bytes.Repeat([]byte{9}, 20)
			if n := g.columns[2]; !bytes.Equal(n.data, want) || n.payloads[3] == nil || n.kind != columnArray {
				t.Errorf("n.npy: % x", n.data)
			}
		}
		c.release(&g.frame)
	}
	c.end()
}

// TestDecodeErrors: a payload that is not as declared names sample and field.
func TestDecodeErrors(t *testing.T) {
	good := npyFile("<f4", "(3,)", make([]byte, 12))
	for _, c := range []struct {
		column string
		bad    []byte
		want   string
	}{
		{`{"name":"x","decode":"int"}`, []byte("1.5"), `"1.5" is not a whole number`},
		{`{"name":"x","decode":"int"}`, []byte(strings.Repeat("9", 50)), "is not a whole number"},
		{`{"name":"x","decode":"float"}`, []byte("one"), `"one" is no number`},
		{`{"name":"x","decode":"array","dtype":"<i4","item_size":4,"shape":[3]}`, []byte("1"), "shape [3] has 12"},
		{`{"name":"x","decode":"array","dtype":"<i4","item_size":4,"shape":[-1]}`, []byte("1"), "items of 4"},
		{`{"name":"x","decode":"npy"}`, []byte("text"), "it is not an .npy file"},
		{`{"name":"x","decode":"npy"}`, good[:50], "is truncated: it has 50"},
		{`{"name":"x","decode":"npy"}`, good[:len(good)-1], "11 bytes of data, its header says 12"},
		{`{"name":"x","decode":"npy"}`, append(bytes.Clone(good), 0), "13 bytes of data"},
	} {
		store := pack(t, 5, func(i int) []writer.Field {
			data := good
			switch {
			case i == 3:
				data = c.bad
			case strings.Contains(c.column, "npy"):
			case strings.Contains(c.column, "array"):
				data = make([]byte, 12)
			default:
				data = []byte("1")
			}
			return []writer.Field{{Name: "x", Data: data}}
		})
		cl := dial(t, store)
		cl.info()
		cl.start(1, `{"batch_size":5,"columns":[`+c.column+`]}`)
		cl.ask(1, 0)
		if p := cl.wantError(kindStart, 1, "decode", codeFailed); p.Key != "s/0003" || p.Field != "x" || p.Shard == "" || p.Block == nil || *p.Block != 0 || !strings.Contains(p.Message, c.want) {
			t.Errorf("%s: %+v, want %q", c.column, p, c.want)
		}
		cl.end()
	}
}
