package parquet

import (
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/pierrec/lz4/v4"
)

// Tests write files with lz4Raw, for which the library has a number but no codec.
func init() { compress.RegisterCodec(lz4Raw, lz4Codec{}) }

// lz4Codec encodes LZ4 blocks. Nothing decodes with it.
type lz4Codec struct{ compress.Codec }

func (lz4Codec) CompressBound(n int64) int64                 { return int64(lz4.CompressBlockBound(int(n))) }
func (c lz4Codec) EncodeLevel(dst, src []byte, _ int) []byte { return c.Encode(dst, src) }

func (lz4Codec) Encode(dst, src []byte) []byte {
	if bound := lz4.CompressBlockBound(len(src)); cap(dst) < bound {
		dst = make([]byte, bound)
	}
	n, err := lz4.CompressBlock(src, dst[:cap(dst)], nil)
	if err != nil {
		panic(err)
	}
	return dst[:n]
}
