package format

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"testing"
)

// keyEntries are n sorted entries, some hashes there several times.
func keyEntries(n int) []KeyEntry {
	e := make([]KeyEntry, n)
	for i := range e {
		e[i] = KeyEntry{KeyHash(fmt.Sprintf("key %d", i-i%7%2)), uint64(i)}
	}
	slices.SortFunc(e, KeyEntry.Compare)
	return e
}

func keyTable(t testing.TB, entries []KeyEntry) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteKeyTable(&buf, uint64(len(entries)), each(entries)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func each(entries []KeyEntry) iter.Seq2[KeyEntry, error] {
	return func(yield func(KeyEntry, error) bool) {
		for i := 0; i < len(entries) && yield(entries[i], nil); i++ {
		}
	}
}
