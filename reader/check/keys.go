package check

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// indexed takes in a shard's index: totals of fields, keys, and what the tables say of them.
func (c *shardCheck) indexed(ctx context.Context) {
	v, s, ix := c.v, c.s, c.index
	fault := func(block int, key string, err error) {
		v.fail(ctx, s.Number, KindIndex, key, format.Place{Shard: s.Name, Block: block, Offset: -1, Key: key}.Wrap(err))
	}
	for f, name := range ix.Fields {
		v.addField(ix.Sizes[f].Total(name))
	}
	for _, a := range ix.Attributes {
		if !v.knows(a) {
			fault(-1, "", fmt.Errorf("%w: attribute %q, a %v, is not one of the tables'", format.ErrMismatch, a.Name,
				a.Kind))
		}
	}
	for i := range ix.Attrs {
		v.addValues(&ix.Attrs[i])
	}
	if ix.Keys.Len() == 0 {
		return
	}
	first, last, ascending := ix.Keys.At(0), ix.Keys.At(0), true
	for i, k := range ix.Keys.All() {
		v.keys.add(samplekey.Hash(k), s.First+uint64(i))
		if i > 0 && k <= ix.Keys.At(i-1) {
			ascending = false
		}
		first, last = min(first, k), max(last, k)
	}
	if first != s.FirstKey || last != s.LastKey {
		fault(-1, "", fmt.Errorf("%w: keys from %q to %q, the tables say from %q to %q", format.ErrMismatch, first,
			last, s.FirstKey, s.LastKey))
	}
	if rs := ix.Keys.Ranges(); rs != nil {
		if k, twice := rs.Shared(); twice {
			i, _ := rs.Find(k)
			fault(c.blockOf(int(i)), k, fmt.Errorf("%w key in the shard", format.ErrDuplicate))
		}
		return
	}
	if ascending {
		return
	}
	seen := make(map[string]struct{}, ix.Keys.Len())
	for i, k := range ix.Keys.All() {
		if _, twice := seen[k]; twice {
			fault(c.blockOf(i), k, fmt.Errorf("%w key in the shard", format.ErrDuplicate))
		}
		seen[k] = struct{}{}
	}
}

// blockOf returns the block that sample i of the shard is in.
func (c *shardCheck) blockOf(i int) int { return sort.SearchInts(c.firsts, i+1) - 1 }

func (v *verifier) knows(a format.Attribute) bool {
	return slices.Contains(v.c.Tables.Attributes, a)
}

func (v *verifier) addField(more format.FieldTotal) {
	if more.Samples == 0 {
		return
	}
	t := v.fields[more.Name]
	if t == nil {
		t = &format.FieldTotal{Name: more.Name, Min: more.Min}
		v.fields[more.Name] = t
	}
	t.Samples += more.Samples
	t.Bytes += more.Bytes
	t.Min, t.Max = min(t.Min, more.Min), max(t.Max, more.Max)
}

func (v *verifier) addValues(c *metadata.AttrColumn) {
	if c.Kind != format.AttrInteger {
		return
	}
	if v.values[c.Name] == nil {
		v.values[c.Name] = &metadata.AttrTotal{Name: c.Name}
	}
	v.values[c.Name].AddAll(c)
}

// attrTotals compares the totals of integer attributes, as far as the tables have them.
func (v *verifier) attrTotals(ctx context.Context) {
	for _, want := range v.c.Tables.AttrTotals {
		got := v.values[want.Name]
		if got == nil {
			got = &metadata.AttrTotal{Name: want.Name}
		}
		if *got != want {
			v.fail(ctx, orderFirst, KindManifest, "",
				fmt.Errorf("%w: %s: attribute %q adds up to %v in %d samples, from %d to %d; the tables say %v in %d, %d to %d",
					format.ErrMismatch, v.c.Name, want.Name, got.Sum(), got.Samples, got.Min, got.Max, want.Sum(),
					want.Samples, want.Min, want.Max))
		}
	}
}

// fieldTotals compares the totals of fields.
func (v *verifier) fieldTotals(ctx context.Context) {
	for _, want := range v.c.Tables.Fields {
		got := v.fields[want.Name]
		if got == nil {
			got = &format.FieldTotal{Name: want.Name}
		}
		delete(v.fields, want.Name)
		if *got != want {
			v.fail(ctx, orderFirst, KindManifest, "",
				fmt.Errorf("%w: %s: field %q adds up to %d samples, %d bytes, sizes from %d to %d; the tables say %d, %d, %d to %d",
					format.ErrMismatch, v.c.Name, want.Name, got.Samples, got.Bytes, got.Min, got.Max, want.Samples,
					want.Bytes, want.Min, want.Max))
		}
	}
	for name := range v.fields {
		v.fail(ctx, orderFirst, KindManifest, "",
			fmt.Errorf("%w: %s: the shards have a field %q that the tables do not name",
				format.ErrMismatch, v.c.Name, name))
	}
}

// multiset is a set of (hash, number) pairs of which only a sum of 128 bits is kept: each pair is
// mixed into 128 bits that look random, and these are added. Sums of two different sets of pairs
// agree by chance once in 2^128; making them agree on purpose is no threat here, since the table's
// own SHA-256 is compared as well. With the table in strictly ascending order (no pair twice) and
// as many entries as there are samples, equal sums say: exactly the samples' keys, each with its
// number. So a table of any size is compared in constant memory and one pass.
type multiset struct{ hi, lo uint64 }

func (m *multiset) add(hash, number uint64) {
	// Two rounds of SplitMix64's finaliser over each half, with constants of their own.
	lo := mix(hash ^ mix(number+0x9e3779b97f4a7c15))
	hi := mix(number ^ mix(hash+0xd1b54a32d192ed03) ^ lo)
	var carry uint64
	m.lo, carry = bits.Add64(m.lo, lo, 0)
	m.hi, _ = bits.Add64(m.hi, hi, carry)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// keysTable checks the keys table: size and header, and with Deep its hash, its order and its
// entries.
func (v *verifier) keysTable(ctx context.Context) {
	name := v.c.KeysTable()
	if name == "" {
		return
	}
	table := samplekey.Table{Entries: v.c.Tables.Samples}
	fail := func(err error) { v.fail(ctx, orderLast, KindKeys, "", format.InShard(name, err)) }
	var header []byte
	err := v.c.Source.ReadRange(ctx, name, uint64(table.Size()), 0, table.Size()-tableBody(table),
		func(raw []byte) error {
			header = raw
			return table.CheckHeader(raw)
		})
	if err != nil {
		fail(err)
	} else if v.o.Deep {
		v.keyEntries(ctx, table, header, fail)
	}
}

// tableBody is the length of all groups.
func tableBody(t samplekey.Table) int64 {
	_, n := t.Range(0, t.Groups())
	return n
}

func (v *verifier) keyEntries(ctx context.Context, table samplekey.Table, header []byte, fail func(error)) {
	const step = 64 // groups of 1,024 entries: less than 1 MiB
	sum := sha256.New()
	sum.Write(header)
	var entries []samplekey.Entry
	var set multiset
	repeated := 0
	for from := int64(0); from < table.Groups(); from += step {
		to := min(from+step, table.Groups())
		off, n := table.Range(from, to)
		// The last entry of the step before stays in front: the order is checked across steps too.
		keep := min(len(entries), 1)
		entries = append(entries[:0], entries[len(entries)-keep:]...)
		err := v.c.Source.ReadRange(ctx, v.c.KeysTable(), uint64(table.Size()), off, n, func(raw []byte) (err error) {
			if entries, err = table.Decode(entries[:keep], raw, from, to); err == nil {
				sum.Write(raw)
			}
			return err
		})
		v.read(int(n))
		if err != nil {
			fail(err)
			return
		}
		for i, e := range entries[keep:] {
			set.add(e.Hash, e.Number)
			if i+keep > 0 && entries[i+keep-1].Hash == e.Hash {
				repeated++
			}
		}
	}
	if got := format.Hash(sum.Sum(nil)); !bytes.Equal(got[:], v.c.Tables.Keys[:]) {
		fail(fmt.Errorf("%w: the table's hash is %v, %s says %v", format.ErrCorrupt, got, v.c.Name, v.c.Tables.Keys))
	}
	if repeated > 0 {
		v.note(fmt.Sprintf("%d keys have the hash of another: duplicates across shards", repeated))
	}
	if v.unindexed == 0 && v.complete && set != v.keys {
		fail(fmt.Errorf("%w: the table does not hold exactly the keys of the samples", format.ErrMismatch))
	}
}
