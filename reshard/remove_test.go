package reshard_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// key and mark are what can be found of a sample in whatever delivers it.
func key(i int) string  { return fmt.Sprintf("of/sample%04d", i) }
func mark(i int) string { return fmt.Sprintf("<payload of %04d>", i) }

// some are n samples with payloads of about size bytes, from number first on.
func some(first, n, size int) []writer.Sample {
	out := make([]writer.Sample, n)
	for i := range out {
		fill := bytes.Repeat([]byte{byte('a' + i%7)}, size+i%11)
		out[i] = writer.Sample{
			Key:    key(first + i),
			Fields: []writer.Field{{Name: "bin", Data: fill}, {Name: "txt", Data: []byte(mark(first + i))}},
			Attrs: []format.AttrValue{
				{Attribute: format.Attribute{Name: "label", Kind: format.AttrLabel}, Label: fmt.Sprintf("label of %d", (first+i)/3)},
				{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: int64(first + i)},
			},
		}
	}
	return out
}

// small makes many blocks and shards of few samples.
var small = writer.Options{BlockSize: 6000, ShardSize: 40 << 10}

func pack(t testing.TB, store objstore.Store, samples []writer.Sample, o writer.Options) *writer.Result {
	t.Helper()
	w, err := writer.New(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, s := range samples {
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	res, err := w.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func packed(t testing.TB, samples []writer.Sample, o writer.Options) *mem.Store {
	t.Helper()
	store := mem.New()
	pack(t, store, samples, o)
	return store
}

func open(t testing.TB, store objstore.Store, o reader.Options) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func keysOf(numbers []int) (keys []string) {
	for _, n := range numbers {
		keys = append(keys, key(n))
	}
	return keys
}

func run(t testing.TB, store objstore.Store, o reshard.RemoveOptions, numbers ...int) *reshard.RemoveReport {
	t.Helper()
	r, err := reshard.RemoveKeys(t.Context(), store, keysOf(numbers), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
