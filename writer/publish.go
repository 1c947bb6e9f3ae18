package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore"
)

// Result describes the generation that Close published.
type Result struct {
	// Tables is the object name of the generation's tables. Its 16 hexadecimal digits name the
	// generation after '@'.
	Tables     string
	Digest     format.Hash
	Generation uint64
	// Samples, Shards, Blocks, Bytes and PayloadBytes describe the whole generation.
	Samples, Shards, Blocks, Bytes, PayloadBytes uint64
	// Written, Adopted and Skipped are samples of this run: written, found in shards of an earlier
	// run, left out.
	Written, Adopted, Skipped int64
	// LeftOut is how many rows of the sources each rule left out. Of these, null rows and duplicates
	// are among Skipped too.
	LeftOut RowsLeft
	// SkippedList is the object that lists the skipped samples (SPEC 6.4); empty if there are none.
	SkippedList string
	// Already reports that an equal run had published before and nothing was done.
	Already bool
}

// publish puts the keys table, the tables and manifest.json. All goroutines have ended.
func (w *Writer) publish(ctx context.Context) (*Result, error) {
	if err := w.checkSkipped(); err != nil {
		return nil, err
	}
	if w.sum.prog.Samples == 0 {
		return nil, fmt.Errorf("%w to write: nothing was published", ErrEmpty)
	}
	m, err := w.manifest()
	if err != nil {
		return nil, err
	}
	list, err := w.putSkipped(ctx, m)
	if err != nil {
		return nil, err
	}
	res, err := w.publishAfter(ctx, m)
	for errors.Is(err, ErrLost) && w.rebase(ctx, m) {
		res, err = w.publishAfter(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	res.Written, res.Adopted, res.Skipped = w.sum.prog.Samples-w.sum.prog.Adopted, w.sum.prog.Adopted, w.skipped.Load()
	res.SkippedList, res.LeftOut = list, w.leftOut()
	return res, nil
}

// publishAfter publishes m after the generation that was current when it was last read.
func (w *Writer) publishAfter(ctx context.Context, m *metadata.Manifest) (_ *Result, err error) {
	if w.input.layer != nil { // the base's keys table serves
		err = w.input.layer.settle(ctx, m, w.puts)
	} else if m.Keys, err = w.keysTable(ctx, m); err != nil {
		err = overtaken(ctx, w.puts.store, w.prior.info, err)
	}
	if err != nil {
		return nil, err
	}
	p := publication{store: w.puts.store, puts: w.puts, prior: &w.prior, equal: w.common != nil, log: w.opt.Log}
	return p.put(ctx, m)
}

// rebase makes m, which appends to a generation, follow the current one instead. It reports false
// where that has other samples: only their removal, return or purge leaves the numbers of the new
// ones as they are.
func (w *Writer) rebase(ctx context.Context, m *metadata.Manifest) bool {
	base := w.base()
	if base == nil {
		return false
	}
	var now current
	if sum, err := now.read(ctx, w.puts.store); err != nil || sum == nil || sum.Tables == w.prior.tables {
		return false // the error that brought us here is the one to report
	}
	same := slices.EqualFunc(base.Shards, now.manifest.Shards,
		func(a, b metadata.ShardEntry) bool { return a.Hash == b.Hash && a.Samples == b.Samples })
	if !same || (base.Keys == format.Hash{}) != (now.manifest.Keys == format.Hash{}) {
		return false
	}
	w.opt.Log.Info("samples were removed, restored or purged meanwhile; appending after that", "generation", now.tables)
	w.prior = now
	m.Generation, m.Parent = now.next(), now.tables
	m.Removed, m.Purged = now.manifest.Removed, now.manifest.Purged
	copy(m.Shards, now.manifest.Shards)
	return true
}

// publication puts the tables and manifest.json of a generation that follows another one.
type publication struct {
	store objstore.Store
	puts  *puts
	prior *current
	equal bool // another program may be the first to publish the same generation
	log   *slog.Logger
}

// put publishes a generation whose other objects are in the store. An error that wraps ErrLost
// means that another program has published since prior was read, and that nothing was changed.
func (p *publication) put(ctx context.Context, m *metadata.Manifest) (*Result, error) {
	tables, tablesName, t, err := encodeTables(m)
	if err != nil {
		return nil, err
	}
	if err := p.puts.immutable(ctx, tablesName, tables); err != nil {
		return nil, err
	}
	if err := p.puts.checkObjects(ctx, m, tablesName); err != nil {
		return nil, err
	}
	cond := objstore.Condition{IfNoneMatch: true}
	if p.prior.manifest != nil {
		cond = objstore.Condition{IfMatch: p.prior.info.ETag}
	}
	summary := t.Summary(tablesName).Encode()
	_, err = objstore.Put(ctx, p.store, format.ManifestName, summary, cond)
	lost := errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrChanged)
	res := resultOf(t, tablesName)
	if err != nil && (!lost || p.equal) { // perhaps only the response was lost, or an equal commit was first
		if there, _, rerr := objstore.ReadAll(ctx, p.store, format.ManifestName, maxSummary); rerr == nil &&
			bytes.Equal(there, summary) {
			res.Already, err = lost, nil
		}
	}
	if err != nil && lost {
		return nil, fmt.Errorf("%w: it published %s in %v first; this pack has changed nothing (%w)", ErrLost,
			format.ManifestName, p.store, err)
	}
	if err != nil {
		return nil, err
	}
	if err := p.puts.checkObjects(ctx, m, tablesName); errors.Is(err, ErrLost) {
		return nil, fmt.Errorf("%w: generation %d was published in %v, and then: %w; another program deleted or replaced them: "+
			"do not read this generation; restore these objects, or pack again over it", ErrIncomplete, res.Generation,
			p.store, err)
	} else if err != nil {
		p.log.Warn("the generation is published; checking its objects afterwards failed", "error", err)
	}
	if err := p.confirm(ctx, res); errors.Is(err, ErrLost) {
		return nil, err
	} else if err != nil {
		p.log.Warn("the generation is published; reading "+format.ManifestName+" again failed", "error", err)
	}
	return res, nil
}

// confirm reads manifest.json again: it must name the generation that was published, or one that
// follows it. A store that checks a condition and then writes lets two writers succeed, and what
// the first of them published is lost.
func (p *publication) confirm(ctx context.Context, res *Result) error {
	sum, _, err := loadSummary(ctx, p.store)
	if err != nil {
		return err
	}
	for name := sum.Tables; name != res.Tables; {
		t, err := loadTotals(ctx, p.store, name)
		if err != nil {
			return err
		}
		if t.Generation <= res.Generation {
			return fmt.Errorf("%w: %v took %s with %s from this program and now has it with %s: the store let two writers succeed, "+
				"although each put it on the condition that nobody else had; nothing of this program's generation is visible; "+
				"let one program at a time write there, or use a store that honours conditional puts, and run again",
				ErrLost, p.store, format.ManifestName, res.Tables, sum.Tables)
		}
		name = t.Parent
	}
	return nil
}

// checkSkipped compares the share of skipped samples with the one allowed.
func (w *Writer) checkSkipped() error {
	skipped, samples := w.skipped.Load(), w.sum.prog.Samples
	if share := w.opt.Faults.MaxSkippedShare; share > 0 && float64(skipped) > share*float64(samples+skipped) {
		return fmt.Errorf("%w: %d of %d, at most a share of %g is allowed", ErrSkipped, skipped, samples+skipped, share)
	}
	return nil
}

// encodeTables encodes the tables of a generation and reads them back.
func encodeTables(m *metadata.Manifest) (tables []byte, name string, t *metadata.Tables, err error) {
	tables, hash, _, err := metadata.EncodeTables(m)
	if err != nil {
		return nil, "", nil, err
	}
	if t, err = tablesOf(tables); err == nil {
		_, err = t.Load()
	}
	if err != nil {
		return nil, "", nil, fmt.Errorf("the new tables cannot be read back: %w", err)
	}
	return tables, names.Tables(hash), t, nil
}

func resultOf(t *metadata.Tables, name string) *Result {
	return &Result{
		Tables: name, Digest: t.Digest, Generation: t.Generation, Samples: t.Samples, Shards: t.Shards,
		Blocks: t.Blocks,
		Bytes:  t.Bytes, PayloadBytes: t.PayloadBytes,
	}
}

// result describes the generation, to which nothing was done.
func (c *current) result(ctx context.Context, store objstore.Store) (*Result, error) {
	t, err := loadTotals(ctx, store, c.tables)
	if err != nil {
		return nil, err
	}
	res := resultOf(t, c.tables)
	res.Already = true
	return res, nil
}

// manifest is the generation without its keys table.
func (w *Writer) manifest() (*metadata.Manifest, error) {
	m := &metadata.Manifest{Totals: metadata.Totals{Generation: w.generation, Parent: w.prior.tables}}
	m.Meta = format.Metadata{"tool": toolVersion(), "options": w.options(), "mode": w.opt.Mode.String()}
	maps.Copy(m.Meta, w.input.meta)
	if w.fingerprint != "" {
		m.Meta["source"] = w.fingerprint
	}
	if w.common != nil {
		m.Meta = maps.Clone(w.common)
	}
	setSkipped(m.Meta, w.skipped.Load())
	left := w.leftOut().LeftOut()
	if w.opt.LeftOut != nil {
		for rule, n := range w.opt.LeftOut() {
			left[rule] += n
		}
	}
	setLeftOut(m.Meta, left)
	if base := w.base(); base != nil {
		m.Shards = slices.Clone(base.Shards)
		m.Removed, m.Purged = base.Removed, base.Purged // its samples keep their numbers
	}
	w.sum.describe(m)
	if w.parts > 0 { // what it states of fields, the commit keeps of those that there are
		return m, setTypes(m, kinds.Key, w.base(), w.prior.tables)
	}
	setFeatures(m, w.base())
	return m, setTypes(m, MetaTypes, w.base(), w.prior.tables)
}

// putSkipped puts the list of this generation and names it in m.
func (w *Writer) putSkipped(ctx context.Context, m *metadata.Manifest) (name string, err error) {
	rest := skippedList{more: w.shard.unlisted} // after the last shard
	for _, l := range w.shard.left {
		rest.add(l.line)
	}
	if err := w.sum.lists.add(rest.text()); err != nil {
		return "", err
	}
	if name, err = w.sum.lists.put(ctx, w.puts); err != nil {
		return "", err
	}
	var names []string
	if base := w.base(); base != nil {
		names = skippedLists(&base.Totals)
	}
	if name != "" {
		names = append(names, name)
	}
	if len(names) > 0 {
		m.Meta[metaSkippedList] = strings.Join(names, " ")
	}
	return name, nil
}
