package stream

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"

	"github.com/shardtool/shardtool/format"
)

// TestCodings: two streams, one behind the other as pbzip2 and cat write them, are read whole; cut
// at any byte, damaged or empty, they are corrupt.
func TestCodings(t *testing.T) {
	t.Parallel()
	one, err := hex.DecodeString("425a6839314159265359bac64ddb00000359800010100020102000000a20002203650860114a1f177245385090bac64ddb")
	if err != nil {
		t.Fatal(err)
	}
	const text = "{\"a\":1}\n"
	encoded := func(w io.WriteCloser, b *bytes.Buffer) []byte {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	var inXz, inLz4 bytes.Buffer
	w, err := xz.NewWriter(&inXz)
	if err != nil {
		t.Fatal(err)
	}
	for coding, one := range map[Coding][]byte{Bzip2: one, Xz: encoded(w, &inXz), Lz4: encoded(lz4.NewWriter(&inLz4), &inLz4)} {
		if got, err := readAll(t, coding, append(one[:len(one):len(one)], one...)); err != nil || got != text+text {
			t.Fatalf("%s: %q, %v", names[coding], got, err)
		}
		for n := range len(one) {
			if got, err := readAll(t, coding, one[:n]); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%s, the first %d bytes: %q, %v", names[coding], n, got, err)
			}
		}
		damaged := append([]byte(nil), one...)
		damaged[12] ^= 1
		if got, err := readAll(t, coding, damaged); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s, damaged: %q, %v", names[coding], got, err)
		}
	}
}

// TestXzDictionary: a block that states a dictionary of 1.5 GiB is refused before it is allocated.
func TestXzDictionary(t *testing.T) {
	t.Parallel()
	for _, sizes := range []string{"", "\x05\x81\x01"} { // with and without the sizes of the block
		block := "\x02\x00"
		if sizes != "" {
			block = "\x03\xc0"
		}
		b := append([]byte("\xfd7zXZ\x00\x00\x00\x00\x00\x00\x00"+block+sizes+"\x21\x01\x25"), make([]byte, 80)...)
		if _, err := readAll(t, Xz, b); !errors.Is(err, format.ErrTooLarge) {
			t.Error(err)
		}
	}
}

// readAll reads an object of these bytes.
func readAll(t *testing.T, coding Coding, b []byte) (string, error) {
	t.Helper()
	s, err := Open(t.Context(), object(t, b), int64(len(b)), false, coding, 0)
	if err != nil {
		return "", err
	}
	defer s.Close()
	got, err := io.ReadAll(s)
	return string(got), err
}
