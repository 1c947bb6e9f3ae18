package main

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestPhrasesCompress: rows of phrases take a half to a fifth, as those of prose do; rows of tokens
// take nearly all.
func TestPhrasesCompress(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ratio := func(kind string) float64 {
		var all bytes.Buffer
		b := &bench{mib: 2}
		for s := range b.samples(kind) {
			if len(s.Fields[0].Data) != 2*tokensRow {
				t.Fatalf("%s: a row of %d bytes", kind, len(s.Fields[0].Data))
			}
			all.Write(s.Fields[0].Data)
		}
		return float64(all.Len()) / float64(len(w.EncodeAll(all.Bytes(), nil)))
	}
	if r := ratio("phrases"); r < 2 || r > 5 {
		t.Errorf("phrases take 1/%.2f", r)
	}
	if r := ratio("tokens"); r > 1.6 {
		t.Errorf("tokens take 1/%.2f", r)
	}
}
