package metadata

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// keyEntries are n sorted entries, some hashes there several times.
func keyEntries(n int) []samplekey.Entry {
	e := make([]samplekey.Entry, n)
	for i := range e {
		e[i] = samplekey.Entry{Hash: samplekey.Hash(fmt.Sprintf("key %d", i-i%7%2)), Number: uint64(i)}
	}
	slices.SortFunc(e, samplekey.Entry.Compare)
	return e
}

func keyTable(t testing.TB, entries []samplekey.Entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := samplekey.WriteTable(&buf, uint64(len(entries)), each(entries)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func each(entries []samplekey.Entry) iter.Seq2[samplekey.Entry, error] {
	return func(yield func(samplekey.Entry, error) bool) {
		for i := 0; i < len(entries) && yield(entries[i], nil); i++ {
		}
	}
}
