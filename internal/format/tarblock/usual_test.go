package tarblock

import (
	"math/rand/v2"
	"testing"
)

// TestUsualHeaders flips bytes of headers: the short way through usual headers finds what the long
// way finds, or leaves the header to it.
func TestUsualHeaders(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b Builder
	for _, name := range []string{"dir/a.txt", "dir/a.x.y", "dir/b", "dir/sub/c.txt"} {
		b.Member(name, 700)
	}
	short := 0
	for range 200_000 {
		buf := append([]byte(nil), b.Buf...)
		for range random.IntN(4) {
			member := random.IntN(4) * 3 * RecordLen
			at := []int{random.IntN(100), 124 + random.IntN(12), 156, 257 + random.IntN(8), 345, random.IntN(RecordLen)}[random.IntN(6)]
			buf[member+at] = []byte{0, '0', '7', '8', '.', '/', 'x', 0x80, byte(random.Uint32())}[random.IntN(9)]
		}
		w := Walker{Buf: buf}
		for {
			before := w
			var got, want Member
			if !w.usual(&got) {
				w = before
				if ok, err := w.Next(&got); !ok || err != nil {
					break
				}
				continue
			}
			short++
			long := before
			long.ext = true // as after an extended header without a name or a size: the long way
			if ok, err := long.Next(&want); !ok || err != nil || string(got.Name) != string(want.Name) || got.Key != want.Key || got.Header != want.Header || got.Payload != want.Payload || got.Size != want.Size || w.Off != long.Off {
				t.Fatalf("%+v, want %+v, %v, %v, header %q", got, want, ok, err, buf[before.Off:before.Off+RecordLen])
			}
		}
	}
	if short < 100_000 {
		t.Errorf("the short way was taken %d times", short)
	}
}
