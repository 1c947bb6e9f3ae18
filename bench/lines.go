package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
)

// lines measures rows of text of 3 KB, with some metadata, on their way from JSON Lines and CSV to
// shards.
func (b *bench) lines() error {
	if err := b.writeLines(); err != nil {
		return err
	}
	for _, name := range []string{"rows.jsonl", "rows.jsonl.zst", "rows.csv"} {
		if err := b.packLines(name); err != nil {
			return err
		}
	}
	return nil
}

// writeLines writes the corpus of text as the encoders of the standard library do.
func (b *bench) writeLines() error {
	create := func(name string) (*os.File, *bufio.Writer, error) {
		f, err := os.Create(filepath.Join(b.dir, name))
		return f, bufio.NewWriterSize(f, 1<<20), err
	}
	jsonFile, jsonBuf, err := create("rows.jsonl")
	if err != nil {
		return err
	}
	defer jsonFile.Close()
	csvFile, csvBuf, err := create("rows.csv")
	if err != nil {
		return err
	}
	defer csvFile.Close()
	zstFile, zstBuf, err := create("rows.jsonl.zst")
	if err != nil {
		return err
	}
	defer zstFile.Close()
	z, err := zstd.NewWriter(zstBuf)
	if err != nil {
		return err
	}
	row := struct {
		ID   int64  `json:"id"`
		Text string `json:"text"`
		Meta any    `json:"meta"`
	}{Meta: map[string]any{"source": "corpus", "score": 0.5}}
	toJSON, toZstd, toCSV := json.NewEncoder(jsonBuf), json.NewEncoder(z), csv.NewWriter(csvBuf)
	if err := toCSV.Write([]string{"id", "text", "source"}); err != nil {
		return err
	}
	for s := range b.samples("text") {
		row.ID, row.Text = row.ID+1, string(s.Fields[0].Data)
		if err := toJSON.Encode(row); err != nil {
			return err
		}
		if err := toZstd.Encode(row); err != nil {
			return err
		}
		if err := toCSV.Write([]string{fmt.Sprint(row.ID), row.Text, "corpus"}); err != nil {
			return err
		}
	}
	toCSV.Flush()
	for _, flush := range []func() error{z.Close, jsonBuf.Flush, csvBuf.Flush, zstBuf.Flush, toCSV.Error} {
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// packLines holds packing a file against compressing and hashing the blocks that come of it.
func (b *bench) packLines(name string) error {
	path := filepath.Join(b.dir, name)
	defer os.Remove(path)
	from, err := local.New(b.dir, local.Options{})
	if err != nil {
		return err
	}
	pack := func(to *local.Store) error {
		src, err := lines.New(b.ctx, []source.Input{{Store: from, Name: name}}, lines.Options{})
		if err != nil {
			return err
		}
		defer src.Close()
		if to != nil {
			_, err = writer.Pack(b.ctx, to, src, writer.Options{})
			return err
		}
		discard := storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) })
		_, err = writer.Pack(b.ctx, discard, src, writer.Options{})
		return err
	}
	dir := path + "-packed"
	defer os.RemoveAll(dir)
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	if err := pack(store); err != nil {
		return err
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	r, our, base, err := b.ratio(func() error { return pack(nil) }, b.encodeAll(blocks, codec.LevelDefault))
	if err != nil {
		return err
	}
	what, detail := fmt.Sprintf("%s of 3 KB texts to shards / EncodeAll + SHA-256 on %d cores", strings.TrimPrefix(name, "rows"), b.cores),
		fmt.Sprintf("%s of decoded blocks against %s", mbs(total, our.Median()), mbs(total, base.Median()))
	if strings.HasSuffix(name, ".zst") {
		b.Info("lines", what, r, "x", detail)
		return nil
	}
	b.AtLeast("lines", what, r, "x", 0.5, detail)
	return b.readLines(name, path)
}

// readLines measures how fast rows are read, compared with the standard library.
func (b *bench) readLines(name, path string) error {
	store, err := local.New(b.dir, local.Options{})
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	ours := func() error {
		src, err := lines.New(b.ctx, []source.Input{{Store: store, Name: name}}, lines.Options{})
		if err != nil {
			return err
		}
		defer src.Close()
		for {
			if _, err := src.Next(b.ctx); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	r, our, base, err := b.ratio(ours, func() error { return scanLines(path) })
	if err != nil {
		return err
	}
	b.Info("lines", fmt.Sprintf("%s read alone / the standard library on one core", strings.TrimPrefix(name, "rows")), r, "x",
		fmt.Sprintf("%s against %s", mbs(info.Size(), our.Median()), mbs(info.Size(), base.Median())))
	return nil
}

// scanLines reads a file with the standard library.
func scanLines(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	if strings.HasSuffix(path, ".csv") {
		rows := csv.NewReader(in)
		rows.ReuseRecord = true
		for {
			if _, err := rows.Read(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	for rows := bufio.NewScanner(in); rows.Scan(); {
		var row struct {
			ID   int64
			Text string
			Meta json.RawMessage
		}
		if err := json.Unmarshal(rows.Bytes(), &row); err != nil {
			return err
		}
	}
	return nil
}
