package writer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/fused"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/internal/foreign"
)

// Index makes a data set of plain tars of another tool, in place: names are objects of the store,
// in order, that end in .tar. It reads the archives once and writes only their indexes, beside
// them, and the tables and manifest over all. From then on nobody may change the archives; readers
// detect it.
//
// Members that share the path up to the first dot of the base name are a sample; they must be
// adjacent. What cannot be indexed is an error with archive, offset and member: samples with other
// members between theirs, links and sparse files, names that are not keys, archives that were
// truncated or joined. An archive without samples is left out, with a warning to Options.Log.
//
// Of the options Index uses Mode, KeepDuplicates, BlockSize, Workers, TempDir, Progress and Log. An
// index is named by its content and never replaced: with ModeOverwrite, archives that changed or
// are cut into other blocks get another index, and earlier generations keep theirs. With ModeAppend
// the archives follow the existing ones. After an interruption the same call repeats the work and
// puts the same objects.
func Index(ctx context.Context, store objstore.Store, names []string, opt Options) (*Result, error) {
	opt.Plain = true
	w, err := prepare(ctx, store, opt, nil, 0, 0)
	if err != nil {
		return nil, err
	}
	defer w.release()
	if err := w.indexable(names); err != nil {
		return nil, err
	}
	if w.fingerprint, err = archivesSum(ctx, store, names); err != nil {
		return nil, err
	}
	w.start(ctx)
	defer func() { _ = w.Abort() }()
	if err := w.indexAll(ctx, names); err != nil {
		return nil, err
	}
	res, err := w.Close(ctx)
	if err == nil {
		res.Written, res.Adopted = w.sum.prog.Samples, 0 // indexing adopts no earlier run
	}
	return res, err
}

// indexable refuses names that cannot be shards, or are shards of the data set already.
func (w *Writer) indexable(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: no archive was named", ErrEmpty)
	}
	seen := map[string]bool{}
	if w.prior.manifest != nil && w.opt.Mode == ModeAppend {
		for i := range w.prior.manifest.Shards {
			seen[w.prior.manifest.Shards[i].Name] = true
		}
	}
	for _, name := range names {
		if err := metadata.CheckShardName(name); err != nil {
			return err
		}
		if plain, err := metadata.ShardFormat(name); err != nil || !plain {
			return fmt.Errorf("%s is not a plain tar: pack it", name)
		}
		if seen[name] {
			return fmt.Errorf("%s is in the data set already, or was named twice", name)
		}
		seen[name] = true
	}
	return nil
}

// archivesSum is the fingerprint of the archives' names and sizes.
func archivesSum(ctx context.Context, store objstore.Store, names []string) (string, error) {
	h := sha256.New()
	for _, name := range names {
		info, err := store.Stat(ctx, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %d\n", name, info.Size)
	}
	return "archives:" + hex.EncodeToString(h.Sum(nil)), nil
}

// indexAll reads several archives at once and sends their indexes in order.
func (w *Writer) indexAll(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancel(ctx)
	var work errgroup.Group
	work.SetLimit(w.opt.Workers)
	defer func() { // waits for every goroutine
		cancel()
		_ = work.Wait()
	}()
	type done struct {
		a   *adopted
		err error
	}
	var watch fused.Watch
	var ahead []chan done // of the archives that were begun, in order
	for len(names) > 0 || len(ahead) > 0 {
		for len(names) > 0 && len(ahead) < 2*w.opt.Workers {
			name, out := names[0], make(chan done, 1)
			names, ahead = names[1:], append(ahead, out)
			work.Go(func() error {
				a, err := w.indexOne(ctx, name)
				out <- done{a, err}
				return nil
			})
		}
		d := <-ahead[0]
		ahead = ahead[1:]
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.err != nil:
			return d.err
		case d.a == nil:
			continue
		}
		watch.Add(&d.a.fused)
		for _, f := range d.a.index.Fields {
			if err := format.CheckField(f); err != nil {
				return format.InShard(d.a.entry.Name, err)
			}
		}
		if err := w.line.send(ctx, &block{adopt: d.a}, 0); err != nil {
			return err
		}
	}
	w.warnFused(&watch)
	return nil
}

// indexOne reads one archive and puts its index. It returns nil if the archive has no samples.
func (w *Writer) indexOne(ctx context.Context, name string) (*adopted, error) {
	obj, err := w.puts.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	readSize := 1 << 20
	if objstore.TraitsOf(w.puts.store).Remote() {
		readSize = 8 << 20 // each read is a request
	}
	in, err := foreign.Read(ctx, obj, info.Size, readSize, w.blockFull)
	if err != nil {
		return nil, format.InShard(name, err)
	}
	if in.Samples == 0 {
		w.opt.Log.Warn("leaving out an archive without samples", "archive", name)
		return nil, nil
	}
	ix := in.Index.Finish(format.Metadata{"tool": toolVersion(), "content": in.Content.String(), metaArchive: name})
	ix.Foreign, ix.End = true, uint64(info.Size-in.End)
	tail, err := metadata.AppendTail(nil, ix, true)
	if err != nil {
		return nil, format.InShard(name, err)
	}
	now, err := w.puts.store.Stat(ctx, name)
	if err == nil && (now.Size != info.Size || now.ETag != info.ETag) {
		err = fmt.Errorf("%s: %w while it was indexed: index it when nothing writes to it", name, objstore.ErrChanged)
	}
	if err != nil {
		return nil, err
	}
	sum := format.BlockHash(tail)
	e := entryOf(name, info.Size, ix, int64(len(tail)), metadata.HashIndex(tail), in.Content)
	e.Index.Sidecar = metadata.SidecarTag(sum[:8])
	if err := w.puts.immutable(ctx, e.IndexObject(), tail); err != nil {
		return nil, err
	}
	return &adopted{index: ix, entry: e, fused: in.Fused}, nil
}

// warnFused warns of archives in which the rule of the first dot fuses members.
func (w *Writer) warnFused(of *fused.Watch) {
	if of.Key != "" {
		w.opt.Log.Warn("members that look like samples of their own: "+fused.Rule, "so", of.Example())
	}
	if of.Few() {
		w.opt.Log.Warn("few samples for so many members: "+fused.Rule, "members", of.Files, "samples", of.Samples)
	}
}
