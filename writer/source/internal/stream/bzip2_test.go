package stream

import (
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestBzip2: two streams of `bzip2`, one behind the other as pbzip2 writes them, are read whole; cut
// at any byte, damaged or empty, they are corrupt.
func TestBzip2(t *testing.T) {
	t.Parallel()
	one, err := hex.DecodeString("425a6839314159265359bac64ddb00000359800010100020102000000a20002203650860114a1f177245385090bac64ddb")
	if err != nil {
		t.Fatal(err)
	}
	const text = "{\"a\":1}\n"
	read := func(b []byte) (string, error) {
		store := mem.New()
		if _, err := objstore.Put(t.Context(), store, "a", b, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		obj, err := store.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		s, err := Open(t.Context(), obj, int64(len(b)), false, Bzip2, 0)
		if err != nil {
			return "", err
		}
		defer s.Close()
		got, err := io.ReadAll(s)
		return string(got), err
	}
	if got, err := read(append(one[:len(one):len(one)], one...)); err != nil || got != text+text {
		t.Fatalf("%q, %v", got, err)
	}
	for n := range len(one) {
		if got, err := read(one[:n]); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("the first %d bytes: %q, %v", n, got, err)
		}
	}
	damaged := append([]byte(nil), one...)
	damaged[12] ^= 1 // of the checksum
	if got, err := read(damaged); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("damaged: %q, %v", got, err)
	}
}
