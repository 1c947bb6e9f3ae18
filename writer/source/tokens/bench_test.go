package tokens_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// BenchmarkJoin concatenates documents; bytes are those of samples.
func BenchmarkJoin(b *testing.B) {
	const n = 4 << 20
	st := mem.New()
	for _, length := range []int{32, 512, 8192} {
		in := []source.Input{put(b, st, "x.npy", file("<u2", fmt.Sprintf("(%d, %d)", n/length, length), make([]byte, 2*n)))}
		for _, to := range []tokens.DType{tokens.Uint16, tokens.Int32} {
			b.Run(fmt.Sprintf("document=%d/type=%v", length, to), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(n * map[tokens.DType]int64{tokens.Uint16: 2, tokens.Int32: 4}[to])
				for b.Loop() {
					src, err := tokens.NewArrays(b.Context(), in, tokens.Options{})
					if err != nil {
						b.Fatal(err)
					}
					j := join(b, src, tokens.JoinOptions{Length: 2048, Separator: []int64{1}, DType: to})
					for err == nil {
						_, err = j.Next(b.Context())
					}
					if !errors.Is(err, io.EOF) {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkArrays cuts an array into samples, and reads them.
func BenchmarkArrays(b *testing.B) {
	const n = 4 << 20
	in := one(b, "x.npy", file("<u2", fmt.Sprintf("(%d,)", n), make([]byte, 2*n)))
	for _, to := range []tokens.DType{tokens.Uint16, tokens.Int32} {
		b.Run(fmt.Sprintf("type=%v", to), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(2 * n)
			buf := make([]byte, 1<<20)
			for b.Loop() {
				src, err := tokens.NewArrays(b.Context(), in, tokens.Options{Length: 2048, DType: to})
				if err != nil {
					b.Fatal(err)
				}
				for {
					s, err := src.Next(b.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err == nil {
						err = s.Fields[0].Payload.ReadInto(b.Context(), buf[:s.Fields[0].Size])
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
