package writer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// rowSample returns a sample of two arrays whose elements follow from its number.
func rowSample(key string, i int) writer.Sample {
	x := npy.AppendHeader(nil, "<u2", 3)
	for k := range 3 {
		x = append(x, byte(i), byte(i>>8+k))
	}
	y := npy.AppendHeader[int](nil, "|u1")
	return writer.Sample{Key: key, Fields: []writer.Field{{Name: "y.npy", Data: append(y, byte(i))}, {Name: "x.npy", Data: x}}}
}

// packRows packs samples and reads them back.
func packRows(t *testing.T, st objstore.Store, opt writer.Options, samples []writer.Sample) *readback.Set {
	t.Helper()
	w, err := writer.New(t.Context(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	set := mustLoad(t, st)
	if opt.Mode == writer.ModeAppend {
		return set
	}
	if len(set.Samples) != len(samples) {
		t.Fatalf("%d samples, not %d", len(set.Samples), len(samples))
	}
	for i := range samples {
		for _, f := range samples[i].Fields {
			if got := set.Samples[i].Field(f.Name); string(got) != string(f.Data) || set.Samples[i].Key != samples[i].Key {
				t.Fatalf("sample %d, %q: field %s is %q, not %q", i, set.Samples[i].Key, f.Name, got, f.Data)
			}
		}
	}
	return set
}

func rowSamples(n int, key func(i int) string) (samples []writer.Sample) {
	for i := range n {
		samples = append(samples, rowSample(key(i), i))
	}
	return samples
}

func numberedKey(i int) string { return fmt.Sprintf("s/%09d", i) }

func storedKey(i int) string { return fmt.Sprintf("%x/k%d", i*7919%1000, i*31) }

// stackedOptions make several blocks and shards of few rows.
func stackedOptions() writer.Options {
	return writer.Options{Layout: writer.LayoutStacked, BlockSize: 4 << 10, ShardSize: 8 << 10, Workers: 2}
}

// TestStacked packs rows with keys of both kinds, compressed and not: samples are what they were,
// all shards are stacked, and numbered keys need no table.
func TestStacked(t *testing.T) {
	for name, key := range map[string]func(int) string{"numbered": numberedKey, "stored": storedKey} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,plain=%v", name, plain), func(t *testing.T) {
				opt := stackedOptions()
				opt.Plain = plain
				m := packRows(t, mem.New(), opt, rowSamples(3000, key)).Manifest
				numbered := name == "numbered"
				if (m.Keys == format.Hash{}) != numbered || len(m.Shards) < 2 {
					t.Fatalf("keys table %v, %d shards", m.Keys, len(m.Shards))
				}
				for i := range m.Shards {
					if s := &m.Shards[i]; s.Layout == nil || (s.Numbered != nil) != numbered || numbered && len(s.Numbered) != 1 {
						t.Errorf("shard %s: layout %v, keys %v", s.Name, s.Layout, s.Numbered)
					}
				}
			})
		}
	}
}

// TestStackedMixedKeys ends a shard where keys stop being numbered.
func TestStackedMixedKeys(t *testing.T) {
	opt := stackedOptions()
	opt.ShardSize = 1 << 20
	m := packRows(t, mem.New(), opt, rowSamples(4000, func(i int) string {
		if i < 2000 {
			return numberedKey(i)
		}
		return storedKey(i)
	})).Manifest
	if len(m.Shards) != 2 || m.Shards[0].Numbered == nil || m.Shards[1].Numbered != nil || m.Keys == (format.Hash{}) {
		t.Fatalf("%d shards, keys %v", len(m.Shards), m.Keys)
	}
}

// TestStackedAuto puts a sample of another shape into an ordinary shard, after which samples are
// stacked again.
func TestStackedAuto(t *testing.T) {
	opt := stackedOptions()
	opt.Layout = writer.LayoutAuto
	samples := rowSamples(3000, numberedKey)
	samples[1500].Fields[1].Data = append(npy.AppendHeader(nil, "<u2", 1), 1, 2)
	m := packRows(t, mem.New(), opt, samples).Manifest
	var layouts []bool
	for i := range m.Shards {
		if s := &m.Shards[i]; s.Numbered == nil {
			t.Errorf("the keys of shard %s are not numbered", s.Name)
		}
		layouts = append(layouts, m.Shards[i].Layout != nil)
	}
	if slices.Index(layouts, false) < 1 || layouts[len(layouts)-1] != true || m.Keys != (format.Hash{}) {
		t.Fatalf("stacked shards: %v, keys %v", layouts, m.Keys)
	}
}

// TestStackedRefused names the sample and the field that cannot be stacked.
func TestStackedRefused(t *testing.T) {
	array := func(descr string, data int, shape ...int) []byte {
		return append(npy.AppendHeader(nil, descr, shape...), make([]byte, data)...)
	}
	for name, c := range map[string]struct {
		first, second []byte
		want          string
	}{
		"other shape":   {array("<u2", 6, 3), array("<u2", 8, 4), "is an array <u2 (4), earlier samples have <u2 (3)"},
		"same size":     {array("<u2", 8, 4), array("<u2", 8, 2, 2), "is an array <u2 (2, 2), earlier samples have <u2 (4)"},
		"other dtype":   {array("<u2", 8, 4), array("<f2", 8, 4), "is an array <f2 (4), earlier samples have <u2 (4)"},
		"object":        {array("|O", 8, 1), nil, "of type |O"},
		"structured":    {[]byte(strings.Replace(string(array("<u2", 8, 4)), "'<u2'", "[('a', '<u2')]", 1)), nil, "field \"x.npy\""},
		"bfloat16":      {array("<V2", 8, 4), nil, "of type <V2"},
		"big-endian":    {array(">u2", 8, 4), nil, "big-endian"},
		"zero":          {array("<u2", 0, 0), nil, "a dimension of 0"},
		"no array":      {[]byte("text"), nil, "it is not an .npy file"},
		"truncated":     {array("<u2", 7, 4), nil, "truncated"},
		"text of NumPy": {array("<U4", 16, 1), nil, "of type <U4"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := writer.New(t.Context(), mem.New(), stackedOptions())
			if err != nil {
				t.Fatal(err)
			}
			defer w.Abort()
			for i, data := range [][]byte{c.first, c.second} {
				if err == nil && data != nil {
					err = w.Write(t.Context(), writer.Sample{Key: numberedKey(i), Origin: "file:7", Fields: []writer.Field{{Name: "x.npy", Data: data}}})
				}
			}
			if err == nil {
				_, err = w.Close(t.Context())
			}
			var se *writer.SampleError
			if !errors.As(err, &se) || !errors.Is(err, writer.ErrLayout) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "--") {
				t.Fatal(err)
			}
		})
	}
}

// TestStackedTypes stacks the types that have rows, bool and float16 among them.
func TestStackedTypes(t *testing.T) {
	for _, descr := range []string{"|b1", "<f2", "<f8", "<c16", "<i8", "|i1"} {
		var samples []writer.Sample
		for i := range 10 {
			data := append(npy.AppendHeader(nil, descr, 2), make([]byte, map[string]int{"|b1": 2, "<f2": 4, "<f8": 16, "<c16": 32, "<i8": 16, "|i1": 2}[descr])...)
			data[len(data)-1] = byte(i % 2)
			samples = append(samples, writer.Sample{Key: numberedKey(i), Fields: []writer.Field{{Name: "a.npy", Data: data}}})
		}
		if m := packRows(t, mem.New(), stackedOptions(), samples).Manifest; m.Shards[0].Layout.Fields[0].DType != descr {
			t.Errorf("%s became %v", descr, m.Shards[0].Layout)
		}
	}
}
