package writer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// putKeys puts the keys table. Its name is the hash of its bytes, so the bytes are produced twice:
// once to hash them, once to store them.
func (w *Writer) putKeys(ctx context.Context, m *format.Manifest) (format.Hash, error) {
	old, err := w.oldKeys(ctx)
	if err != nil {
		return format.Hash{}, err
	}
	defer old.close()
	if !w.opt.KeepDuplicates {
		if err := w.refuseDuplicates(ctx, m, old); err != nil {
			return format.Hash{}, err
		}
	}
	h := sha256.New()
	if err := w.writeKeys(h, old); err != nil {
		return format.Hash{}, err
	}
	sum := format.Hash(h.Sum(nil))
	size := (format.KeyTable{Entries: w.sum.numbers}).Size()
	return sum, w.puts.named(ctx, format.KeysName(sum), size, func(to io.Writer) error { return w.writeKeys(to, old) })
}

func (w *Writer) writeKeys(to io.Writer, old *keyStream) error {
	return format.WriteKeyTable(to, w.sum.numbers, w.allKeys(old))
}

// allKeys merges the entries of the generation appended to with the new ones.
func (w *Writer) allKeys(old *keyStream) iter.Seq2[format.KeyEntry, error] {
	return func(yield func(format.KeyEntry, error) bool) {
		old.rewind()
		prior, more, err := old.next()
		for rec, rerr := range w.sum.keys.All() {
			if err = errors.Join(err, rerr); err != nil {
				yield(format.KeyEntry{}, err)
				return
			}
			e := format.KeyEntry{Hash: binary.BigEndian.Uint64(rec), Number: binary.BigEndian.Uint64(rec[8:])}
			for more && err == nil && prior.Compare(e) < 0 {
				if !yield(prior, nil) {
					return
				}
				prior, more, err = old.next()
			}
			if err == nil && !yield(e, nil) {
				return
			}
		}
		for ; more && err == nil; prior, more, err = old.next() {
			if !yield(prior, nil) {
				return
			}
		}
		if err != nil {
			yield(format.KeyEntry{}, err)
		}
	}
}

// keyStream reads a keys table from front to back, several groups at a time.
type keyStream struct {
	ctx   context.Context
	obj   objstore.Object // nil for no table
	name  string
	t     format.KeyTable
	group int64
	ready []format.KeyEntry
	buf   []byte
	held  []format.KeyEntry
}

// oldKeys opens the keys table of the generation appended to.
func (w *Writer) oldKeys(ctx context.Context) (*keyStream, error) {
	base := w.base()
	if base == nil || base.Keys == (format.Hash{}) {
		return &keyStream{ctx: ctx}, nil
	}
	return openKeys(ctx, w.store, base.KeysName(), sumSamples(base.Shards))
}

// openKeys opens the keys table of that many samples.
func openKeys(ctx context.Context, store objstore.Store, name string, entries uint64) (*keyStream, error) {
	s := &keyStream{ctx: ctx, name: name, t: format.KeyTable{Entries: entries}}
	obj, err := store.Open(ctx, s.name)
	if err != nil {
		return nil, err
	}
	info, err := obj.Info(ctx)
	if err == nil && info.Size != s.t.Size() {
		err = fmt.Errorf("%w: %s has %d bytes; %d samples need %d", format.ErrCorrupt, s.name, info.Size, s.t.Entries, s.t.Size())
	}
	if err != nil {
		obj.Close()
		return nil, err
	}
	s.obj = obj
	return s, nil
}

func (s *keyStream) rewind() { s.group, s.ready = 0, nil }

func (s *keyStream) next() (e format.KeyEntry, ok bool, err error) {
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

// refuseDuplicates finds a key that is in two shards. Equal hashes are looked up: among 10^9 keys
// some pair may share one by chance.
func (w *Writer) refuseDuplicates(ctx context.Context, m *format.Manifest, old *keyStream) error {
	var last format.KeyEntry
	firstEntry := true
	for e, err := range w.allKeys(old) {
		if err != nil {
			return err
		}
		if gone(m.Removed, e.Number) { // its key is free
			continue
		}
		if !firstEntry && e.Hash == last.Hash {
			a, shardA, err := w.keyOf(ctx, m, last.Number)
			if err != nil {
				return err
			}
			b, shardB, err := w.keyOf(ctx, m, e.Number)
			if err != nil {
				return err
			}
			if a == b {
				return fmt.Errorf("%w %q: sample %d in %s and sample %d in %s: rename one",
					ErrDuplicateKey, a, last.Number, shardA, e.Number, shardB)
			}
		}
		last, firstEntry = e, false
	}
	return nil
}

// keyOf reads the key of a sample number from the index of its shard.
func (w *Writer) keyOf(ctx context.Context, m *format.Manifest, number uint64) (key, shard string, err error) {
	for i := range m.Shards {
		s := &m.Shards[i]
		if number >= s.Samples {
			number -= s.Samples
			continue
		}
		ix, _, err := loadIndex(ctx, w.store, s.IndexObject())
		if err != nil {
			return "", s.Name, err
		}
		return ix.Keys.At(int(number)), s.Name, nil
	}
	return "", "", fmt.Errorf("writer: none of %d shards has sample number %d", len(m.Shards), number) // a bug
}
