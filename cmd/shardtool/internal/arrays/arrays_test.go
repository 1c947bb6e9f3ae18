package arrays

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer/source"
)

func TestRows(t *testing.T) {
	st := mem.New()
	put := func(name string, data ...byte) source.Input {
		if _, err := objstore.Put(t.Context(), st, name, data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		return source.Input{Store: st, Name: name, Path: name}
	}
	array := func(descr string, values []byte, shape ...int64) []byte {
		return append(npy.AppendHeader(nil, descr, shape...), values...)
	}
	a := put("a/emb.npy", array("<f2", []byte("abcdefgh"), 2, 2)...)
	b := put("b.npy", array("<f2", []byte("ijkl"), 1, 2)...)
	r, err := Open(t.Context(), []source.Input{a, b})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, want := range []string{"abcd", "efgh", "ijkl"} {
		s, err := r.Next(t.Context())
		if err != nil || s.Fields[0].Name != "emb.npy" || !bytes.Equal(s.Fields[0].Data, array("<f2", []byte(want), 2)) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := r.Seek(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Next(t.Context()); err != nil || !strings.HasSuffix(string(s.Fields[0].Data), "efgh") || s.Origin != "a/emb.npy: row 2" {
		t.Errorf("%+v, %v", s, err)
	}
	for name, c := range map[string]struct {
		data []byte
		is   error
	}{
		"cut":    {array("<f2", []byte("abc"), 1, 2), format.ErrCorrupt},
		"more":   {array("<f2", []byte("abcdef"), 1, 2), format.ErrCorrupt},
		"huge":   {array("<f2", nil, 1<<62, 1<<20), format.ErrCorrupt},
		"wide":   {array("<f2", nil, 1, 1<<40, 1<<40), format.ErrTooLarge},
		"other":  {array("<f4", []byte("abcdefgh"), 1, 2), nil},
		"no npy": {[]byte("text"), format.ErrCorrupt},
		"empty":  {nil, format.ErrCorrupt},
	} {
		if _, err := Open(t.Context(), []source.Input{a, put("bad.npy", c.data...)}); err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
