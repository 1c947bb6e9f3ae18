package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// rowsGroup packs stacked rows of 64 bytes from a generator, opens, reads and verifies them: what
// very many small samples cost. -rows sets how many; 10^8 take 6.4 GB of disk.
func (b *bench) rowsGroup() error {
	dir := filepath.Join(b.dir, "rows")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := local.New(dir, local.Options{})
	if err != nil {
		return err
	}
	perRow := func(what string, took time.Duration, detail string) {
		b.Info("rows", what, table.One(float64(took.Nanoseconds())/float64(b.rows)), "ns/row", fmt.Sprintf("%d rows in %.1f s; %s", b.rows, took.Seconds(), detail))
	}
	begin := time.Now()
	res, err := b.packRows(store)
	if err != nil {
		return err
	}
	perRow("pack 64 B rows, uncompressed", time.Since(begin), fmt.Sprintf("peak %d MiB so far", peakMiB()))
	index, tables, keys := b.rowObjects(store)
	b.Info("rows", "bytes beside the rows", table.One(float64(int64(res.Bytes)-64*b.rows+tables+keys)/float64(b.rows)), "B/row",
		fmt.Sprintf("indexes %d B in %d shards, tables %d B, keys table %d B, %d blocks", index, res.Shards, tables, keys, res.Blocks))

	begin = time.Now()
	d, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	b.Info("rows", "open", table.One(time.Since(begin).Seconds()*1e3), "ms", "manifest.json and the front of the tables")
	rng := rand.New(rand.NewPCG(1, 2))
	p50, p99, err := b.latency(200, func() error {
		numbers, err := d.Lookup(b.ctx, rowKey(int64(rng.Uint64N(uint64(b.rows)))))
		if err == nil {
			_, err = d.Get(b.ctx, numbers[0])
		}
		return err
	})
	if err != nil {
		return err
	}
	b.Info("rows", "get a random row by key, p50", table.One(p50), "ms", fmt.Sprintf("p99 %.2f ms; the key is computed, the block is read", p99))
	if err := b.rowOrder(d, perRow); err != nil {
		return err
	}
	if err := b.rowStream(d, perRow); err != nil {
		return err
	}
	begin = time.Now()
	report, err := check.Verify(b.ctx, store, check.Options{Deep: true})
	if err == nil && !report.OK() {
		err = fmt.Errorf("verify: %+v", report.Faults[0])
	}
	perRow("verify --deep", time.Since(begin), fmt.Sprintf("peak %d MiB", peakMiB()))
	return err
}

// rowShuffle is the order of a shuffled epoch.
var rowShuffle = reader.StreamOptions{Order: reader.Order{Shuffle: true, GlobalBatch: 4096, Epochs: 1}}

// rowOrder makes the references of a shuffled epoch, without a byte of the shards.
func (b *bench) rowOrder(d *reader.Dataset, perRow func(what string, took time.Duration, detail string)) error {
	begin := time.Now()
	t, err := d.OrderTable(b.ctx)
	if err != nil {
		return err
	}
	params, err := order.Choose(t, rowShuffle.Choice())
	if err != nil {
		return err
	}
	plan, err := order.New([]order.Source{{Table: t, Digest: d.Info().OrderDigest}}, params)
	if err != nil {
		return err
	}
	cursor, err := plan.Seek(0, 0)
	if err != nil {
		return err
	}
	var refs []order.Ref
	for n := int64(0); n < b.rows; n += int64(len(refs)) {
		if refs, _, err = cursor.NextBatch(refs[:0], order.Split{GlobalBatch: rowShuffle.GlobalBatch, World: 1}); err != nil {
			return err
		}
	}
	perRow("the order of a shuffled epoch", time.Since(begin), fmt.Sprintf("one goroutine, no payload; peak %d MiB so far", peakMiB()))
	return nil
}

// rowStream reads a shuffled epoch of samples, each made from its row.
func (b *bench) rowStream(d *reader.Dataset, perRow func(what string, took time.Duration, detail string)) error {
	begin, n := time.Now(), int64(0)
	s, err := d.Stream(b.ctx, rowShuffle)
	if err != nil {
		return err
	}
	defer s.Close()
	for batch, err := range s.Batches(b.ctx) {
		if err != nil {
			return err
		}
		n += int64(len(batch.Samples))
	}
	if n != b.rows {
		return fmt.Errorf("a stream of %d rows of %d", n, b.rows)
	}
	perRow("a shuffled epoch as samples", time.Since(begin), fmt.Sprintf("a budget of %d MiB for blocks; peak %d MiB", s.Info().Memory>>20, peakMiB()))
	return nil
}

func rowKey(i int64) string {
	text := strconv.FormatInt(i, 10)
	return "row/000000000"[:max(13-len(text), 4)] + text
}

// packRows writes the rows: a counter, then random bytes.
func (b *bench) packRows(store *local.Store) (*writer.Result, error) {
	w, err := writer.New(b.ctx, store, writer.Options{Layout: writer.LayoutStacked, Plain: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Abort() }()
	data := append(npy.AppendHeader(nil, "<u4", 16), make([]byte, 64)...)
	row := data[len(data)-64:]
	fields := []writer.Field{{Name: "x.npy", Data: data}}
	x := uint64(1)
	for i := range b.rows {
		binary.LittleEndian.PutUint64(row, uint64(i))
		for at := 8; at < 64; at += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(row[at:], x)
		}
		if err := w.Write(b.ctx, writer.Sample{Key: rowKey(i), Fields: fields}); err != nil {
			return nil, err
		}
	}
	return w.Close(b.ctx)
}

// rowObjects returns the bytes of sidecars, tables and keys tables.
func (b *bench) rowObjects(store *local.Store) (index, tables, keys int64) {
	for info, err := range store.List(context.WithoutCancel(b.ctx), "") {
		if err != nil {
			return
		}
		switch name := filepath.Base(info.Name); {
		case filepath.Ext(name) == ".shidx":
			index += info.Size
		case len(name) > 4 && name[:4] == "mani":
			tables += info.Size
		case len(name) > 4 && name[:4] == "keys":
			keys += info.Size
		}
	}
	return index, tables, keys
}

// peakMiB returns the most memory that this process had, 0 where the system does not tell.
func peakMiB() (mib int64) {
	text, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(text), "VmHWM:"); ok {
		_, _ = fmt.Sscan(rest, &mib) // KiB
	}
	return mib >> 10
}
