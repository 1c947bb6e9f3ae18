package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// randomRows writes a Parquet file of rows that do not compress, in row groups of 40.
func randomRows(name string, rows, size int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := schema.NewGroupNode("schema", pq.Repetitions.Required, schema.FieldList{
		schema.NewInt64Node("id", pq.Repetitions.Required, -1), schema.NewByteArrayNode("data", pq.Repetitions.Required, -1),
	}, -1)
	if err != nil {
		return err
	}
	w := file.NewParquetWriter(f, root, file.WithWriterProps(pq.NewWriterProperties(pq.WithDictionaryDefault(false), pq.WithBatchSize(4))))
	rng := rand.NewChaCha8([32]byte{7})
	const group = 40
	for first := 0; first < rows; first += group {
		var ids []int64
		var cells []pq.ByteArray
		for i := range min(group, rows-first) {
			cell := make([]byte, size)
			_, _ = rng.Read(cell)
			ids, cells = append(ids, int64(first+i)), append(cells, cell)
		}
		g := w.AppendRowGroup()
		c, err := g.NextColumn()
		if err != nil {
			return err
		}
		if _, err := c.(*file.Int64ColumnChunkWriter).WriteBatch(ids, nil, nil); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		if c, err = g.NextColumn(); err != nil {
			return err
		}
		if _, err := c.(*file.ByteArrayColumnChunkWriter).WriteBatch(cells, nil, nil); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		if err := g.Close(); err != nil {
			return err
		}
	}
	return w.Close()
}

// TestParquetKilled kills packs of Parquet at random moments: nothing is visible, and --resume
// adopts the finished shards and writes the bytes of an uninterrupted pack.
func TestParquetKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	const rows = 400
	for i := range 2 {
		if err := randomRows(filepath.Join(src, fmt.Sprintf("part-%d.parquet", i)), rows/2, 100_000); err != nil {
			t.Fatal(err)
		}
	}
	pack := killedPack{
		src: src, want: want, other: []string{"--columns", "data"}, shards: 12, samples: rows,
		signals: []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM},
	}
	pack.run(t)
}
