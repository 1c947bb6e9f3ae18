package writer

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestSpool: what is put are the bytes written, in memory or in a file, under the name of their
// hash; an object of that name is accepted.
func TestSpool(t *testing.T) {
	for _, room := range []int{0, 99, 5000, 49_999, 50_000, 1 << 20} {
		st := mem.New()
		s := spool{dir: t.TempDir(), room: room}
		s.grow(50_000)
		var want []byte
		for i := 0; len(want) < 50_000; i++ {
			p := bytes.Repeat([]byte{byte(i)}, min(i*i, 50_000-len(want)))
			want = append(want, p...)
			if _, err := s.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		if (s.file != nil) != (room < 50_000) {
			t.Errorf("room for %d: a file is used: %v", room, s.file != nil)
		}
		name := func(sum [32]byte) string { return fmt.Sprintf("x-%x", sum) }
		for range 2 {
			sum, err := s.put(t.Context(), newPuts(st), name)
			if err != nil || sum != sha256.Sum256(want) {
				t.Fatalf("room for %d: %v, %v", room, sum, err)
			}
		}
		got, _, err := objstore.ReadAll(t.Context(), st, name(sha256.Sum256(want)), 1<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("room for %d: %d bytes, %v", room, len(got), err)
		}
		s.close()
	}
}
