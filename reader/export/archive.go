package export

import (
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
	"github.com/shardtool/shardtool/internal/sections"
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
func (w *archive) write(ctx context.Context) error {
	rows, err := w.e.d.Rows(ctx, w.number)
	if err != nil {
		return err
	}
	end := sections.EndOfArchive(true)
	if !w.cut {
		w.Bytes = int64(len(end))
		for _, r := range rows {
			w.Bytes += int64(r.Decoded)
		}
	}
	if w.e.o.Form == WIDS {
		w.sum = md5.New()
		defer func() { w.md5 = hex.EncodeToString(w.sum.Sum(nil)) }()
	}
	info, err := w.e.to.Stat(ctx, w.Name)
	switch {
	case err == nil && w.cut:
		return w.compareCut(ctx, info, end)
	case err == nil:
		return w.compare(ctx, info, rows)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	up, err := w.e.to.Create(ctx, w.Name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	if err := w.stream(ctx, up, end); err != nil {
		_ = up.Abort() // the first failure is the one to report
		return err
	}
	if _, err = up.Commit(ctx); errors.Is(err, objstore.ErrExists) {
		return w.e.other(w.Name)
	}
	return err
}

// stream writes all frames of the shard, and the end of the archive.
func (w *archive) stream(ctx context.Context, up objstore.Upload, end []byte) error {
	return w.pass(ctx, end, func(p []byte) error {
		_, err := up.Write(p)
		return err
	})
}

// pass gives put the bytes of the archive in order, and counts them.
func (w *archive) pass(ctx context.Context, end []byte, to func([]byte) error) error {
	if w.cut {
		w.Bytes = 0
	}
	put := func(p []byte) error {
		if w.sum != nil {
			w.sum.Write(p)
		}
		if w.cut {
			w.Bytes += int64(len(p))
		}
		w.e.report(0, int64(len(p)))
		return to(p)
	}
	for f, err := range w.e.d.Frames(ctx, reader.Range{From: w.number, To: w.number + 1}) {
		if err == nil {
			err = put(f.Decoded)
		}
		if err != nil {
			return err
		}
	}
	return put(end)
}

// compareCut compares an existing archive with a shard without its removed samples, for which the
// data set has no hash.
func (w *archive) compareCut(ctx context.Context, info objstore.Info, end []byte) error {
	obj, err := w.e.to.Open(ctx, w.Name)
	if err != nil {
		return err
	}
	defer obj.Close()
	var buf []byte
	off := int64(0)
	err = w.pass(ctx, end, func(p []byte) error {
		if int64(len(p)) > info.Size-off {
			return w.e.other(w.Name)
		}
		buf = slices.Grow(buf[:0], len(p))[:len(p)]
		if err := obj.ReadAt(ctx, buf, off); err != nil {
			return err
		}
		off += int64(len(p))
		if !bytes.Equal(buf, p) {
			return w.e.other(w.Name)
		}
		return nil
	})
	if err == nil && off != info.Size {
		err = w.e.other(w.Name)
	}
	w.found = err == nil
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
	var all sections.ShardHasher
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
	if err := read(len(sections.EndOfArchive(true))); err != nil {
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
