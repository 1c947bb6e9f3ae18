package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/writer/internal/stacker"
)

// finished reports whether the current generation is what this pack would publish. The run that
// published it may have died, or lost its connection, before it could report so.
func (w *Writer) finished() bool {
	return w.prior.manifest != nil && w.fingerprint != "" && w.differs(w.prior.manifest.Meta, w.mode()) == nil
}

// finishedFrom is finished of a run with another fingerprint.
func (w *Writer) finishedFrom(fingerprint string) bool {
	p := w.plan
	p.fingerprint = fingerprint
	return w.prior.manifest != nil && p.differs(w.prior.manifest.Meta, w.mode()) == nil
}

// published is the result of the pack that finished found.
func (w *Writer) published(ctx context.Context) (*Result, error) {
	if err := w.puts.checkObjects(ctx, w.prior.manifest, w.prior.tables); err != nil {
		return nil, err
	}
	res, err := w.prior.result(ctx, w.puts.store)
	if err != nil {
		return nil, err
	}
	m := w.prior.manifest
	for i := range m.Shards {
		if s := &m.Shards[i]; strings.HasPrefix(s.Name, shardPrefix(w.opt.Name, m.Generation)) {
			res.Adopted += int64(s.Samples)
		}
	}
	if m.Meta["skipped"] != "" {
		res.SkippedList = lastWord(m.Meta[metaSkippedList])
	}
	if res.Skipped, err = skippedBefore(m.Meta); err != nil {
		return nil, err
	}
	left, err := leftOutBefore(m.Meta)
	if left != nil && w.opt.LeftOut != nil { // the others are names
		for rule, n := range w.opt.LeftOut() {
			left[rule] -= n
		}
	}
	res.LeftOut = tally.RowsOf(left)
	return res, err
}

// skippedBefore is how many samples the run that wrote META left out.
func skippedBefore(meta format.Metadata) (int64, error) {
	text, ok := meta["skipped"]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: metadata skipped is %q", format.ErrCorrupt, text)
	}
	return n, nil
}

// adopt adopts the next shard if the store has it and it was written from the same place in the
// same sources with the same options. It returns the source's cursor after the shard, or ok = false
// if there is no such shard.
func (w *Writer) adopt(ctx context.Context) (cursor string, ok bool, err error) {
	if err := w.usable(); err != nil {
		return "", false, err
	}
	name := w.shardName(w.shard.number)
	ix, entry, err := unfinished(ctx, w.puts.store, name)
	if ix != nil {
		err = cmp.Or(w.sameOrigin(name, ix.Meta), err)
	}
	if errors.Is(err, format.ErrCorrupt) {
		err = fmt.Errorf("%w; no data set names it: remove it, and pack again", err)
	}
	if ix == nil || err != nil {
		return "", false, err
	}
	skipped, err := skippedBefore(ix.Meta)
	left, lerr := leftOutBefore(ix.Meta)
	err = cmp.Or(err, lerr)
	for _, at := range ix.Attributes {
		if err == nil {
			err = sameKind(w.attrs, at)
			w.attrs[at.Name] = at.Kind
		}
	}
	if err != nil {
		return "", false, format.InShard(name, err)
	}
	if w.input.layer != nil {
		if err := w.input.layer.adopts(ctx, ix); err != nil {
			return "", false, err
		}
	}
	w.countSkipped(skipped, fmt.Errorf("the run before, in %s", name))
	w.shard.last = nil // as after the run that put the shard
	if ix.Layout != nil {
		w.shard.last = stacker.Of(ix.Layout)
	}
	w.shard.number++
	w.adoptedLeft = w.adoptedLeft.Plus(tally.RowsOf(left))
	return ix.Meta["cursor_end"], true, w.line.send(ctx, &block{adopt: &adopted{entry: entry, index: ix}}, 0)
}

// sameOrigin compares the provenance of a shard with this run.
func (w *Writer) sameOrigin(name string, meta format.Metadata) error {
	if c := w.differs(meta, fact{"place in the sources", "cursor_start", w.shard.start.cursor}); c != nil {
		return fmt.Errorf("%w: %s was written with other %s (%s; now %s): repeat that pack to resume it, or delete its shards "+
			"with `shardtool prune`", ErrSource, name, c.what, meta[c.key], c.want)
	}
	return nil
}
