package writer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/objstore"
)

// putKeys puts the keys table.
func (w *Writer) putKeys(ctx context.Context, m *metadata.Manifest) (format.Hash, error) {
	old, err := w.oldKeys(ctx)
	if err != nil {
		return format.Hash{}, err
	}
	defer old.close()
	keys := mergeKeys(old.next, w.sum.keys.All())
	if !w.opt.KeepDuplicates {
		keys = w.refuseDuplicates(ctx, m, keys)
	}
	table := spool{dir: w.opt.TempDir, room: int(min(keysMemory, w.opt.Memory/8))}
	defer table.close()
	table.grow((samplekey.Table{Entries: w.sum.numbers}).Size())
	if err := samplekey.WriteTable(&table, w.sum.numbers, keys); err != nil {
		return format.Hash{}, err
	}
	return table.put(ctx, w.puts, names.Keys)
}

// keysMemory is the largest keys table that is held in memory before it is put: some million
// keys.
const keysMemory = 16 << 20

// mergeKeys yields the entries of a table that next returns, and others, in ascending order.
func mergeKeys(next func() (samplekey.Entry, bool, error),
	others iter.Seq2[samplekey.Entry, error]) iter.Seq2[samplekey.Entry, error] {
	return func(yield func(samplekey.Entry, error) bool) {
		prior, more, err := next()
		for e, rerr := range others {
			if err != nil || rerr != nil {
				yield(samplekey.Entry{}, errors.Join(err, rerr))
				return
			}
			for more && err == nil && prior.Compare(e) < 0 {
				if !yield(prior, nil) {
					return
				}
				prior, more, err = next()
			}
			if err == nil && !yield(e, nil) {
				return
			}
		}
		for ; more && err == nil; prior, more, err = next() {
			if !yield(prior, nil) {
				return
			}
		}
		if err != nil {
			yield(samplekey.Entry{}, err)
		}
	}
}

// keyStream reads a keys table from front to back, several groups at a time.
type keyStream struct {
	ctx   context.Context
	obj   objstore.Object // nil for no table
	name  string
	t     samplekey.Table
	group int64
	ready []samplekey.Entry
	buf   []byte
	held  []samplekey.Entry
}

// oldKeys opens the keys table of the generation appended to.
func (w *Writer) oldKeys(ctx context.Context) (*keyStream, error) {
	base := w.base()
	if base == nil || base.Keys == (format.Hash{}) {
		return &keyStream{ctx: ctx}, nil
	}
	return openKeys(ctx, w.puts.store, base.KeysName(), metadata.SumSamples(base.Shards))
}

// openKeys opens the keys table of that many samples.
func openKeys(ctx context.Context, store objstore.Store, name string, entries uint64) (*keyStream, error) {
	s := &keyStream{ctx: ctx, name: name, t: samplekey.Table{Entries: entries}}
	obj, err := store.Open(ctx, s.name)
	if err != nil {
		return nil, err
	}
	info, err := obj.Info(ctx)
	if err == nil && info.Size != s.t.Size() {
		err = fmt.Errorf("%w: %s has %d bytes; %d samples need %d", format.ErrCorrupt, s.name, info.Size, s.t.Entries,
			s.t.Size())
	}
	if err != nil {
		obj.Close()
		return nil, err
	}
	s.obj = obj
	return s, nil
}

func (s *keyStream) rewind() { s.group, s.ready = 0, nil }

func (s *keyStream) next() (e samplekey.Entry, ok bool, err error) {
	if err := s.fill(); err != nil || len(s.ready) == 0 {
		return e, false, err
	}
	e, s.ready = s.ready[0], s.ready[1:]
	return e, true, nil
}

// fill reads the next entries into ready. At the end there are none.
func (s *keyStream) fill() (err error) {
	if len(s.ready) > 0 || s.obj == nil || s.group >= s.t.Groups() {
		return nil
	}
	const step = 64 // groups: about 900 KB
	to := min(s.group+step, s.t.Groups())
	off, n := s.t.Range(s.group, to)
	s.buf = slices.Grow(s.buf[:0], int(n))[:n]
	if err := s.obj.ReadAt(s.ctx, s.buf, off); err != nil {
		return err
	}
	if s.held, err = s.t.Decode(s.held[:0], s.buf, s.group, to); err != nil {
		return format.InShard(s.name, err)
	}
	s.ready, s.group = s.held, to
	return nil
}

func (s *keyStream) close() {
	if s.obj != nil {
		s.obj.Close()
	}
}

// refuseDuplicates yields the entries, and an error at a key that is in two shards.
func (w *Writer) refuseDuplicates(ctx context.Context, m *metadata.Manifest,
	keys iter.Seq2[samplekey.Entry, error]) iter.Seq2[samplekey.Entry, error] {
	return func(yield func(samplekey.Entry, error) bool) {
		var last samplekey.Entry
		firstEntry := true
		for e, err := range keys {
			if err == nil && !gone(m.Removed, e.Number) { // the key of a removed sample is free
				if !firstEntry && e.Hash == last.Hash {
					err = w.differ(ctx, m, last, e)
				}
				last, firstEntry = e, false
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// differ returns an error if two entries with one hash have one key: among 10^9 keys some pair may
// share a hash by chance.
func (w *Writer) differ(ctx context.Context, m *metadata.Manifest, x, y samplekey.Entry) error {
	a, shardA, err := w.keyOf(ctx, m, x.Number)
	if err != nil {
		return err
	}
	b, shardB, err := w.keyOf(ctx, m, y.Number)
	if err == nil && a == b {
		err = fmt.Errorf("%w %q: sample %d in %s and sample %d in %s: rename one", ErrDuplicateKey, a, x.Number, shardA,
			y.Number, shardB)
	}
	return err
}

// keyOf reads the key of a sample number from the index of its shard.
func (w *Writer) keyOf(ctx context.Context, m *metadata.Manifest, number uint64) (key, shard string, err error) {
	for i := range m.Shards {
		s := &m.Shards[i]
		if number >= s.Samples {
			number -= s.Samples
			continue
		}
		ix, _, err := loadIndex(ctx, w.puts.store, s.IndexObject())
		if err != nil {
			return "", s.Name, err
		}
		return ix.Keys.At(int(number)), s.Name, nil
	}
	return "", "", fmt.Errorf("none of %d shards has sample number %d", len(m.Shards), number) // a bug
}
