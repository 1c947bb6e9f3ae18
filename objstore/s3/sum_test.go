package s3

import (
	"bytes"
	"crypto/md5"
	"hash/crc64"
	"math/rand/v2"
	"testing"
)

// TestPartsHash checks that the digest of digests does not depend on the sizes of the writes.
func TestPartsHash(t *testing.T) {
	for _, size := range []int{1, 99, 100, 101, 200, 1000, 1001} {
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
		var digests []byte
		for rest := data; len(rest) > 0; rest = rest[min(100, len(rest)):] {
			sum := md5.Sum(rest[:min(100, len(rest))])
			digests = append(digests, sum[:]...)
		}
		want := md5.Sum(digests)
		h := &partsHash{Hash: md5.New(), part: md5.New(), size: 100, left: 100}
		for rest := data; len(rest) > 0; {
			n := 1 + rand.IntN(len(rest))
			_, _ = h.Write(rest[:n])
			rest = rest[n:]
		}
		if got := h.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Errorf("%d bytes: %x, want %x", size, got, want)
		}
	}
}

// TestCRC64NVME compares with the check value in the catalogue of parametrised CRC algorithms.
func TestCRC64NVME(t *testing.T) {
	if got := crc64.Checksum([]byte("123456789"), nvme); got != 0xae8b14860a799888 {
		t.Errorf("%x", got)
	}
}

func TestCutParts(t *testing.T) {
	for text, want := range map[string]struct {
		value string
		parts int64
	}{"": {"", 0}, "abc": {"abc", 0}, "abc-7": {"abc", 7}, "abc-0": {"", 0}, "abc--1": {"", 0}, "abc-99999999999": {"", 0}, "abc-x": {"", 0}} {
		if value, parts := cutParts(text); value != want.value || parts != want.parts {
			t.Errorf("%q: %q, %d", text, value, parts)
		}
	}
}
