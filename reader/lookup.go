package reader

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// Lookup returns the numbers of the samples with that key, ascending: more than one only where a
// data set keeps duplicates. With a keys table it is one range there and one block a candidate,
// which confirms the key (the table has hashes); without one, the indexes of the shards whose range
// of keys has room for it. If no sample has the key, the error wraps fs.ErrNotExist, and the
// message names its neighbours if that costs little. If a keys table leads to a removed sample with
// the key, and to no other, the error wraps ErrRemoved too.
func (d *Dataset) Lookup(ctx context.Context, key string) ([]uint64, error) {
	numbers, shards, err := d.lookup(ctx, key, true)
	if err == nil && len(numbers) == 0 {
		err = d.notFound(ctx, key, shards)
	}
	return numbers, err
}

// lookup is Lookup without an error for a key that no sample has. It also returns the shards whose
// range of keys has room for the key, as far as they are known. Without all it may miss samples: it
// reads the keys table or one index, and the tables of shards only as far as they are in memory.
func (d *Dataset) lookup(ctx context.Context, key string, all bool) (numbers []uint64, shards []int, err error) {
	shards, known, err := d.catalog.Candidates(ctx, key, false)
	if err != nil || known && len(shards) == 0 {
		return nil, nil, err
	}
	if d.tables.Keys != (format.Hash{}) {
		numbers, err = d.lookupTable(ctx, key)
		return numbers, shards, err
	}
	if !known && all {
		if shards, _, err = d.catalog.Candidates(ctx, key, true); err != nil {
			return nil, nil, err
		}
	}
	if !all {
		shards = shards[:min(len(shards), 1)]
	}
	numbers, err = d.lookupIndexes(ctx, key, shards)
	return numbers, shards, err
}

// lookupTable asks the keys table.
func (d *Dataset) lookupTable(ctx context.Context, key string) ([]uint64, error) {
	hash := samplekey.Hash(key)
	entries, err := d.catalog.SearchTable(ctx, hash)
	if err != nil {
		return nil, err
	}
	from, to := samplekey.Search(entries, hash)
	var numbers []uint64
	removed := false
	for _, e := range entries[from:to] {
		k, err := d.keyOf(ctx, e.Number)
		if err != nil {
			return nil, err
		}
		switch {
		case k != key:
		case d.Removed(e.Number):
			removed = true
		default:
			numbers = append(numbers, e.Number)
		}
	}
	switch {
	case len(numbers) > 0:
		return numbers, nil
	case removed:
		return nil, &removedError{fmt.Sprintf("key %q", key)}
	}
	// No sample that the table leads to has the key. That is an answer only if the table is right
	// here: an entry that was changed in place is next to where the key's own would be.
	for _, e := range entries[max(from-1, 0):min(to+1, len(entries))] {
		k, err := d.keyOf(ctx, e.Number)
		if err == nil && samplekey.Hash(k) != e.Hash {
			err = d.wrongTable(fmt.Errorf("the entry %016x leads to sample %d, whose key %q has another hash", e.Hash,
				e.Number, k))
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// wrongTable returns the error of a keys table that contradicts the samples.
func (d *Dataset) wrongTable(err error) error {
	return format.InShard(d.keysTable(), fmt.Errorf("%w: %w: restore the table from a copy, or pack again",
		format.ErrCorrupt, err))
}

// keyOf reads the key of a sample.
func (d *Dataset) keyOf(ctx context.Context, number uint64) (key string, err error) {
	j, index, err := d.catalog.Locate(ctx, number)
	if err != nil {
		return "", err
	}
	if j.Shard.Numbered != nil {
		return j.Shard.NumberedKey(number), nil
	}
	m := members{want: index}
	m.member = func(k, _ []byte, _ int64) bool {
		key = string(k)
		return true
	}
	// This is the same walk as in Field, because the block may be too large to be held whole.
	return key, d.walk(ctx, j, &m)
}

// lookupIndexes searches the indexes of shards.
func (d *Dataset) lookupIndexes(ctx context.Context, key string, shards []int) ([]uint64, error) {
	var mu sync.Mutex
	var numbers []uint64
	removed := false
	err := parallel(ctx, len(shards), max(d.opts.Workers, d.source.Requests()), func(ctx context.Context, i int) error {
		found, gone, err := d.lookupShard(ctx, key, shards[i])
		mu.Lock()
		defer mu.Unlock()
		numbers, removed = append(numbers, found...), removed || gone
		return err
	})
	slices.Sort(numbers)
	if err == nil && len(numbers) == 0 && removed {
		err = &removedError{fmt.Sprintf("key %q", key)}
	}
	return numbers, err
}

// lookupShard finds a key in a shard: by arithmetic where its keys are numbered, else in its index.
// gone reports that a sample with the key was removed, which only numbered keys tell.
func (d *Dataset) lookupShard(ctx context.Context, key string, shard int) (numbers []uint64, gone bool, err error) {
	s, err := d.catalog.Shard(ctx, shard)
	if err != nil {
		return nil, false, err
	}
	if s.Numbered != nil {
		i, ok := s.Numbered.Find(key)
		if !ok || s.Gone(s.First+i) {
			return nil, ok, nil
		}
		return []uint64{s.First + i}, false, nil
	}
	ix, err := d.catalog.Index(ctx, shard)
	if err != nil {
		return nil, false, err
	}
	for i, k := range ix.Keys.All() {
		if k == key {
			numbers = append(numbers, s.First+uint64(i))
		}
	}
	return numbers, false, nil
}

// notFound names the key that was meant: the same in other letters, where that costs little, or
// else the keys before and after it, from the index of one shard.
func (d *Dataset) notFound(ctx context.Context, key string, shards []int) error {
	hint := "; `shardtool ls` lists the keys"
	if len(shards) > 0 {
		if ix, err := d.catalog.Index(ctx, shards[0]); err == nil {
			if _, found := ix.Keys.Find(key); found { // the keys table was asked
				return d.wrongTable(fmt.Errorf("it lacks the key %q of shard %d", key, shards[0]))
			}
			hint = nearKeys(&ix.Keys, key)
		}
	}
	for _, other := range otherLetters(key) {
		if numbers, _, err := d.lookup(ctx, other, false); err == nil && len(numbers) > 0 {
			hint = fmt.Sprintf("; did you mean %q?", other)
		}
	}
	return &missingError{fmt.Sprintf("no sample with key %q%s", key, hint)}
}

// otherLetters returns a key in small letters, in capitals, and with its first letter in the other
// case, without the key itself.
func otherLetters(key string) []string {
	lower, upper := strings.ToLower(key), strings.ToUpper(key)
	others := []string{upper, lower}
	if first, size := utf8.DecodeRuneInString(key); first == unicode.ToUpper(first) {
		others = append(others, string(unicode.ToLower(first))+key[size:])
	} else {
		others = append(others, string(unicode.ToUpper(first))+key[size:])
	}
	return slices.DeleteFunc(others, func(k string) bool { return k == key })
}

// missingError is the error of a key that no sample has, or of a field that the sample lacks.
type missingError struct{ message string }

func (e *missingError) Error() string { return e.message }

func (e *missingError) Is(target error) bool { return target == fs.ErrNotExist }

// nearKeys lists keys that look like a missing one: the same in other letters, or else its
// neighbours.
func nearKeys(keys *metadata.KeyColumn, key string) string {
	var before, after string
	for _, k := range keys.All() {
		if strings.EqualFold(k, key) {
			return fmt.Sprintf("; did you mean %q?", k)
		}
		if k < key && k > before {
			before = k
		}
		if k > key && (after == "" || k < after) {
			after = k
		}
	}
	quote := strconv.Quote
	if strings.ContainsFunc(key+before+after, func(r rune) bool { return unicode.Is(unicode.Mn, r) }) {
		quote = strconv.QuoteToASCII // "é" may be one rune or two, which look alike
	}
	switch {
	case before != "" && after != "":
		return fmt.Sprintf("; the nearest are %s and %s", quote(before), quote(after))
	case before != "" || after != "":
		return "; the nearest is " + quote(before+after)
	}
	return ""
}
