package reshard_test

import (
	"bytes"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

func purge(t testing.TB, store objstore.Store, o writer.PurgeOptions) *writer.PurgeReport {
	t.Helper()
	r, err := writer.Purge(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// objects reads all objects of a store.
func objects(t testing.TB, store objstore.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(t.Context(), store, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = data
	}
	return all
}

// verified checks every byte of a data set.
func verified(t testing.TB, store objstore.Store) {
	t.Helper()
	report, err := check.Verify(t.Context(), store, check.Options{Deep: true})
	if err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestPurge: the bytes, keys and labels of removed samples are nowhere; everything else is where it
// was.
func TestPurge(t *testing.T) {
	for name, set := range sets(t) {
		if name == "archives of another tool" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			store, options := set()
			before := open(t, store, options)
			removed := []int{1, 2, int(before.NumSamples()) - 1}
			if before.NumSamples() > 100 {
				removed = append(removed, 3, 4, 5) // all that have the label of 3, 4 and 5
				for i := 40; i < 80; i++ {
					removed = append(removed, i)
				}
			}
			slices.Sort(removed)
			run(t, store, reshard.RemoveOptions{}, removed...)
			was := objects(t, store)
			dry := purge(t, store, writer.PurgeOptions{DryRun: true, Generations: true})
			if now := objects(t, store); len(now) != len(was) || len(dry.Samples) != len(removed) || len(dry.Shards) == 0 {
				t.Fatalf("%d objects, were %d; %+v", len(now), len(was), dry)
			}
			r := purge(t, store, writer.PurgeOptions{})
			receipt(t, r, before, removed)
			if len(r.Holding) != 2 || len(r.Deleted) != 0 {
				t.Errorf("holding %q, deleted %q", r.Holding, r.Deleted)
			}
			d := open(t, store, options)
			if d.Digest() != before.Digest() || !slices.Equal(d.Info().Purged, d.Info().Removed) || len(d.Info().Purged) != len(removed) {
				t.Errorf("%d purged, %d removed, digest %v", len(d.Info().Purged), len(d.Info().Removed), d.Digest())
			}
			everyPath(t, name, d, removed)
			verified(t, store)
			samePlaces(t, before, d)

			again := purge(t, store, writer.PurgeOptions{Generations: true})
			if len(again.Samples) != 0 || len(again.Holding) != 0 || len(again.Deleted) < 4 || again.Tables != r.Tables {
				t.Errorf("%+v", again)
			}
			nowhere(t, store, removed)
			verified(t, store)
		})
	}
}

// receipt checks the report of a purge.
func receipt(t *testing.T, r *writer.PurgeReport, before *reader.Dataset, removed []int) {
	t.Helper()
	var numbers []int
	for _, s := range r.Samples {
		numbers = append(numbers, int(s.Number))
		if s.Key != key(int(s.Number)) {
			t.Errorf("sample %d has the key %q", s.Number, s.Key)
		}
	}
	if slices.Sort(numbers); !slices.Equal(numbers, removed) {
		t.Errorf("%v, want %v", numbers, removed)
	}
	shards := map[int]bool{}
	for _, n := range removed {
		at, err := before.Locate(t.Context(), uint64(n))
		if err != nil {
			t.Fatal(err)
		}
		shards[at.Shard] = true
	}
	if len(r.Shards) != len(shards) || r.Digest != format.DigestString(before.Digest()) {
		t.Errorf("%d shards, want %d; digest %s", len(r.Shards), len(shards), r.Digest)
	}
	for _, s := range r.Shards {
		if s.Before.Name == s.After.Name || s.Before.Content == s.After.Content || !regexp.MustCompile(`-x[0-9a-f]{16}\.tar`).MatchString(s.After.Name) {
			t.Errorf("%+v", s)
		}
	}
}

// samePlaces checks that no sample is in another shard or block than before.
func samePlaces(t *testing.T, a, b *reader.Dataset) {
	t.Helper()
	x, err := a.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.OrderTable(t.Context())
	if err != nil || !slices.Equal(x.Samples, y.Samples) || !slices.Equal(x.ShardFirst, y.ShardFirst) || x.Decoded != y.Decoded {
		t.Errorf("%+v, was %+v, %v", y, x, err)
	}
	if !slices.Equal(a.Info().Fields, b.Info().Fields) {
		t.Errorf("fields %+v, were %+v", b.Info().Fields, a.Info().Fields)
	}
}

// nowhere checks that nothing of a sample is in any object, decoded or not.
func nowhere(t *testing.T, store objstore.Store, removed []int) {
	t.Helper()
	var all bytes.Buffer
	for _, data := range objects(t, store) {
		all.Write(data)
	}
	d := open(t, store, reader.Options{})
	for i := range d.NumShards() {
		rows, err := d.Rows(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		info, err := d.Shard(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(t.Context(), store, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		dec := codec.NewDecoder(true)
		defer dec.Close()
		for _, row := range rows {
			var out []byte
			if out, err = dec.Decode(nil, data[:row.Stored], row); err != nil {
				t.Fatal(err)
			}
			all.Write(out)
			data = data[row.Stored:]
		}
		ix, err := d.Index(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		for c := range ix.Attrs {
			all.WriteString(strings.Join(ix.Attrs[c].Labels(), "\n") + "\n")
		}
	}
	for _, i := range removed {
		if bytes.Contains(all.Bytes(), []byte(key(i))) || bytes.Contains(all.Bytes(), []byte(mark(i))) {
			t.Errorf("sample %d is still there", i)
		}
		if i >= 3 && i <= 5 && d.NumSamples() > 100 && bytes.Contains(all.Bytes(), []byte("label of 1\n")) {
			t.Errorf("the label of sample %d is still there", i)
		}
	}
}

// TestPurgeAgain: a shard is purged as often as samples are removed from it, and appended
// generations are purged too.
func TestPurgeAgain(t *testing.T) {
	store := packed(t, some(0, 100, 300), small)
	first := open(t, store, reader.Options{}).Digest()
	run(t, store, reshard.RemoveOptions{}, 3, 60)
	purge(t, store, writer.PurgeOptions{})
	run(t, store, reshard.RemoveOptions{}, 4, 61)
	r := purge(t, store, writer.PurgeOptions{})
	if len(r.Samples) != 2 || len(r.Shards) != 2 || r.Digest != format.DigestString(first) {
		t.Errorf("%+v", r)
	}
	opt := small
	opt.Mode = writer.ModeAppend
	pack(t, store, some(100, 50, 300), opt)
	run(t, store, reshard.RemoveOptions{}, 5, 120)
	if r = purge(t, store, writer.PurgeOptions{Generations: true}); len(r.Shards) != 2 || len(r.Holding) != 0 {
		t.Errorf("%+v", r)
	}
	removed := []int{3, 4, 5, 60, 61, 120}
	nowhere(t, store, removed)
	verified(t, store)
	everyPath(t, "", open(t, store, reader.Options{}), removed)
	res, err := writer.Prune(t.Context(), store, writer.PruneOptions{Keep: 1, Grace: -1})
	if err != nil || len(res.Left) != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	verified(t, store)
	for name := range objects(t, store) {
		if name == "data-000000.tar.zst" {
			t.Errorf("%s is there", name)
		}
	}
}

// TestPurgeAttributes: integers stay unless they are named.
func TestPurgeAttributes(t *testing.T) {
	for _, clear := range [][]string{nil, {"n"}} {
		store := packed(t, some(0, 20, 100), small)
		run(t, store, reshard.RemoveOptions{}, 7)
		purge(t, store, writer.PurgeOptions{ClearAttributes: clear})
		ix, err := open(t, store, reader.Options{}).Index(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := ix.Attrs[1].At(7); ok == (clear != nil) || ok && v.Integer != 7 {
			t.Errorf("clearing %q: %+v, %v", clear, v, ok)
		}
		if _, ok := ix.Attrs[0].At(7); ok {
			t.Error("the label is there")
		}
		for _, other := range []int{6, 8} {
			if v, ok := ix.Attrs[0].At(other); !ok || v.Label != some(other, 1, 1)[0].Attrs[0].Label {
				t.Errorf("sample %d: %+v, %v", other, v, ok)
			}
		}
		verified(t, store)
	}
}

// TestPurgeAttributesLater: a purge clears attributes of samples that were purged before, and
// deletes the generation that has the values. A name that no attribute has changes nothing.
func TestPurgeAttributesLater(t *testing.T) {
	store := packed(t, some(0, 20, 100), small)
	run(t, store, reshard.RemoveOptions{}, 7)
	purge(t, store, writer.PurgeOptions{Generations: true})
	before := objects(t, store)
	if _, err := writer.Purge(t.Context(), store, writer.PurgeOptions{ClearAttributes: []string{"user"}}); err == nil || !strings.Contains(err.Error(), `no attribute "user" to clear`) {
		t.Errorf("an attribute that is not there: %v", err)
	}
	r := purge(t, store, writer.PurgeOptions{ClearAttributes: []string{"n"}, Generations: true})
	if len(r.Samples) != 0 || len(r.Shards) != 1 || len(r.Deleted) == 0 {
		t.Errorf("%+v", r)
	}
	d := open(t, store, reader.Options{})
	ix, err := d.Index(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := ix.Attrs[1].At(7); ok {
		t.Errorf("%+v is there", v)
	}
	if n := len(d.Info().Purged); n != 1 {
		t.Errorf("%d samples are purged", n)
	}
	after := objects(t, store)
	for _, s := range r.Shards {
		if _, ok := after[s.Before.Name]; ok || s.Before.Name == s.After.Name {
			t.Errorf("%s is there", s.Before.Name)
		}
	}
	verified(t, store)
	if r := purge(t, store, writer.PurgeOptions{ClearAttributes: []string{"n"}}); len(r.Shards) != 0 || len(after) != len(before) {
		t.Errorf("again: %+v; %d objects, %d before", r, len(after), len(before))
	}
}

// TestPurgeRefused: archives of another tool are not rewritten, and there must be a data set.
func TestPurgeRefused(t *testing.T) {
	store := foreign(t)
	run(t, store, reshard.RemoveOptions{}, 3)
	was := objects(t, store)
	_, err := writer.Purge(t.Context(), store, writer.PurgeOptions{Generations: true})
	if !errors.Is(err, writer.ErrForeign) || !strings.Contains(err.Error(), "data-000000.tar") {
		t.Error(err)
	}
	if now := objects(t, store); len(now) != len(was) {
		t.Errorf("%d objects, were %d", len(now), len(was))
	}
	if _, err := writer.Purge(t.Context(), mem.New(), writer.PurgeOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := reshard.RemoveKeys(t.Context(), mem.New(), []string{"x"}, reshard.RemoveOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	large := packed(t, some(0, 6, 9<<20), writer.Options{BlockSize: 16 << 20})
	run(t, large, reshard.RemoveOptions{}, 3)
	if _, err := writer.Purge(t.Context(), large, writer.PurgeOptions{Memory: 4 << 20}); !errors.Is(err, format.ErrTooLarge) {
		t.Error(err)
	}
}

// TestPurgeLongKeys: names that take several header records become short ones, and the other
// samples stay what they were. A key that looks like that of a purged sample stays, too.
func TestPurgeLongKeys(t *testing.T) {
	samples := some(0, 30, 100)
	for i := range samples {
		switch i % 4 {
		case 0:
			samples[i].Key = strings.Repeat("long", 60) + samples[i].Key[len("of/"):]
		case 1:
			samples[i].Key = strings.Repeat("d/", 60) + samples[i].Key
		}
	}
	samples[7].Key = "removed-sample/8"
	for name, gone := range map[string][]int{"some": {1, 4, 6, 8, 29}, "all long ones": {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29}} {
		t.Run(name, func(t *testing.T) {
			store := packed(t, samples, small)
			var keys []string
			for _, i := range gone {
				keys = append(keys, samples[i].Key)
			}
			if _, err := reshard.RemoveKeys(t.Context(), store, keys, reshard.RemoveOptions{}); err != nil {
				t.Fatal(err)
			}
			purge(t, store, writer.PurgeOptions{Generations: true})
			verified(t, store)
			seen := 0
			for s, err := range open(t, store, reader.Options{}).Samples(t.Context(), reader.Range{}) {
				if err != nil {
					t.Fatal(err)
				}
				want := samples[s.Number]
				if slices.Contains(gone, int(s.Number)) || string(s.Key) != want.Key || !bytes.Equal(s.Fields[0].Data, want.Fields[0].Data) {
					t.Errorf("sample %d has the key %q", s.Number, s.Key)
				}
				seen++
			}
			if seen != len(samples)-len(gone) {
				t.Errorf("%d samples", seen)
			}
			for object, data := range objects(t, store) {
				for _, k := range keys {
					if bytes.Contains(data, []byte(k)) {
						t.Errorf("%s has the key %q", object, k)
					}
				}
			}
		})
	}
}
