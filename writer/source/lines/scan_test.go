package lines

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// BenchmarkScan cuts and parses rows on one core, without a pipeline: what a library for JSON or
// CSV would replace.
func BenchmarkScan(b *testing.B) {
	long := strings.Repeat("the quick brown fox jumps over the lazy dog. ", 70)
	for _, c := range []struct{ name, row string }{
		{"x.jsonl", `{"id":123456,"text":"a short line of text","label":3}`},
		{"x.jsonl", `{"id":123456,"text":"` + long + `\n","meta":{"source":"web"}}`},
		{"x.jsonl", `{"id":7,"ids":[` + strings.Repeat("1234, ", 500) + `1]}`},
		{"x.csv", `123456,"a short line, of text",3`},
		{"x.csv", "123456," + long + ",3"},
	} {
		text := strings.Repeat(c.row+"\n", (4<<20)/len(c.row))
		b.Run(fmt.Sprintf("file=%s/row=%d", c.name, len(c.row)), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			f := &textFile{}
			if strings.HasSuffix(c.name, "csv") {
				f.comma, f.header = ',', []string{"id", "text", "label"}
			}
			p := newParser(&plan{Plan: rows.Plan{Choice: rows.Choice{Columns: []string{}}}, opt: Options{MaxLine: math.MaxInt32}})
			for b.Loop() {
				u := newCutter(bytes.NewReader([]byte(text)), f.comma, math.MaxInt32, place{line: 1})
				ch := chunk{of: f}
				for u.next(&ch) == nil {
					for _, s := range ch.spans {
						p.begin(&ch)
						if err := p.csvRow(&ch, ch.buf[s.begin:s.end]); err != nil {
							b.Fatal(err)
						}
					}
					if f.comma == 0 {
						for rest := ch.buf; len(rest) > 0; {
							end := lineEnd(rest)
							p.begin(&ch)
							if _, err := p.jsonLine(&ch, rest[:end]); err != nil {
								b.Fatal(err)
							}
							rest = rest[end:]
						}
					}
				}
			}
		})
	}
}
