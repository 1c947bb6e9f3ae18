package lines

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// TestMembers: the fields that members become.
func TestMembers(t *testing.T) {
	t.Parallel()
	const i8, f8 = "{'descr': '<i8', 'fortran_order': False, 'shape': ", "{'descr': '<f8', 'fortran_order': False, 'shape': "
	for line, want := range map[string]string{
		`{"text": "a b"}`: "text.txt=a b",
		`{"text": ""}`:    "text.txt=",
		`{"t":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"}`: "t.txt=\"\\/\b\f\n\r\té😀\x00",
		`{"t":"é😀"}`:                                         "t.txt=é😀",
		`{"\u006eame":"x"}`:                                  "name.txt=x",
		`{"n":-12,"label":3,"labels":"a"}`:                   "label.cls=3 | labels.txt=a | n.txt=-12",
		`{"n":123456789012345678901234567890}`:               "n.txt=123456789012345678901234567890",
		`{"f":1.50,"g":1e5,"label":2.0}`:                     "f.txt=1.50 | g.txt=1e5 | label.txt=2.0",
		`{"a":true,"b":false,"c":null}`:                      "a.txt=true | b.txt=false",
		`{"meta" : {"a": [1, {}], "b": null} }`:              `meta.json={"a": [1, {}], "b": null}`,
		`{"v":[1,2,-3]}`:                                     "v.npy=" + i8 + "(3,), } 01000000000000000200000000000000fdffffffffffffff",
		`{"v":[[1,2],[3,4],[5,6]],"a":1}`:                    "a.txt=1 | v.npy=" + i8 + "(3, 2), } 010000000000000002000000000000000300000000000000040000000000000005000000000000000600000000000000",
		`{"v":[1, 0.5]}`:                                     "v.npy=" + f8 + "(2,), } 000000000000f03f000000000000e03f",
		`{"v":[9223372036854775807]}`:                        "v.npy=" + i8 + "(1,), } ffffffffffffff7f",
		`{"v":[true,false]}`:                                 "v.npy={'descr': '|b1', 'fortran_order': False, 'shape': (2,), } 0100",
		`{"v":[9223372036854775808]}`:                        "v.json=[9223372036854775808]",
		`{"v":[1,true]}`:                                     "v.json=[1,true]",
		`{"v":[1e999,1.5]}`:                                  "v.json=[1e999,1.5]",
		`{"v":[]}`:                                           "v.json=[]",
		`{"v":[[],[]]}`:                                      "v.json=[[],[]]",
		`{"v":[[1],[2,3]]}`:                                  "v.json=[[1],[2,3]]",
		`{"v":[[1],2]}`:                                      "v.json=[[1],2]",
		`{"v":[1,[2]]}`:                                      "v.json=[1,[2]]",
		`{"v":[[[1]],[2]]}`:                                  "v.json=[[[1]],[2]]",
		`{"v":[[1],[]]}`:                                     "v.json=[[1],[]]",
		`{"v":[9007199254740993,0.5]}`:                       "v.json=[9007199254740993,0.5]",
		`{"v":[-9007199254740992,0.5]}`:                      "v.npy=" + f8 + "(2,), } 00000000000040c3000000000000e03f",
		`{"v":[1,null]}`:                                     "v.json=[1,null]",
		`{"v":["a", "b\n"]}`:                                 `v.json=["a", "b\n"]`,
		`{"v":[{"a":1}]}`:                                    `v.json=[{"a":1}]`,
		`{"image.jpg":"x","json":{"a":1},"txt":"y","cls":7}`: `cls=7 | image.jpg=x | json={"a":1} | txt=y`,
		`{"vec.npy":[[1],[2,3]],"npy":[1,"a"]}`:              `json=[1,"a"] | vec.json=[[1],[2,3]]`,
		"  {\"a\":1}\t\r":                                    "a.txt=1",
		`{"j":{"s":"\ud800","a":1,"a":2}}`:                   `j.json={"s":"\ud800","a":1,"a":2}`,
	} {
		got := all(t, open(t, Options{}, given(t, "d/x.jsonl", line)))
		same(t, got, []string{"x/000000000 | " + want})
	}
}

// TestBadLines: an error names its line, and the lines around it are samples.
func TestBadLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"a":1`:                       "corrupt data: at byte 8 of the line: the line ends where a comma or } is expected: it is truncated",
		`{"a":"b`:                      "at byte 8 … the line ends inside a string",
		`{"a"`:                         "the line ends where a colon",
		`{"a":`:                        "the line ends where a value",
		`{`:                            "the line ends where a member's name",
		`{"a":{"b":[1,{"c":2`:          "the line ends where a comma or }",
		`{"a":1}}`:                     "text follows the object",
		`{"a":1} {"a":2}`:              "text follows the object",
		`[1]`:                          "begins with '[' … end in .json",
		`"a"`:                          `begins with '"'`,
		`{"a":NaN}`:                    "JSON has no NaN and Infinity",
		`{"a":-Infinity}`:              "JSON has no NaN and Infinity",
		`{"a":[1,]}`:                   "']' found where a value",
		`{"a":1,}`:                     "'}' found where a member's name",
		`{a:1}`:                        "'a' found where a member's name",
		`{'a':1}`:                      `'\'' found where`,
		`{"a":01}`:                     "a number begins with 0",
		`{"a":1.}`:                     "a digit after the point",
		`{"a":1e}`:                     "a digit of the exponent",
		`{"a":+1}`:                     "'+' found where a value",
		`{"a":tru}`:                    "'t' found where a value",
		`{"a":"\x"}`:                   "a backslash does not begin",
		`{"a":"\u12g4"}`:               "a backslash does not begin",
		`{"a":"\ud800"}`:               `\ud800 is half of a surrogate pair`,
		`{"a":"x\udc00y"}`:             `at byte 8 of the line: \udc00 is half of`,
		`{"a":"\ud83dx"}`:              `\ud83d is half`,
		`{"a":"\ud83d\u0041"}`:         `\ud83d is half`,
		"{\"a\":\"tab\there\"}":        "a string has the control character 0x09",
		"{\"a\":\"\x00\"}":             "the control character 0x00",
		"{\"a\":\"\xff\"}":             "at byte 7 of the line: it is not UTF-8",
		"{\"a\":\"\xed\xa0\x80\"}":     "it is not UTF-8",
		`{"a":1,"a":2}`:                `at byte 8 of the line: the member "a" comes twice`,
		`{"a":1,"\u0061":2}`:           `the member "a" comes twice`,
		`{}`:                           "nothing to store",
		`{"a":null}`:                   "nothing to store",
		`{"":1}`:                       `column "" cannot be the name of a field`,
		`{"a/b":1}`:                    `"a/b" cannot be the name of a field … contains a slash): rename it, or take the other columns only`,
		`{"a":1 "b":2}`:                `'"' found where a comma or }`,
		strings.Repeat(`{"a":[`, 9000): "more than 10000 deep",
	} {
		got := all(t, open(t, Options{}, given(t, "x.jsonl", "{\"k\":1}\n\n"+line+"\n{\"k\":2}\n")))
		same(t, got, []string{"x/000000000 | k.txt=1", "! x.jsonl: line 3 … " + want, "x/000000003 | k.txt=2"})
	}
	var many strings.Builder
	for i := range maxColumns + 1 {
		fmt.Fprintf(&many, `,"%d":0`, i)
	}
	same(t, all(t, open(t, Options{}, given(t, "x.jsonl", "{"+many.String()[1:]+"}"))), []string{"! line 1: … more than 65536 members"})
}

// TestLineEnds: blank lines, a byte order mark, CRLF, and a last line without an end.
func TestLineEnds(t *testing.T) {
	t.Parallel()
	got := all(t, open(t, Options{}, given(t, "x.ndjson", "\xef\xbb\xbf{\"a\":1}\r\n\r\n  \n{\"a\":2}\n\n{\"a\":3}")))
	same(t, got, []string{"x/000000000 | a.txt=1", "x/000000003 | a.txt=2", "x/000000005 | a.txt=3"})
	same(t, all(t, open(t, Options{}, given(t, "x.jsonl", ""))), nil)
	same(t, all(t, open(t, Options{}, given(t, "x.jsonl", "\n\n"))), nil)
	_, err := some(t.Context(), open(t, Options{}, given(t, "x.jsonl", "\xff\xfe{\x00")), -1)
	if err == nil || !strings.Contains(err.Error(), "x.jsonl: corrupt data: it is UTF-16") {
		t.Error(err)
	}
}

// FuzzJSON compares what a line is accepted as with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, line := range []string{
		`{"a":1}`, `{"a":"b\u00e9\ud83d\ude00\n"}`, `{"a":[1,2.5e3,[true,null]],"b":{"c":[]}}`, `{"a":"` + strings.Repeat("x", 40) + `"}`, `{"a":-0.1e+5}`, ` { } `,
		`{"a":[[1,2],[3,4]]}`, `{"a":"\ud800"}`, `[1]`, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		p := newParser(&plan{opt: Options{MaxLine: 1 << 20}})
		c := &chunk{of: &textFile{}}
		p.begin(c)
		blank, err := p.jsonLine(c, line)
		var want map[string]json.RawMessage
		valid := json.Unmarshal(line, &want) == nil && utf8.Valid(line) && want != nil
		if blank {
			if valid || strings.TrimSpace(string(line)) != "" {
				t.Fatalf("%q is taken for blank", line)
			}
			return
		}
		if err != nil {
			if lone := strings.Contains(err.Error(), "half of a surrogate"); valid && !lone && !strings.Contains(err.Error(), "comes twice") {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		if !valid {
			t.Fatalf("%q is taken", line)
		}
		if len(p.Has) != len(want) {
			t.Fatalf("%q: %d members, want %d", line, len(p.Has), len(want))
		}
		for _, col := range p.Has {
			raw, ok := want[col.Name]
			if !ok {
				t.Fatalf("%q: no member %q", line, col.Name)
			}
			got := string(col.Cell.B)
			if col.Cell.Kind == rows.Text {
				var text string
				if err := json.Unmarshal(raw, &text); err != nil || text != got {
					t.Fatalf("%q: %q is %q, want %q (%v)", line, col.Name, got, text, err)
				}
			} else if got != string(raw) {
				t.Fatalf("%q: %q is %q, want %q", line, col.Name, got, raw)
			}
			if err := col.AddFields(&c.Samples); err == nil && col.Cell.Kind == rows.List && c.Fields[len(c.Fields)-1].Name == col.Name+".npy" {
				checkArray(t, raw, c.Fields[len(c.Fields)-1].Data)
			}
		}
	})
}

// checkArray compares the shape and the number of bytes with what encoding/json makes of a list.
func checkArray(t *testing.T, raw, npy []byte) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	shape, count := "", 1
	for l, ok := v.([]any); ok; l, ok = v.([]any) {
		shape += fmt.Sprintf("%d, ", len(l))
		count *= len(l)
		v = l[0]
	}
	if strings.Count(shape, ",") > 1 {
		shape = strings.TrimSuffix(shape, ", ")
	} else {
		shape = strings.TrimSuffix(shape, " ")
	}
	size := 8
	if _, is := v.(bool); is {
		size = 1
	}
	head, data, _ := strings.Cut(string(npy), "\n")
	if !strings.Contains(head, "("+shape+")") || len(data) != size*count {
		t.Fatalf("%s: %s and %d bytes, want shape (%s)", raw, head, len(data), shape)
	}
}

// TestTextLines: each line is a sample, empty lines included, and its key is the number of the
// line.
func TestTextLines(t *testing.T) {
	t.Parallel()
	want := []string{
		"a/000000000 | txt=one \"1\", {", "a/000000001 | txt=", "a/000000002 | txt= 2\t", "! a.txt: line 4: corrupt data: it is not UTF-8", "a/000000004 | txt=5",
		"b/000000000 | txt=\r", "c.log/000000000 | txt=x",
	}
	files := []string{"a.txt", "\xef\xbb\xbfone \"1\", {\n\n 2\t\r\n\xff\n5", "b.txt.gz", "\r\r\n", "c.log", "x\n", "empty.txt", ""}
	want[6] = "c/000000000 | txt=x"
	for _, chunk := range []int{1, 3, 1000} {
		opt := Options{TextLines: true, chunk: chunk}
		same(t, all(t, open(t, opt, given(t, files...))), want)
		for n := range want { // continue at any row
			in := given(t, files...)
			src := open(t, opt, in)
			if _, err := some(t.Context(), src, n); err != nil {
				t.Fatal(err)
			}
			again := open(t, opt, in)
			if err := again.Seek(t.Context(), src.Cursor()); err != nil {
				t.Fatal(err)
			}
			same(t, all(t, again), want[n:])
		}
		var parts []string
		for part := range 3 {
			src := open(t, opt, given(t, files...))
			if err := src.Split(part, 3); err != nil {
				t.Fatal(err)
			}
			parts = append(parts, all(t, src)...)
		}
		same(t, parts, want)
	}
	opt := Options{TextLines: true, Where: []string{"txt != ''"}, Rename: map[string]string{"txt": "text"}}
	same(t, all(t, open(t, opt, given(t, "a.jsonl", "x\n\ny\n"))), []string{"a/000000000 | text.txt=x", "a/000000002 | text.txt=y"})
	if _, err := New(t.Context(), given(t, "a.txt", "x"), Options{TextLines: true, Key: "id"}); err == nil || !strings.Contains(err.Error(), `no column "id"; it has: txt`) {
		t.Error(err)
	}
}

// TestAllowNaN: numbers that JSON lacks, as Python writes them.
func TestAllowNaN(t *testing.T) {
	t.Parallel()
	text := `{"a":NaN,"b":[1,-Infinity],"c":{"d":[Infinity]}}` + "\n" + `{"a":-Infinity,"b":[[NaN]]}` + "\n" + `{"a":Nan}` + "\n" + `{"a":NaNs}` + "\n" + `{"a":1,"b":[1e999]}`
	got := all(t, open(t, Options{AllowNaN: true, Attrs: map[string]string{"a": "a"}, Where: []string{"not a > 0 or a = 1"}}, given(t, "x.jsonl", text)))
	same(t, got, []string{
		"x/000000000 | a.txt=NaN | b.npy={'descr': '<f8', 'fortran_order': False, 'shape': (2,), } 000000000000f03f000000000000f0ff | c.json={\"d\":[Infinity]} | @a=NaN.",
		"x/000000001 | a.txt=-Infinity | b.npy={'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), } 010000000000f87f | @a=-Inf.",
		"! line 3: … JSON has no NaN and Infinity", "! line 4: … a comma or } is expected", "x/000000004 | a.txt=1 | b.json=[1e999] | @a=1.",
	})
	for _, text := range []string{`{"a":NaN}`, `{"a":[-Infinity]}`, `{"a":{"b":Infinity}}`} {
		_, err := open(t, Options{}, given(t, "x.jsonl", text)).Next(t.Context())
		if err == nil || len(hint.Of(err)) != 1 || hint.Of(err)[0].Option != "allow-nan" {
			t.Errorf("%s: %v, hints %v", text, err, hint.Of(err))
		}
	}
}

// TestManyLines: an object over many lines is called so, and a line that is cut off is not.
func TestManyLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"{\n \"a\": 1\n}\n": true, "{\"a\": [\r\n1]}": true, "{\"a\":1,\n": true, "{\"a\": 1": false, "{\"a\"\n": false} {
		for _, name := range []string{"x.jsonl", "x.json"} {
			_, err := open(t, Options{}, given(t, name, text)).Next(t.Context())
			if err == nil || strings.Contains(err.Error(), "the object goes on in the next line") != want {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
