package export

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
)

// archive writes or compares one archive.
type archive struct {
	*Archive
	e      *exporter
	number int
	sum    hash.Hash // MD5, if the form needs it
}

// write writes the archive, or compares an existing one.
func (w *archive) write(ctx context.Context) (err error) {
	if w.cut {
		w.found, err = w.e.object(ctx, w.Name, func(put func([]byte) error) error {
			w.Bytes = 0
			return w.content(ctx, func(p []byte) error {
				w.Bytes += int64(len(p))
				return put(p)
			})
		})
		return err
	}
	rows, err := w.e.d.Rows(ctx, w.number)
	if err != nil {
		return err
	}
	w.Bytes = int64(len(metadata.EndOfArchive(true)))
	for _, r := range rows {
		w.Bytes += int64(r.Decoded)
	}
	if w.e.o.Form == WIDS {
		w.sum = md5.New()
		defer func() { w.md5 = hex.EncodeToString(w.sum.Sum(nil)) }()
	}
	info, err := w.e.to.Stat(ctx, w.Name)
	if err == nil {
		return w.compare(ctx, info, rows)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = w.e.create(ctx, w.Name, func(put func([]byte) error) error { return w.content(ctx, put) })
	if !errors.Is(err, objstore.ErrExists) {
		return err
	}
	if info, err = w.e.to.Stat(ctx, w.Name); err != nil { // another export was first
		return err
	}
	if w.sum != nil {
		w.sum.Reset()
	}
	return w.compare(ctx, info, rows)
}

// content gives put the bytes of the archive in order: all frames of the shard and an end of
// archive, or what else the form has in their place.
func (w *archive) content(ctx context.Context, to func([]byte) error) error {
	put := func(p []byte) error {
		if w.sum != nil {
			w.sum.Write(p)
		}
		w.e.report(0, int64(len(p)))
		return to(p)
	}
	switch w.e.o.Form {
	case hf:
		return w.e.table(ctx, w.number, put)
	case megatron:
		return w.e.tokens.bin(ctx, w.e.d, put)
	}
	for f, err := range w.e.d.Frames(ctx, reader.Range{From: w.number, To: w.number + 1}) {
		if err == nil {
			err = put(f.Decoded)
		}
		if err != nil {
			return err
		}
	}
	return put(metadata.EndOfArchive(true))
}

// object writes an object with the bytes that content gives, or compares them with an existing one:
// an export has no hash of them.
func (e *exporter) object(ctx context.Context, name string,
	content func(put func([]byte) error) error) (found bool, err error) {
	info, err := e.to.Stat(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = e.create(ctx, name, content); !errors.Is(err, objstore.ErrExists) {
			return false, err
		}
		info, err = e.to.Stat(ctx, name) // another export was first
	}
	if err != nil {
		return false, err
	}
	obj, err := e.to.Open(ctx, name)
	if err != nil {
		return false, err
	}
	defer obj.Close()
	var buf []byte
	off := int64(0)
	err = content(func(p []byte) error {
		if int64(len(p)) > info.Size-off {
			return e.other(name)
		}
		buf = slices.Grow(buf[:0], len(p))[:len(p)]
		if err := obj.ReadAt(ctx, buf, off); err != nil {
			return err
		}
		off += int64(len(p))
		if !bytes.Equal(buf, p) {
			return e.other(name)
		}
		return nil
	})
	if err == nil && off != info.Size {
		err = e.other(name)
	}
	return err == nil, err
}

// create writes an object that is not there. Where another export has put it meanwhile, the error
// wraps objstore.ErrExists.
func (e *exporter) create(ctx context.Context, name string, content func(put func([]byte) error) error) error {
	up, err := e.to.Create(ctx, name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(up, 64<<10)
	err = content(func(p []byte) error {
		_, err := out.Write(p)
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		_ = up.Abort() // the first failure is the one to report
		return err
	}
	_, err = up.Commit(ctx)
	return err
}

// compare reads an existing archive, block by block, and compares it with the shard's hash.
func (w *archive) compare(ctx context.Context, info objstore.Info, rows []format.Row) error {
	shard, err := w.e.d.Shard(ctx, w.number)
	if err != nil {
		return err
	}
	if info.Size != w.Bytes {
		return w.e.other(w.Name)
	}
	obj, err := w.e.to.Open(ctx, w.Name)
	if err != nil {
		return err
	}
	defer obj.Close()
	var all metadata.ShardHasher
	var buf []byte
	off := int64(0)
	read := func(n int) error {
		if cap(buf) < n {
			buf = make([]byte, n+n/4)
		}
		buf = buf[:n]
		err := obj.ReadAt(ctx, buf, off)
		off += int64(n)
		if w.sum != nil {
			w.sum.Write(buf)
		}
		w.e.report(0, int64(n))
		return err
	}
	for i := 0; i < len(rows); {
		block := sha256.New()
		for first := true; i < len(rows) && (first || rows[i].Samples == 0); i++ {
			if err := read(int(rows[i].Decoded)); err != nil {
				return err
			}
			block.Write(buf)
			first = false
		}
		all.Add(format.Hash(block.Sum(nil)))
	}
	if err := read(len(metadata.EndOfArchive(true))); err != nil {
		return err
	}
	for _, c := range buf {
		if c != 0 {
			return w.e.other(w.Name)
		}
	}
	if all.Sum() != shard.Content() {
		return w.e.other(w.Name)
	}
	w.found = true
	return nil
}
