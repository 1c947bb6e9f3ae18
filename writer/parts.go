package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
)

// PartResult describes the part that PackPart put, or found in the store.
type PartResult struct {
	// Object names the part's manifest; empty when Published.
	Object string
	// Generation is the one that Commit will publish, or has published.
	Generation uint64
	// Samples, Shards, Blocks, Bytes and PayloadBytes describe the part.
	Samples, Shards, Blocks, Bytes, PayloadBytes uint64
	// Written, Adopted and Skipped are samples of this run, as in Result. For a part that was
	// found, Written is 0 and Skipped is what the run that packed it left out.
	Written, Adopted, Skipped int64
	// LeftOut is as in Result.
	LeftOut RowsLeft
	// SkippedList is the object that lists the samples skipped; Commit joins the lists of all parts.
	SkippedList string
	// Already reports that the part was packed before and nothing was done. Published reports that
	// it was committed as well; of the counts, only Samples and Shards are then known.
	Already, Published bool
}

// PackPart packs one of that many parts of a source, counted from 0, into its shards and then puts
// the part's manifest. Readers see nothing until [Commit] has found all parts. Parts may be packed
// on any machines, in any order, at the same time.
//
// PackPart may be called again at any time. A part that was packed from the same sources with the
// same options is left alone; what a killed run put of it is adopted, as with Options.Resume. Two
// runs of one part at once put the same bytes and both succeed, unless one had to skip a sample
// that the other could read: then one of them gets ErrLost. Objects of other sources or options are
// ErrSource.
//
// The bytes of a part depend on the source, the options and the number of parts. MaxSkipped and
// MaxSkippedShare apply to each part. With ModeOverwrite and ModeAppend the parts follow the
// current generation, and Commit publishes only if it is still the current one; a pack in parts
// whose generation is the current one is complete, in these modes too. The source must not have
// been divided or read; PackPart does not close it.
func PackPart(ctx context.Context, store objstore.Store, src Splitter, part, parts int,
	opt Options) (*PartResult, error) {
	if parts < 1 || parts > MaxParts || part < 0 || part >= parts {
		return nil, fmt.Errorf("no part %d of %d: parts count from 0, and there are at most %d", part, parts, MaxParts)
	}
	if of, ok := src.(*layerSource); ok {
		opt = *of.pack
		release, err := of.hold(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	opt.Resume = true
	w, err := prepare(ctx, store, opt, src, part, parts)
	if err != nil {
		return nil, err
	}
	defer w.release()
	if w.finished() {
		return w.partCommitted(), nil
	}
	if res, err := w.packedBefore(ctx); res != nil || err != nil {
		return res, err
	}
	if err := src.Split(part, parts); err != nil {
		return nil, err
	}
	w.start(ctx)
	defer func() { _ = w.Abort() }()
	if err := w.writeAll(ctx, src); err != nil {
		return nil, err
	}
	var res *PartResult
	err = w.end(ctx, func() (err error) {
		res, err = w.putPart(ctx)
		return err
	})
	return res, err
}

// partCommitted describes the part as the generation has it that was committed.
func (w *Writer) partCommitted() *PartResult {
	m := w.prior.manifest
	res := &PartResult{Generation: m.Generation, Already: true, Published: true}
	prefix := partPrefix(w.opt.Name, m.Generation, w.part)
	for i := range m.Shards {
		if s := &m.Shards[i]; strings.HasPrefix(s.Name, prefix) {
			res.Samples += uint64(s.Samples)
			res.Shards++
		}
	}
	return res
}

// putPart puts the keys table and the manifest of a part whose shards are in the store. A part may
// have no samples.
func (w *Writer) putPart(ctx context.Context) (*PartResult, error) {
	if err := w.checkSkipped(); err != nil {
		return nil, err
	}
	m, err := w.manifest()
	if err != nil {
		return nil, err
	}
	m.Meta["part"] = strconv.Itoa(w.part)
	list, err := w.putSkipped(ctx, m)
	if err != nil {
		return nil, err
	}
	if w.input.layer != nil {
		w.input.layer.describe(m)
	} else if w.sum.numbers > 0 {
		if m.Keys, err = w.keysTable(ctx, m); err != nil {
			return nil, err
		}
	}
	data, _, t, err := encodeTables(m)
	if err != nil {
		return nil, err
	}
	if err := w.checkPart(ctx, m); err != nil {
		return nil, err
	}
	object := partObject(w.opt.Name, m.Generation, w.part, w.parts)
	if err := w.puts.immutable(ctx, object, data); err != nil {
		return nil, err
	}
	res := partResultOf(t, object)
	res.Written, res.Adopted, res.Skipped = w.sum.prog.Samples-w.sum.prog.Adopted, w.sum.prog.Adopted, w.skipped.Load()
	res.SkippedList, res.LeftOut = list, w.leftOut()
	return res, nil
}

func partResultOf(t *metadata.Tables, object string) *PartResult {
	return &PartResult{
		Object: object, Generation: t.Generation, Samples: t.Samples, Shards: t.Shards, Blocks: t.Blocks,
		Bytes:        t.Bytes,
		PayloadBytes: t.PayloadBytes,
	}
}

// packedBefore finds the part that an earlier run packed; nil if there is none or objects of it are
// missing.
func (w *Writer) packedBefore(ctx context.Context) (*PartResult, error) {
	object := partObject(w.opt.Name, w.generation, w.part, w.parts)
	t, err := loadTotals(ctx, w.puts.store, object)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w; no data set names it: remove it, and pack the part again", err)
	}
	if err := w.samePart(object, t); err != nil {
		return nil, err
	}
	m, err := loadManifest(ctx, w.puts.store, object)
	if err != nil {
		return nil, fmt.Errorf("%w; no data set names it: remove it, and pack the part again", err)
	}
	if err := w.checkPart(ctx, m); errors.Is(err, ErrLost) {
		w.opt.Log.Warn("packing a part again because objects of it are missing or changed", "part", w.part, "why", err)
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	res := partResultOf(t, object)
	res.Already = true
	res.SkippedList = t.Meta[metaSkippedList]
	res.Skipped, err = skippedBefore(t.Meta)
	return res, err
}

// checkPart checks that the objects of a part are in the store as this run put them.
func (w *Writer) checkPart(ctx context.Context, m *metadata.Manifest) error {
	all, err := listPresent(ctx, w.puts.store, partPrefix(w.opt.Name, m.Generation, w.part))
	if err != nil {
		return err
	}
	for _, name := range besides(&m.Totals) {
		info, err := w.puts.store.Stat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		all[name] = info
	}
	faults, err := all.faults(ctx, m, w.puts)
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("%w: %s", ErrLost, faultsText(faults))
	}
	return err
}

// samePart compares the provenance in a part's manifest with this run.
func (w *Writer) samePart(object string, t *metadata.Tables) error {
	if t.Generation != w.generation || t.Parent != w.prior.tables {
		return fmt.Errorf("%w: %s was packed to follow %s, and the current generation is %s: remove it with `shardtool prune`", ErrSource, object,
			generationText(t.Parent), generationText(w.prior.tables))
	}
	if c := w.differs(t.Meta, w.mode(), fact{"part", "part", strconv.Itoa(w.part)}); c != nil {
		return w.otherPart(object, t.Meta, c)
	}
	return nil
}

// otherPart is the error of a part that differs from this run.
func (p *plan) otherPart(object string, meta format.Metadata, c *fact) error {
	return fmt.Errorf("%w: %s was packed with other %s (%s; now %s): pack all parts with one set of sources and options, or remove "+
		"what the others left with `shardtool prune`", ErrSource, object, c.what, meta[c.key], c.want)
}
