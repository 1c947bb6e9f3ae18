package writer_test

import (
	"maps"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// stating is a source that states the kinds of its fields.
type stating struct {
	*synth
	kinds    kinds.Kinds
	features string
}

func (s *stating) Meta() format.Metadata {
	meta := format.Metadata{}
	if s.kinds != nil {
		meta = s.kinds.Meta()
	}
	if s.features != "" {
		meta[kinds.FeaturesKey] = s.features
	}
	return meta
}

// TestTypes: a generation that appends changes the type of a field to one that decodes all its
// samples, and gives none to a field that had none.
func TestTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, second kinds.Kinds
		want          map[string]string
	}{
		{kinds.Kinds{"bin": "int", "other": "txt"}, kinds.Kinds{"bin": "int"}, map[string]string{"bin": "int"}},
		{kinds.Kinds{"bin": "int"}, kinds.Kinds{"bin": "txt", "Atxt": "json"}, map[string]string{"bin": "txt", "Atxt": "json"}},
		{kinds.Kinds{"bin": "npy"}, kinds.Kinds{"bin": "txt"}, map[string]string{"bin": "bytes"}},
		{kinds.Kinds{"bin": "npy"}, kinds.Kinds{}, nil},
		{nil, kinds.Kinds{"bin": "txt", "Atxt": "json"}, map[string]string{"Atxt": "json"}},
		{nil, kinds.Kinds{"bin": "txt"}, nil},
	} {
		st := mem.New()
		for i, stated := range []kinds.Kinds{c.first, c.second} {
			items := []item{{key: "a", size: 5}}
			opt := writer.Options{Name: "d"}
			if i == 1 {
				items[0].key, items[0].inline, opt.Mode = "b", "x", writer.ModeAppend
			}
			if _, err := writer.Pack(t.Context(), st, &stating{&synth{items: items}, stated, ""}, opt); err != nil {
				t.Fatal(err)
			}
		}
		got, _, err := writer.Types(t.Context(), st)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%v, then %v: %v, %v; want %v", c.first, c.second, got, err, c.want)
		}
	}
}

// TestFeatures: features are kept of the fields that there are, by their names or those before
// their extensions. A generation that appends keeps the ones that all samples have.
func TestFeatures(t *testing.T) {
	t.Parallel()
	const text, number = `{"_type":"Value","dtype":"string"}`, `{"_type":"Value","dtype":"int8"}`
	for _, c := range []struct {
		first, second string
		parts         int
		want          string
	}{
		{`{"bin":` + text + `,"other":` + text + `}`, `{"bin":` + text + `}`, 0, `{"bin":` + text + `}`},
		{`{"bin":` + text + `}`, `{"bin":` + number + `,"Atxt":` + number + `}`, 0, `{"Atxt":` + number + `}`},
		{`{"bin":` + text + `}`, "", 0, ""},
		{"", `{"bin":` + text + `}`, 0, ""},
		{"{", `{"Atxt":` + text, 0, ""},
		{`{".*":` + number + `,"Atxt":` + text + `}`, `{".*":` + number + `}`, 0, `{"Atxt":` + number + `,"bin":` + number + `}`},
		{`{".*":` + number + `}`, "", 2, `{"Atxt":` + number + `,"bin":` + number + `}`},
	} {
		st := mem.New()
		for i, stated := range []string{c.first, c.second} {
			items := []item{{key: "a", size: 5}}
			opt := writer.Options{Name: "d"}
			if i == 1 {
				items[0].key, items[0].inline, opt.Mode = "b", "x", writer.ModeAppend
			}
			if c.parts > 0 { // of which the second has the field Atxt
				src := &synth{items: []item{{key: "a", size: 5}, {key: "b", inline: "x"}}}
				mustPart(t, st, &stating{src, nil, c.first}, i, c.parts, writer.Options{Name: "d"})
				continue
			}
			if _, err := writer.Pack(t.Context(), st, &stating{&synth{items: items}, nil, stated}, opt); err != nil {
				t.Fatal(err)
			}
		}
		if c.parts > 0 {
			mustCommit(t, st, writer.CommitOptions{Parts: c.parts})
		}
		if got := mustLoad(t, st).Manifest.Meta[kinds.FeaturesKey]; got != c.want {
			t.Errorf("%s, then %s: %s, want %s", c.first, c.second, got, c.want)
		}
	}
}
