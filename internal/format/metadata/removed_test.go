package metadata

import (
	"errors"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// TestRemoved: tables keep the removed samples and the purged shards, and the digest does not
// depend on them.
func TestRemoved(t *testing.T) {
	m := testManifest(3, 0, 4)
	_, _, digest, err := EncodeTables(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Removed, m.Purged = []uint64{0, 1, 5, 11}, []uint64{1, 11}
	m.Shards[2].Purged = format.BlockHash([]byte("purged"))
	raw, _, again, err := EncodeTables(m)
	if err != nil || again != digest {
		t.Fatalf("digest %v, was %v, %v", again, digest, err)
	}
	tables, err := OpenTables(readFrom(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	back, err := tables.Load()
	if err != nil || !slices.Equal(back.Removed, m.Removed) || !slices.Equal(back.Purged, m.Purged) {
		t.Fatalf("%v, %v, %v", back.Removed, back.Purged, err)
	}
	for i := range back.Shards {
		if s := &back.Shards[i].ShardInfo; s.Purged != m.Shards[i].Purged || s.Content() == s.Hash != (i != 2) {
			t.Errorf("shard %d: purged %v, content %v, hash %v", i, s.Purged, s.Content(), s.Hash)
		}
	}
	if sum := tables.Summary("x"); sum.Removed != 4 {
		t.Errorf("%d removed in the summary", sum.Removed)
	}
	if got := Within(m.Removed, 1, 11); !slices.Equal(got, []uint64{1, 5}) {
		t.Error(got)
	}
	for name, lists := range map[string][2][]uint64{
		"unsorted": {{5, 1}, nil}, "twice": {{5, 5}, nil}, "beyond": {{12}, nil}, "purged alone": {{1}, {2}},
	} {
		bad := *m
		bad.Removed, bad.Purged = lists[0], lists[1]
		if _, _, _, err := EncodeTables(&bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRemovedUnknown: a reader that does not know removed samples refuses the tables. The section
// is critical, which is what makes it do so.
func TestRemovedUnknown(t *testing.T) {
	for kind, edit := range map[string]func(m *Manifest){
		typeRemoved: func(m *Manifest) { m.Removed = []uint64{3} },
		typePurged:  func(m *Manifest) { m.Shards[0].Purged = format.BlockHash(nil) },
	} {
		m := testManifest(3, 0, 4)
		edit(m)
		raw := encodeTables(t, m)
		before := tablesSections[kind]
		delete(tablesSections, kind)
		_, err := OpenTables(readFrom(raw), int64(len(raw)))
		tablesSections[kind] = before
		if !errors.Is(err, format.ErrVersion) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
