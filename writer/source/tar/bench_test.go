package tar_test

import (
	stdtar "archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tar"
)

// BenchmarkNext is reading the samples of an archive of small files, in the formats that are
// common.
func BenchmarkNext(b *testing.B) {
	for _, format := range []stdtar.Format{stdtar.FormatUSTAR, stdtar.FormatGNU, stdtar.FormatPAX} {
		b.Run(fmt.Sprintf("format=%s/size=200", format), func(b *testing.B) {
			const samples = 100_000
			name := filepath.Join(b.TempDir(), "x.tar")
			small(b, name, format, samples, 200)
			in, err := source.LocalInput(name)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(samples * 200)
			b.ReportAllocs()
			for b.Loop() {
				src, err := tar.New(b.Context(), []source.Input{in}, tar.Options{})
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := src.Next(b.Context()); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
				src.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
		})
	}
}

// small writes an archive of n members.
func small(b *testing.B, name string, format stdtar.Format, n, size int) {
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	buf := bufio.NewWriter(f)
	w := stdtar.NewWriter(buf)
	data := make([]byte, size)
	for i := range n {
		h := &stdtar.Header{Name: fmt.Sprintf("train/%08d.txt", i), Size: int64(size), Mode: 0o644, Format: format, Typeflag: stdtar.TypeReg}
		if format == stdtar.FormatPAX {
			h.PAXRecords = map[string]string{"comment": "as some programs write them"}
		}
		for k := range data {
			data[k] = byte('a' + (i+k)%26)
		}
		if err := w.WriteHeader(h); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	if err := buf.Flush(); err != nil {
		b.Fatal(err)
	}
}
