package reshard

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// TestShare: shares divide the samples without gap or overlap, by the documented hash, whatever
// other keys there are.
func TestShare(t *testing.T) {
	samples := some("a", 1000)
	d := open(t, pack(t, samples, small), reader.Options{})
	keys := func(text, salt string, folders bool) []string {
		t.Helper()
		s, err := ParseShare(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Salt, s.Folders = salt, folders
		got, _ := drain(t, source(t, Options{Share: s}, d))
		return keysOf(got)
	}
	for _, salt := range []string{"", "again"} {
		for _, folders := range []bool{false, true} {
			train, val, test := keys("0%..80%", salt, folders), keys("80%..90.5%", salt, folders), keys("90.5%..100%", salt, folders)
			all := slices.Concat(train, val, test)
			slices.Sort(all)
			if !slices.Equal(all, slices.Sorted(slices.Values(keysOf(samples)))) {
				t.Errorf("salt %q, folders %v: %d, %d and %d are not the whole", salt, folders, len(train), len(val), len(test))
			}
			for _, key := range all {
				name := key
				if folders {
					name = key[:strings.LastIndex(key, "/")]
				}
				sum := sha256.Sum256([]byte(salt + name))
				at := new(big.Rat).SetFrac(new(big.Int).SetUint64(binary.BigEndian.Uint64(sum[:])), new(big.Int).Lsh(big.NewInt(1), 64))
				want := at.Cmp(big.NewRat(8, 10)) < 0
				if slices.Contains(train, key) != want {
					t.Errorf("%q is at %s", key, at.FloatString(6))
				}
			}
			if n := len(train); !folders && (n < 760 || n > 840) {
				t.Errorf("80%% are %d of 1000", n)
			}
		}
	}
	if slices.Equal(keys("0%..50%", "", false), keys("0%..50%", "again", false)) {
		t.Error("the salt changes nothing")
	}
	more := open(t, pack(t, some("a", 1500), small), reader.Options{})
	s, _ := ParseShare("0%..50%")
	got, _ := drain(t, source(t, Options{Share: s}, more))
	if before := keys("0%..50%", "", false); !slices.Equal(keysOf(got)[:len(before)], before) {
		t.Error("samples that came later moved others")
	}
	for text, want := range map[string]string{"0%..90%": "0%..90%", "0.000000001%..12.50%": "0.000000001%..12.5%", "0%..100%": "0%..100%", "099%..100.0%": "99%..100%"} {
		if s, err := ParseShare(text); err != nil || s.String() != want {
			t.Errorf("%q is %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "90%", "0..90%", "0%..90", "90%..10%", "5%..5%", "0%..100.1%", "-1%..5%", "0%..1.0000000001%", "a%..b%", "0%...5%", "+1%..2%", "1e1%..20%", "%..%"} {
		if s, err := ParseShare(text); err == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
}

// TestFilters: conditions, globs and fields choose the documented samples.
func TestFilters(t *testing.T) {
	samples := some("a", 200)
	b := some("b", 30)
	for i := range b {
		b[i].Attrs = nil
	}
	da, db := open(t, pack(t, samples, small), reader.Options{}), open(t, pack(t, b, small), reader.Options{})
	all := slices.Concat(samples, b)
	attr := func(s *writer.Sample, name string) *format.AttrValue {
		for i := range s.Attrs {
			if s.Attrs[i].Name == name {
				return &s.Attrs[i]
			}
		}
		return nil
	}
	for text, want := range map[string]func(s *writer.Sample) bool{
		"label=cat":     func(s *writer.Sample) bool { v := attr(s, "label"); return v != nil && v.Label == "cat" },
		"label!='cat'":  func(s *writer.Sample) bool { v := attr(s, "label"); return v != nil && v.Label != "cat" },
		"label is null": func(s *writer.Sample) bool { return attr(s, "label") == nil },
		"x is not null": func(s *writer.Sample) bool { return attr(s, "x") != nil },
		"n>=-3":         func(s *writer.Sample) bool { v := attr(s, "n"); return v != nil && v.Integer >= -3 },
		"n<0.5":         func(s *writer.Sample) bool { v := attr(s, "n"); return v != nil && v.Integer <= 0 },
		"x>12.25":       func(s *writer.Sample) bool { v := attr(s, "x"); return v != nil && v.Number > 12.25 },
		"not x>12.25":   func(s *writer.Sample) bool { v := attr(s, "x"); return v != nil && !(v.Number > 12.25) },
		"x=NaN":         func(*writer.Sample) bool { return false },
		"n < 0 and not label = cat or x > 12.25": func(s *writer.Sample) bool {
			n, label, x := attr(s, "n"), attr(s, "label"), attr(s, "x")
			return n != nil && n.Integer < 0 && label != nil && label.Label != "cat" || x != nil && x.Number > 12.25
		},
		"n=1000":          func(*writer.Sample) bool { return false },
		"n<0&label is ok": nil,
	} {
		opt := Options{Where: strings.Split(text, "&")}
		if want == nil {
			opt.Where = []string{"n<0", "label=dog"}
			want = func(s *writer.Sample) bool {
				return attr(s, "n") != nil && attr(s, "n").Integer < 0 && attr(s, "label") != nil && attr(s, "label").Label == "dog"
			}
		}
		var wanted []writer.Sample
		for _, s := range all {
			if want(&s) {
				wanted = append(wanted, s)
			}
		}
		src := source(t, opt, da, db)
		if n, size := src.Total(); n != 0 || size != 0 {
			t.Errorf("%s: a total of %d samples, %d bytes is told", text, n, size)
		}
		got, _ := drain(t, src)
		same(t, got, wanted)
	}
	globs := source(t, Options{Include: []string{"a/1/*", "0000?"}, Exclude: []string{"*7"}}, da, db)
	got, _ := drain(t, globs)
	var wanted []string
	for _, s := range all {
		if (strings.HasPrefix(s.Key, "a/1/") || strings.Contains(s.Key, "/0000")) && !strings.HasSuffix(s.Key, "7") {
			wanted = append(wanted, s.Key)
		}
	}
	if !slices.Equal(keysOf(got), wanted) {
		t.Errorf("globs take %q, want %q", keysOf(got), wanted)
	}
	got, failed := drain(t, source(t, Options{Fields: []string{"jpg"}, Rename: map[string]string{"jpg": "image.jpg"}}, da))
	lacking := 0
	for _, s := range samples {
		if len(s.Fields) == 1 {
			lacking++
		}
	}
	if len(failed) != lacking || len(got) != len(samples)-lacking {
		t.Errorf("%d samples, %d without the field; want %d", len(got), len(failed), lacking)
	}
	for _, s := range got {
		if len(s.Fields) != 1 || s.Fields[0].Name != "image.jpg" {
			t.Fatalf("%q has %v", s.Key, s.Fields)
		}
	}
	for want, opt := range map[string]Options{
		"there is no field":          {Fields: []string{"png"}},
		`rename: there is no field`:  {Rename: map[string]string{"png": "x"}},
		"would both be":              {Rename: map[string]string{"jpg": "txt"}},
		"contains a slash":           {Rename: map[string]string{"jpg": "a/b"}},
		"there is no attribute":      {Where: []string{"size>3"}},
		"compare it with a number":   {Where: []string{"n=many"}},
		"write a column":             {Where: []string{"n"}},
		"not a glob":                 {Include: []string{"["}},
		"exclude":                    {Exclude: []string{"["}},
		"give a rising range within": {Share: Share{From: 5, To: 5}},
	} {
		if _, err := New(t.Context(), []*reader.Dataset{da}, opt); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", opt, err, want)
		}
	}
	if _, err := New(t.Context(), []*reader.Dataset{db}, Options{Where: []string{"n=1"}}); err == nil || !strings.Contains(err.Error(), "no attributes") {
		t.Errorf("a condition without attributes: %v", err)
	}
}
