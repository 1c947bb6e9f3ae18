package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/internal/sys/keysort"
	"github.com/shardtool/shardtool/objstore"
)

// CommitOptions are the options of Commit.
type CommitOptions struct {
	// Name begins the shards' names. It may be empty if all parts in the store have one name.
	Name string
	// Parts is the number of parts the pack was divided into.
	Parts int
	// KeepDuplicates allows one key in several shards.
	KeepDuplicates bool
	// Memory bounds the memory for sorting key hashes, as in Options; the default is 256 MiB. The
	// rows of all shards, 16 bytes a block, are held in addition. TempDir is the folder for sorting
	// that does not fit; the default is the folder of the system.
	Memory  int64
	TempDir string
	// Base is the data set to which a layer belongs that LayerParts began; else nil.
	Base objstore.Store
}

// Commit publishes the shards of all parts that PackPart put, in the order of the parts, as one
// generation. If parts are missing it publishes nothing, and the error wraps ErrMissing and lists
// them. Parts that do not belong together are ErrSource, as in Missing; a key in two parts is
// format.ErrDuplicate.
//
// Commit does not read shards: the parts' manifests and keys tables have all it needs. The
// generation is a function of the parts, so Commit may be repeated and may run several times at
// once; all calls have the same result.
func Commit(ctx context.Context, store objstore.Store, opt CommitOptions) (*Result, error) {
	release, err := hold(ctx, store, fmt.Sprintf("commit of %d parts", opt.Parts), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := findParts(ctx, store, opt.Name, opt.Parts)
	if err != nil {
		return nil, err
	}
	w, err := s.writer(store, opt)
	if err != nil {
		return nil, err
	}
	if s.report.Published {
		res, err := w.published(ctx)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", store, err)
		}
		res.Adopted = 0
		return res, nil
	}
	if len(s.report.Missing) > 0 {
		return nil, s.report.missing()
	}
	left, err := s.leftOut()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	w.opt.LeftOut = func() map[string]int64 { return left }
	defer func() { _ = w.sum.close() }()
	if err := s.join(ctx, w, opt.Base); err != nil {
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	res, err := w.publish(ctx)
	if err == nil && w.input.layer != nil {
		follows(ctx, store, opt.Base, w.input.layer, slog.New(slog.DiscardHandler).Warn)
	}
	return res, err
}

// missing is the error that lists the missing parts.
func (r *PartsReport) missing() error {
	text := fmt.Sprintf("%d of %d: %s", len(r.Missing), r.Parts, partList(r.Missing))
	for _, part := range r.Missing {
		if why := r.Damaged[part]; why != "" {
			text += fmt.Sprintf(" (part %d: %s)", part, why)
			break
		}
	}
	if r.stale > 0 {
		text += fmt.Sprintf("; %d manifests of parts do not follow %s: another pack has published since, or the parts have another name",
			r.stale, generationText(r.parent))
	}
	return fmt.Errorf("%w, %s: pack them, then commit again", ErrMissing, text)
}

// partList formats parts as `sbatch --array` takes them: "2,7".
func partList(parts []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(parts), "[]"), " ", ",")
}

// writer returns a Writer that has no samples to write.
func (s *partSet) writer(store objstore.Store, opt CommitOptions) (*Writer, error) {
	all := Options{Name: s.report.Name, KeepDuplicates: opt.KeepDuplicates, Memory: opt.Memory, TempDir: opt.TempDir}
	switch mode := s.common["mode"]; mode {
	case ModeOverwrite.String():
		all.Mode = ModeOverwrite
	case ModeAppend.String():
		all.Mode = ModeAppend
	case ModeCreate.String(), "":
	default:
		return nil, fmt.Errorf("%w: the parts have mode %q, which this version does not know", format.ErrCorrupt, mode)
	}
	p, err := newPlan(all, 0, 0)
	if err != nil {
		return nil, err
	}
	p.generation = s.prior.next()
	w := &Writer{plan: p, puts: newPuts(store), prior: s.prior, common: s.common}
	w.sum = newTotals(&w.opt, w.base())
	return w, nil
}

// join puts together in w what the parts have.
func (s *partSet) join(ctx context.Context, w *Writer, base objstore.Store) (err error) {
	if w.input.layer, err = s.settles(base); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *Writer) error{s.merge, s.joinTypes, s.joinLists, s.sortKeys} {
		if err := step(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// merge adds up the parts' manifests, in the order of the parts.
func (s *partSet) merge(_ context.Context, w *Writer) error {
	for part, m := range s.parts {
		w.sum.entries = append(w.sum.entries, m.Shards...)
		for _, f := range m.Fields {
			w.sum.add(f)
		}
		for _, a := range m.Attributes {
			if err := w.sum.attribute(a); err != nil {
				return fmt.Errorf("%w (part %d)", err, part)
			}
		}
		w.sum.addValues(m)
		skipped, err := skippedBefore(m.Meta)
		if err != nil {
			return format.InShard(s.object(part), err)
		}
		w.skipped.Add(skipped)
	}
	return nil
}

// joinLists appends the parts' lists of skipped samples, in order.
func (s *partSet) joinLists(ctx context.Context, w *Writer) error {
	for _, m := range s.parts {
		for _, name := range skippedLists(&m.Totals) {
			if err := copyList(ctx, w, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyList(ctx context.Context, w *Writer, name string) error {
	obj, err := w.puts.store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return err
	}
	return readThrough(ctx, obj, info.Size, w.sum.lists.add)
}

// sortKeys reads the parts' keys tables, several at a time, and gives their samples the numbers
// that they have in the whole.
func (s *partSet) sortKeys(ctx context.Context, w *Writer) error {
	const together = 8
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(together)
	var mu sync.Mutex
	first := w.sum.numbers
	if w.input.layer != nil { // the base's keys table serves
		w.sum.prog.Samples = int64(s.report.Samples)
		return nil
	}
	for part, m := range s.parts {
		from, samples := first, metadata.SumSamples(m.Shards)
		if first += samples; samples == 0 {
			continue
		}
		if m.Keys == (format.Hash{}) && allNumbered(m.Shards) {
			continue
		}
		if m.Keys == (format.Hash{}) {
			return errors.Join(work.Wait(),
				format.InShard(s.object(part), fmt.Errorf("%w: it names no keys table", format.ErrCorrupt)))
		}
		if w.sum.tabled == nil {
			w.sum.tabled = map[string]bool{}
		}
		for i := range m.Shards {
			w.sum.tabled[m.Shards[i].Name] = true
		}
		work.Go(func() error {
			keys, err := openKeys(workCtx, w.puts.store, m.KeysName(), samples)
			if err != nil {
				return err
			}
			defer keys.close()
			return addKeys(w.sum.keys, &mu, keys, from)
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	w.sum.prog.Samples = int64(first - w.sum.numbers)
	w.sum.numbers = first
	return nil
}

// addKeys adds the entries of a keys table; from is the number of its first sample.
func addKeys(to *keysort.Sorter[samplekey.Entry], mu *sync.Mutex, keys *keyStream, from uint64) error {
	for {
		if err := keys.fill(); err != nil || len(keys.ready) == 0 {
			return err
		}
		mu.Lock()
		for _, e := range keys.ready {
			if err := to.Add(samplekey.Entry{Hash: e.Hash, Number: from + e.Number}); err != nil {
				mu.Unlock()
				return err
			}
		}
		mu.Unlock()
		keys.ready = nil
	}
}

// joinTypes records the types of all parts. A field that two parts have with different types is an
// error.
func (s *partSet) joinTypes(_ context.Context, w *Writer) error {
	all, from := map[string]string{}, map[string]int{}
	var wide kinds.Kinds // of a pack: rows of several parts may differ
	for part, m := range s.parts {
		stated, err := kinds.Parse(m.Meta, kinds.Key)
		if err != nil {
			return format.InShard(s.object(part), err)
		}
		for name, kind := range stated {
			if before, ok := wide[name]; ok {
				kind = kinds.Wider(before, kind)
			} else if wide == nil {
				wide = kinds.Kinds{}
			}
			wide[name] = kind
		}
		types, err := typesOf(m.Meta, s.object(part))
		if err != nil {
			return err
		}
		for name, kind := range types {
			if before, ok := all[name]; ok && before != kind {
				return fmt.Errorf("%w: field %q is %s in part %d and %s in part %d: declare it in all of them, and write one of these parts again",
					ErrSource, name, before, from[name], kind, part)
			} else if !ok {
				all[name], from[name] = kind, part
			}
		}
	}
	if len(all)+len(wide) == 0 {
		return nil
	}
	w.common = maps.Clone(w.common)
	if len(wide) > 0 {
		maps.Copy(w.common, wide.Meta())
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	w.common[MetaTypes] = string(text)
	return nil
}
