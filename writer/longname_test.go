package writer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestLongNames refuses names of 60,000 bytes with errors that a person can read.
func TestLongNames(t *testing.T) {
	name := strings.Repeat("k", 60_000)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: name + ".txt", Mode: 0o644, Format: tar.FormatPAX}), w.Close()); err != nil {
		t.Fatal(err)
	}
	store := mem.New()
	if _, err := objstore.Put(t.Context(), store, "a.tar", archive.Bytes(), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, indexed := writer.Index(t.Context(), store, []string{"a.tar"}, writer.Options{})
	long := &writer.SampleError{Key: name, Err: format.CheckKey(name)}
	from := &writer.SampleError{Key: name, Origin: "a.tar at 0: " + name, Err: format.CheckKey(name)}
	for which, err := range map[string]error{"index": indexed, "key": long, "origin": from} {
		if !errors.Is(err, format.ErrName) || len(err.Error()) > 2048 || !strings.Contains(err.Error(), "kkk") {
			t.Errorf("%s: an error of %d bytes: %.300s", which, len(err.Error()), err)
		}
	}
}
