package curate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/sys/keysort"
)

// KeyList is a list of keys: text with one key in each line, in any order. A key may be there more
// than once.
type KeyList struct {
	// Name is the file's, for errors.
	Name string
	// Open opens the text. It is called again where missing keys have to be named.
	Open func() (io.ReadCloser, error)
}

// KeyFile is the list in a file.
func KeyFile(name string) *KeyList {
	return &KeyList{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }}
}

// each calls f with every key. The key is valid until f returns.
func (l *KeyList) each(ctx context.Context, f func(key []byte) error) error {
	from, err := l.Open()
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	defer from.Close()
	lines := bufio.NewReaderSize(from, max(256<<10, 2*format.MaxName))
	for line := 1; ; line++ {
		text, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return specf("%s: line %d is longer than a key can be, %d bytes: give one key in each line", l.Name, line,
				format.MaxName)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("keys: %s: %w", l.Name, err)
		}
		end := err != nil
		if text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")); len(text) > 0 {
			if err := f(text); err != nil {
				return err
			}
		}
		if line%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if end {
			return nil
		}
	}
}

// record is a key by two hashes, with a value: a weight, or the number of a sample.
type record = keysort.Checked

// same reports whether records are of one key.
func same(r, o record) bool { return r.Hash == o.Hash && r.Check == o.Check }

// recordOf is a key by its hashes: the one in the keys table and the next eight bytes of the
// SHA-256.
func recordOf(key []byte, value uint64) record {
	sum := sha256.Sum256(key)
	return record{Hash: binary.BigEndian.Uint64(sum[:]), Check: binary.BigEndian.Uint64(sum[8:]), Value: value}
}

// match sets the bits of the samples whose keys are listed.
func (m *maker) match(ctx context.Context, list *KeyList, chosen []byte) error {
	j := m.joiner(list.Name)
	defer j.close()
	j.each = list.each
	place := uint64(0)
	err := list.each(ctx, func(key []byte) error {
		place++
		return j.Add(recordOf(key, place))
	})
	if err != nil {
		return err
	}
	j.found = func(number uint64, _ record) error {
		chosen[number/8] |= 1 << (number % 8)
		return nil
	}
	return j.join(ctx)
}

// joiner finds the samples of keys. Both come in ascending order of hashes: keys from a sorter, the
// samples from the keys table, or from a sorter of those in the indexes.
type joiner struct {
	m    *maker
	name string // of the list, for errors
	*keysort.Sorter[record]
	once  bool // a key that is there twice is an error
	each  func(ctx context.Context, f func(key []byte) error) error
	found func(number uint64, r record) error

	ambiguous []suspect
	missing   []record // ten of them
}

// suspect is a sample whose hash several keys or samples have: its own key decides.
type suspect struct {
	number uint64
	keys   []record
}

func (m *maker) joiner(name string) *joiner {
	return &joiner{m: m, name: name, Sorter: keysort.New[record](m.spec.Temp, m.spec.Memory)}
}

func (j *joiner) close() { _ = j.Close() } // it only frees

// join calls found for every sample with a key of the list.
func (j *joiner) join(ctx context.Context) error {
	samples, done, err := j.m.samples(ctx)
	if err != nil {
		return err
	}
	defer done()
	next, stop := iter.Pull2(samples)
	defer stop()
	s := cursors{next: next}
	var keys []record // with one hash
	for r, err := range j.All() {
		if err != nil {
			return err
		}
		if len(keys) > 0 && r.Hash != keys[0].Hash {
			if err := j.one(&s, keys); err != nil {
				return err
			}
			keys = keys[:0]
		}
		if n := len(keys); n > 0 && same(keys[n-1], r) {
			if j.once {
				return j.twice(ctx, r)
			}
			continue
		}
		keys = append(keys, r)
	}
	if len(keys) > 0 {
		if err := j.one(&s, keys); err != nil {
			return err
		}
	}
	if err := j.decide(ctx); err != nil {
		return err
	}
	return j.nameMissing(ctx)
}

// one finds the samples of keys that have one hash.
func (j *joiner) one(s *cursors, keys []record) error {
	numbers, err := s.of(keys[0].Hash)
	switch {
	case err != nil:
		return err
	case len(numbers) == 1 && len(keys) == 1:
		return j.found(numbers[0], keys[0])
	case len(numbers) == 0:
		for _, k := range keys {
			j.miss(k)
		}
		return nil
	}
	keys = slices.Clone(keys)
	for _, n := range numbers {
		j.ambiguous = append(j.ambiguous, suspect{n, keys})
	}
	return nil
}

// decide reads the keys of the samples that hashes do not tell apart.
func (j *joiner) decide(ctx context.Context) error {
	slices.SortFunc(j.ambiguous, func(a, b suspect) int { return int(int64(a.number) - int64(b.number)) })
	met := map[record]bool{}
	for _, s := range j.ambiguous {
		key, err := j.m.keyOf(ctx, s.number)
		if err != nil {
			return err
		}
		own := recordOf([]byte(key), 0)
		for _, k := range s.keys {
			if k.Check == own.Check {
				met[k] = true
				if err := j.found(s.number, k); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range j.ambiguous {
		for _, k := range s.keys {
			if !met[k] {
				met[k] = true
				j.miss(k)
			}
		}
	}
	return nil
}

const mostNamed = 10

// miss keeps the ten with the least values: in a list of keys these are their places, so that the
// first ones are named, and found early.
func (j *joiner) miss(r record) {
	j.m.report.MissingKeys.Count++
	if len(j.missing) == mostNamed && r.Value >= j.missing[mostNamed-1].Value {
		return
	}
	at, _ := slices.BinarySearchFunc(j.missing, r, func(a, b record) int { return cmp.Compare(a.Value, b.Value) })
	j.missing = slices.Insert(j.missing, at, r)
	j.missing = j.missing[:min(len(j.missing), mostNamed)]
}

// nameMissing reads the list again for the text of missing keys.
func (j *joiner) nameMissing(ctx context.Context) error {
	missing := &j.m.report.MissingKeys
	if len(j.missing) > 0 {
		named := map[uint64]bool{}
		err := j.each(ctx, func(key []byte) error {
			r := recordOf(key, 0)
			if slices.ContainsFunc(j.missing,
				func(x record) bool { return same(x, r) }) && !named[r.Check] && len(missing.Some) < mostNamed {
				named[r.Check] = true
				missing.Some = append(missing.Some, string(key))
			}
			if len(named) == len(j.missing) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if missing.Count > 0 && !j.m.spec.AllowMissing {
		return hint.With(missingf("%d keys of %s are not in %v:%s", missing.Count, j.name, j.m.d.Store(), missing),
			hint.Set("allow-missing", "true", "accepts that"))
	}
	return nil
}

var errEnough = errors.New("enough")

// twice is the error of a key that is in the list twice.
func (j *joiner) twice(ctx context.Context, r record) error {
	text := ""
	err := j.each(ctx, func(key []byte) error {
		if same(recordOf(key, 0), r) {
			text = string(key)
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return specf("%s: the key %q is there twice: give each key one value", j.name, text)
}

// samples yields the hash and number of every sample, in ascending order of hashes.
func (m *maker) samples(ctx context.Context) (of iter.Seq2[[]samplekey.Entry, error], done func(), err error) {
	if m.d.Info().KeysTable != "" {
		return m.d.KeyHashes(ctx), func() {}, nil
	}
	return m.indexed(ctx)
}

// indexed is samples out of the indexes of shards, for a data set without a keys table.
func (m *maker) indexed(ctx context.Context) (of iter.Seq2[[]samplekey.Entry, error], done func(), err error) {
	s := keysort.New[samplekey.Entry](m.spec.Temp, m.spec.Memory)
	done = func() { _ = s.Close() }
	for i := range m.d.NumShards() {
		ix, err := m.d.Index(ctx, i)
		if err != nil {
			done()
			return nil, nil, err
		}
		first, err := m.d.FirstSample(ctx, i)
		if err != nil {
			done()
			return nil, nil, err
		}
		for k, key := range ix.Keys.All() {
			if err := s.Add(samplekey.Entry{Hash: samplekey.Hash(key), Number: first + uint64(k)}); err != nil {
				done()
				return nil, nil, err
			}
		}
	}
	return func(yield func([]samplekey.Entry, error) bool) {
		one := make([]samplekey.Entry, 1)
		for e, err := range s.All() {
			one[0] = e
			if !yield(one, err) || err != nil {
				return
			}
		}
	}, done, nil
}

// cursors goes through the samples in the order of hashes.
type cursors struct {
	next    func() ([]samplekey.Entry, error, bool)
	entries []samplekey.Entry
	numbers []uint64
	ended   bool
}

// of returns the samples with a hash, which is greater than in the call before.
func (c *cursors) of(hash uint64) ([]uint64, error) {
	c.numbers = c.numbers[:0]
	for {
		for len(c.entries) == 0 {
			if c.ended {
				return c.numbers, nil
			}
			entries, err, more := c.next()
			if err != nil {
				return nil, err
			}
			c.entries, c.ended = entries, !more
		}
		if last := c.entries[len(c.entries)-1]; last.Hash < hash {
			c.entries = nil
			continue
		}
		for len(c.entries) > 0 && c.entries[0].Hash < hash {
			c.entries = c.entries[1:]
		}
		for len(c.entries) > 0 && c.entries[0].Hash == hash {
			c.numbers = append(c.numbers, c.entries[0].Number)
			c.entries = c.entries[1:]
		}
		if len(c.entries) > 0 {
			return c.numbers, nil
		}
	}
}

// keyOf is the key of a sample, out of the index of its shard.
func (m *maker) keyOf(ctx context.Context, number uint64) (string, error) {
	at, err := m.d.Locate(ctx, number)
	if err != nil {
		return "", err
	}
	ix, err := m.d.Index(ctx, at.Shard)
	if err != nil {
		return "", err
	}
	first, err := m.d.FirstSample(ctx, at.Shard)
	if err != nil {
		return "", err
	}
	return ix.Keys.At(int(number - first)), nil
}
