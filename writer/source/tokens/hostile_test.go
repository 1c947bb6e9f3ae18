package tokens_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// numpy is a file that NumPy itself wrote; see testdata/tokens/README.md.
func numpy(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../../testdata/tokens", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestNumpy: what NumPy writes is read, whatever version, type and order of bytes; what holds no
// token ids is refused with a reason.
func TestNumpy(t *testing.T) {
	plain := joined(whole(t, arrays(t, one(t, "x.npy", numpy(t, "uint16.npy")), tokens.Options{Length: 64})))
	if len(plain) != 1000 || plain[0] != 47488 {
		t.Fatal(len(plain), plain[0])
	}
	for name, n := range map[string]int{"int32-big.npy": 1000, "version2.npy": 50, "version3.npy": 50, "memmap.npy": 300, "rows-int64.npy": 320} {
		got := whole(t, arrays(t, one(t, name, numpy(t, name)), tokens.Options{}))
		if !slices.Equal(joined(got), plain[:n]) {
			t.Errorf("%s: %v", name, joined(got))
		}
	}
	for name, want := range map[string]string{
		"fortran.npy": "its rows are not contiguous (Fortran order): save np.ascontiguousarray(array)",
		"objects.npy": "its elements (|O) are Python objects, which are pickled code and never loaded, not token ids: save integers",
		"float.npy":   "its elements (<f8) are floating-point numbers, not token ids",
		"records.npy": "its elements ([('a', '<i4'), ('b', '<u2')]) are records, not token ids",
		"two.npy":     "136 bytes follow an array of shape (5,): save one array to a file",
	} {
		_, err := tokens.NewArrays(t.Context(), one(t, name, numpy(t, name)), tokens.Options{Length: 10})
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		_, skipped, err := all(t, join(t, &fixed{fields: []writer.Field{{Name: "npy", Data: numpy(t, name)}}}, tokens.JoinOptions{Length: 7}))
		if err != nil || len(skipped) != 1 || skipped[0].Key != "doc" {
			t.Errorf("%s: %v %v", name, skipped, err)
		}
	}
}

// TestLies: a header that does not fit its file is refused before memory of its size is allocated.
func TestLies(t *testing.T) {
	head := func(shape string) []byte { return file("<i8", shape, make([]byte, 16)) }
	huge := strings.Repeat("4294967296, ", 3)
	for what, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":              {nil, "it is not an .npy file"},
		"text":               {[]byte("1 2 3"), "it is not an .npy file"},
		"magic alone":        {[]byte("\x93NUMPY"), "less than any header"},
		"header cut":         {head("(2,)")[:40], "is truncated"},
		"header of 4 GiB":    {[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr"), "claims 4294967295 bytes"},
		"data cut":           {head("(2,)")[:136], "needs more than the 8 bytes in the file: it is cut off"},
		"more than int64":    {head("(" + huge + ")"), "needs more than"},
		"2^61 elements":      {head("(2305843009213693952,)"), "needs more than"},
		"bytes behind":       {head("(1,)"), "8 bytes follow an array"},
		"rows of nothing":    {file("<i8", "(4611686018427387904, 0)", nil), "rows are empty"},
		"a number":           {file("<i8", "()", make([]byte, 8)), "it is a single number"},
		"pickle in disguise": {file("|O", "(1,)", []byte("cos\nsystem\n(S'true'\ntR.")), "Python objects"},
	} {
		t.Run(what, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := tokens.NewArrays(t.Context(), one(t, "x.npy", c.content), tokens.Options{Length: 10})
			if err == nil || !strings.HasPrefix(err.Error(), "x.npy: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if valid := what == "a number" || what == "pickle in disguise" || what == "rows of nothing"; valid == errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%v: corrupt: %v", err, !valid)
			}
			for _, small := range []int64{0, 1 << 20} {
				j := join(t, &fixed{fields: []writer.Field{{Name: "npy", Payload: late(c.content), Size: int64(len(c.content))}}}, tokens.JoinOptions{Length: 7})
				tokens.Stream(j, small)
				got, skipped, err := all(t, j)
				if (err != nil || len(skipped) != 1 || len(got) != 0) && what != "rows of nothing" {
					t.Errorf("%v %v %v", got, skipped, err)
				}
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// TestLists: JSON lists of integers, and content that is none.
func TestLists(t *testing.T) {
	for text, want := range map[string]string{
		"[]": "[]", " [ ] \n": "[]", "[1]": "[1]", "[ 1 ,\t-2 ]\r\n": "[1 -2]", "[2147483647,-2147483648]": "[2147483647 -2147483648]", "[0,00]": "[0 0]",
		"":                      "it is empty",
		"  ":                    "is truncated",
		"[":                     "is truncated after 0 elements",
		"[1, 2":                 "is truncated after 2 elements",
		"[1, ":                  "is truncated after 1 elements",
		"[1, -":                 "is truncated after 1 elements",
		"{\"ids\": [1]}":        "it is a JSON object",
		"[1, null]":             `element 1 of the JSON list is not an integer, but 'n'`,
		"[1.5]":                 `element 0 of the JSON list is not an integer, but '.'`,
		"[1e3]":                 `not an integer, but 'e'`,
		"[[1]]":                 `not an integer, but '['`,
		"[\"1\"]":               `not an integer, but '"'`,
		"[1 2]":                 `element 1 of the JSON list is not an integer, but '2'`,
		"[1,]":                  `not an integer, but ']'`,
		"[,1]":                  `not an integer, but ','`,
		"[--1]":                 `not an integer, but '-'`,
		"[1] 2":                 "'2' follows the JSON list",
		"[1, 2147483648]":       "token 1 is 2147483648, which int32 has no room for",
		"[-2147483649]":         "token 0 is -2147483649, which int32",
		"[9223372036854775808]": "token 0 is 9223372036854775808…, which int32",
		"\xef\xbb\xbf[1]":       "not an integer",
	} {
		for _, stream := range []bool{false, true} {
			f := writer.Field{Name: "ids.json", Data: []byte(text)}
			if stream {
				f = writer.Field{Name: "ids.json", Payload: late(text), Size: int64(len(text))}
			}
			j := join(t, &fixed{fields: []writer.Field{f}}, tokens.JoinOptions{Length: 9})
			tokens.Stream(j, -1)
			got, skipped, err := all(t, j)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(want, "[") {
				if len(skipped) > 0 || fmt.Sprint(joined(got)) != want {
					t.Errorf("%q: %v %v", text, joined(got), skipped)
				}
			} else if len(skipped) != 1 || len(got) > 0 || !strings.Contains(skipped[0].Error(), want) {
				t.Errorf("%q: %v %v, want %q", text, got, skipped, want)
			}
		}
	}
}

// TestBadDocuments: a document with an id that does not fit is skipped as a whole, wherever the id
// is and however the document is read.
func TestBadDocuments(t *testing.T) {
	good := upTo(1, 300)
	bad := append(upTo(1, 250), 1<<40, 3)
	for _, small := range []int64{0, 1 << 20} {
		for _, form := range []int{0, 1} {
			src := &formed{documents: *newDocuments([]document{{key: "a", ids: good}, {key: "b", ids: bad}, {key: "c", ids: good}}), form: form}
			j := join(t, src, tokens.JoinOptions{Length: 64, Separator: []int64{0}, DType: tokens.Uint16})
			tokens.Stream(j, small)
			got, skipped, err := all(t, j)
			if err != nil || len(skipped) != 1 || skipped[0].Key != "b" || skipped[0].Row != 2 || !strings.Contains(skipped[0].Error(), "token 250 is 1099511627776, which uint16 has no room for") {
				t.Fatal(skipped, err)
			}
			want := append(append(append([]int64{}, good...), 0), append(good, 0)...)
			if !slices.Equal(joined(got), want) {
				t.Error(joined(got))
			}
		}
	}
	for _, key := range []string{"", "a.b", "/a", "a//b", strings.Repeat("a/", 3000) + "x"} {
		if key == "" {
			continue // the test's source has a default for it
		}
		_, skipped, err := all(t, join(t, &fixed{key: key, fields: []writer.Field{{Name: "json", Data: []byte("[1]")}}}, tokens.JoinOptions{Length: 1}))
		if err != nil || len(skipped) != 1 && !strings.HasPrefix(key, strings.Repeat("a/", 3000)) {
			t.Errorf("key %.40q: %v %v", key, skipped, err)
		}
	}
}

// formed gives all documents in one form, to be read later.
type formed struct {
	documents
	form int
}

func (f *formed) Next(ctx ctx) (writer.Sample, error) {
	s, err := f.documents.Next(ctx)
	if err != nil {
		return s, err
	}
	content, name := f.content(f.form, f.list[f.at-1].ids)
	s.Fields = []writer.Field{{Name: name, Payload: late(content), Size: int64(len(content))}}
	return s, nil
}

// TestTorn: a document that fails after tokens of it were used ends the source, and the error
// explains why it cannot be skipped.
func TestTorn(t *testing.T) {
	content := file("<u2", "(300,)", ids16(upTo(0, 300)...))
	j := join(t, &fixed{fields: []writer.Field{{Name: "npy", Payload: torn{late(content)}, Size: int64(len(content))}}}, tokens.JoinOptions{Length: 50})
	tokens.Stream(j, 0)
	got, skipped, err := all(t, j)
	if !errors.Is(err, errTorn) || len(skipped) > 0 || len(got) != 3 || !strings.Contains(err.Error(), `document "doc", at token 150 of 300`) {
		t.Fatal(len(got), skipped, err)
	}
	if _, again := j.Next(t.Context()); again == nil || again.Error() != err.Error() {
		t.Error("the error does not stick")
	}
}

// FuzzArrays: no file causes a panic, a hang or a large allocation; an accepted file gives as many
// tokens as it declares, alone and joined.
func FuzzArrays(f *testing.F) {
	for _, name := range []string{"uint16.npy", "rows-int64.npy", "version3.npy", "objects.npy", "records.npy", "fortran.npy", "two.npy"} {
		f.Add(numpy(f, name), int64(7))
	}
	f.Add([]byte("[1, 2, -3]"), int64(1))
	f.Add(file("<i8", "(2305843009213693952,)", nil), int64(3))
	f.Fuzz(func(t *testing.T, content []byte, length int64) {
		if len(content) > 1<<16 {
			return
		}
		if src, err := tokens.NewArrays(t.Context(), one(t, "x.npy", content), tokens.Options{Length: length}); err == nil {
			if sum := src; sum.Tokens > int64(len(content)) {
				t.Fatalf("%+v of %d bytes", sum, len(content))
			}
			if got := int64(len(joined(whole(t, src)))); got != src.Tokens {
				t.Fatalf("%d tokens of %+v", got, src)
			}
		}
		for _, small := range []int64{-1, 1 << 20} {
			j, err := tokens.NewJoin(&fixed{fields: []writer.Field{{Name: "npy", Payload: late(content), Size: int64(len(content))}}}, tokens.JoinOptions{Length: length, DType: tokens.Int64})
			if err != nil {
				return
			}
			tokens.Stream(j, small)
			got, skipped, err := all(t, j)
			if err != nil || len(got) > 0 && len(skipped) > 0 || len(joined(got)) > len(content) {
				t.Fatal(got, skipped, err)
			}
		}
	})
}
