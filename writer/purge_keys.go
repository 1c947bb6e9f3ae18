package writer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// content identifies the bytes of a shard.
type content struct{ packed, is format.Hash }

func contentOf(s *metadata.ShardEntry) content { return content{s.Hash, s.Content()} }

// learn finds the keys of the samples that earlier purges took out, in the shards before these
// purges, as far as generations or orphans still have them.
func (h *holding) learn(ctx context.Context, m *metadata.Manifest, orphans []string) error {
	unknown := map[format.Hash][]int{} // places of purged samples, by the shard as it was packed
	first := uint64(0)
	for i := range m.Shards {
		s := &m.Shards[i]
		for _, n := range metadata.Within(m.Purged, first, first+s.Samples) {
			if !h.known[n] {
				unknown[s.Hash] = append(unknown[s.Hash], int(n-first))
			}
		}
		first += s.Samples
	}
	read := func(index string, packed, is format.Hash) error {
		places := unknown[packed]
		if len(places) == 0 || h.purged[packed] == nil || h.purged[packed][is] {
			return nil
		}
		ix, _, err := loadIndex(ctx, h.store, index)
		if notOurs(err) {
			return nil
		}
		if err != nil {
			return err
		}
		left := places[:0:0]
		for _, place := range places {
			if place >= ix.Keys.Len() || ix.Meta["purged"] != "" && strings.HasPrefix(ix.Keys.At(place), purgedKey) {
				left = append(left, place)
			} else {
				h.keys[ix.Keys.At(place)] = true
			}
		}
		unknown[packed] = left
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(h.all)) {
		for i := range h.all[name].Shards {
			s := &h.all[name].Shards[i]
			if err := read(s.IndexObject(), s.Hash, s.Content()); err != nil {
				return err
			}
		}
	}
	for _, name := range orphans {
		if _, err := metadata.ShardFormat(name); err != nil {
			continue // a sidecar, or a keys table
		}
		index := (&metadata.ShardInfo{Name: name}).IndexObject()
		if ix, _, err := loadIndex(ctx, h.store, index); err == nil {
			if packed, is, ok := noted(ix.Meta); ok {
				if err := read(index, packed, is); err != nil {
					return err
				}
			}
		}
	}
	for _, places := range unknown {
		h.unknown += len(places)
	}
	return nil
}

// keyed reports whether a generation has a sample with the key of a purged one, in shards that the
// current generation does not have. Archives of another tool that have one are added to
// h.archives: nobody deletes them. others reports whether there are such shards at all.
func (h *holding) keyed(ctx context.Context, m *metadata.Manifest) (holds, others bool, err error) {
	var look []int
	firsts := make([]uint64, len(m.Shards))
	first := uint64(0)
	for i := range m.Shards {
		if s := &m.Shards[i]; !h.shared[contentOf(s)] {
			look = append(look, i)
		}
		firsts[i] = first
		first += m.Shards[i].Samples
	}
	others = len(look) > 0
	if !others || len(h.keys) == 0 {
		return false, others, nil
	}
	if look, err = h.candidates(ctx, m, firsts, look); err != nil {
		return false, true, err
	}
	for _, i := range look {
		s := &m.Shards[i]
		ix, _, err := loadIndex(ctx, h.store, s.IndexObject())
		if errors.Is(err, fs.ErrNotExist) {
			if _, serr := h.store.Stat(ctx, s.Name); errors.Is(serr, fs.ErrNotExist) {
				continue // its bytes are not there
			}
		}
		if err != nil {
			return false, true, format.InShard(s.Name, err)
		}
		for place, key := range ix.Keys.All() {
			if h.keys[key] && !gone(m.Purged, firsts[i]+uint64(place)) {
				if holds = true; s.Foreign && !slices.Contains(h.archives, s.Name) {
					h.archives = append(h.archives, s.Name)
				}
				break
			}
		}
	}
	return holds, true, nil
}

// candidates returns the shards that may have one of the keys. It looks in the keys table, or where
// there is none at the range of keys of each shard.
func (h *holding) candidates(ctx context.Context, m *metadata.Manifest, firsts []uint64, shards []int) ([]int, error) {
	inRange := func(i int) bool {
		s := &m.Shards[i]
		for key := range h.keys {
			if s.FirstKey <= key && key <= s.LastKey {
				return true
			}
		}
		return false
	}
	shards = slices.DeleteFunc(shards, func(i int) bool { return !inRange(i) })
	if m.Keys == (format.Hash{}) || len(shards) == 0 {
		return shards, nil
	}
	table, err := openKeys(ctx, h.store, m.KeysName(), metadata.SumSamples(m.Shards))
	if notOurs(err) {
		return shards, nil
	}
	if err != nil {
		return nil, err
	}
	defer table.close()
	hashes, has := map[uint64]bool{}, map[int]bool{}
	for key := range h.keys {
		hashes[samplekey.Hash(key)] = true
	}
	for {
		e, more, err := table.next()
		if errors.Is(err, format.ErrCorrupt) {
			return shards, nil
		}
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if hashes[e.Hash] {
			has[sort.Search(len(firsts), func(i int) bool { return firsts[i] > e.Number })-1] = true
		}
	}
	return slices.DeleteFunc(shards, func(i int) bool { return !has[i] }), nil
}
