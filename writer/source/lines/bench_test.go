package lines

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkRead reads rows and drops them.
func BenchmarkRead(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog. ", 70)
	for _, c := range []struct{ name, row string }{
		{"x.jsonl", `{"id":123456,"text":"a short line of text","label":3}`}, {"x.jsonl", `{"id":123456,"text":"` + text + `\n","meta":{"source":"web"}}`},
		{"x.csv", `123456,"a short line, of text",3`}, {"x.csv", "123456," + text + ",3"},
	} {
		const size = 32 << 20
		all := strings.Repeat(c.row+"\n", size/len(c.row))
		if strings.HasSuffix(c.name, "csv") {
			all = "id,text,label\n" + all
		}
		in := given(b, c.name, all)
		b.Run(fmt.Sprintf("file=%s/row=%d", c.name, len(c.row)), func(b *testing.B) {
			b.SetBytes(int64(len(all)))
			b.ReportAllocs()
			for b.Loop() {
				s, err := New(b.Context(), in, Options{})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = s.Next(b.Context())
				}
				s.Close()
			}
		})
	}
}
