package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/bench/peak"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

const (
	parquetCell  = 10 << 10  // bytes of a row's large column
	parquetGroup = 128 << 20 // bytes of a row group
)

// parquet measures rows of (int64, string, 10 KB of bytes that cannot be compressed) on their way
// to shards.
func (b *bench) parquet() error {
	src := filepath.Join(b.dir, "rows.parquet")
	if err := writeParquet(src, int64(b.mib)<<20); err != nil {
		return err
	}
	defer os.Remove(src)
	if err := b.parquetRate(src); err != nil {
		return err
	}
	return b.parquetMemory()
}

// writeParquet makes a file of about that size.
func writeParquet(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text := schema.Must(schema.NewPrimitiveNodeLogical("text", pq.Repetitions.Optional, schema.StringLogicalType{}, pq.Types.ByteArray, -1, -1))
	root, err := schema.NewGroupNode("schema", pq.Repetitions.Required, schema.FieldList{
		schema.NewInt64Node("id", pq.Repetitions.Optional, -1), text, schema.NewByteArrayNode("data", pq.Repetitions.Optional, -1),
	}, -1)
	if err != nil {
		return err
	}
	w := file.NewParquetWriter(f, root, file.WithWriterProps(pq.NewWriterProperties(pq.WithCompression(compress.Codecs.Snappy), pq.WithBatchSize(64))))
	rng := rand.NewChaCha8([32]byte{5})
	for row := int64(0); row*parquetCell < size; {
		n := min(parquetGroup/parquetCell, (size+parquetCell-1)/parquetCell-row)
		g := w.AppendRowGroup()
		defs := make([]int16, n)
		ids := make([]int64, n)
		texts, cells := make([]pq.ByteArray, n), make([]pq.ByteArray, n)
		buf := make([]byte, n*parquetCell)
		if _, err := rng.Read(buf); err != nil {
			return err
		}
		for i := range n {
			defs[i], ids[i] = 1, row+i
			texts[i] = pq.ByteArray(fmt.Sprintf("the caption of row %d", row+i))
			cells[i] = buf[i*parquetCell : (i+1)*parquetCell]
		}
		for k := range 3 {
			c, err := g.NextColumn()
			if err != nil {
				return err
			}
			switch k {
			case 0:
				_, err = c.(*file.Int64ColumnChunkWriter).WriteBatch(ids, defs, nil)
			case 1:
				_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(texts, defs, nil)
			case 2:
				_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(cells, defs, nil)
			}
			if err == nil {
				err = c.Close()
			}
			if err != nil {
				return err
			}
		}
		if err := g.Close(); err != nil {
			return err
		}
		row += n
	}
	return w.Close()
}

// scanParquet reads all values with the library alone.
func scanParquet(path string) error {
	props := pq.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true
	r, err := file.OpenParquetFile(path, false, file.WithReadProps(props))
	if err != nil {
		return err
	}
	defer r.Close()
	const batch = 128
	ids, values, defs := make([]int64, batch), make([]pq.ByteArray, batch), make([]int16, batch)
	for i := range r.NumRowGroups() {
		g := r.RowGroup(i)
		rows := int64(0)
		for k := range g.NumColumns() {
			c, err := g.Column(k)
			if err != nil {
				return err
			}
			for c.HasNext() {
				n := int64(0)
				switch c := c.(type) {
				case *file.Int64ColumnChunkReader:
					n, _, err = c.ReadBatch(batch, ids, defs, nil)
				case *file.ByteArrayColumnChunkReader:
					n, _, err = c.ReadBatch(batch, values, defs, nil)
				}
				if err != nil {
					return err
				}
				rows += n
			}
		}
		if rows != 3*g.NumRows() {
			return fmt.Errorf("%w: %d values in a row group of %d rows", io.ErrUnexpectedEOF, rows, g.NumRows())
		}
	}
	return nil
}

// packParquet turns a file into shards that nobody keeps, or into a store.
func (b *bench) packParquet(path string) error {
	store, err := local.New(filepath.Dir(path), local.Options{})
	if err != nil {
		return err
	}
	src, err := parquet.New(b.ctx, []source.Input{{Store: store, Name: filepath.Base(path)}}, parquet.Options{})
	if err != nil {
		return err
	}
	defer src.Close()
	out := storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) })
	_, err = writer.Pack(b.ctx, out, src, writer.Options{})
	return err
}

// parquetRate holds packing against the slower of its two halves: reading with the library on one
// core, and compressing and hashing the blocks on all.
func (b *bench) parquetRate(path string) error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "parquet-packed")
	if out, err := exec.Command(bin, "pack", path, dir, "--quiet").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	ours := func() error { return b.packParquet(path) }
	read, our, readBase, err := b.ratio(ours, func() error { return scanParquet(path) })
	if err != nil {
		return err
	}
	encode, _, encodeBase, err := b.ratio(ours, b.encodeAll(blocks, codec.LevelDefault))
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("%s against %s (read) and %s (compress)", mbs(total, our.Median()), mbs(total, readBase.Median()), mbs(total, encodeBase.Median()))
	slower, other := read, encode
	if encodeBase.Median() > readBase.Median() {
		slower, other = encode, read
	}
	b.AtLeast("parquet", fmt.Sprintf("rows of 10 KB to shards / the slower of parquet/file and EncodeAll + SHA-256 on %d cores", b.cores), slower, "x", 0.8, detail)
	b.Info("parquet", "the same / the faster of the two", other, "x", detail)
	return nil
}

// parquetMemory packs a file that is many times what a process may hold.
func (b *bench) parquetMemory() error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	src, out := filepath.Join(b.dir, "large.parquet"), filepath.Join(b.dir, "parquet-large")
	defer os.Remove(src)
	defer os.RemoveAll(out)
	const size = 1 << 30
	if err := writeParquet(src, size); err != nil {
		return err
	}
	most, err := peak.Memory(exec.Command(bin, "pack", src, out, "--quiet"))
	if err != nil {
		return err
	}
	b.AtMost("parquet", "pack: peak resident memory", table.One(most), "MiB", 256,
		fmt.Sprintf("a file of %d MiB with row groups of %d MiB, default flags", size>>20, parquetGroup>>20))
	return nil
}
