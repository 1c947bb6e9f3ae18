package writer_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// generations is a store with n generations, each an overwrite of the one before; every second one
// is plain.
func generations(t *testing.T, n int) (st *mem.Store, results []*writer.Result) {
	t.Helper()
	st = mem.New()
	for i := range n {
		opt := small("d")
		opt.Plain = i%2 == 1
		if i > 0 {
			opt.Mode = writer.ModeOverwrite
		}
		results = append(results, mustPack(t, st, &synth{items: makeItems(12, 12<<10, uint64(i)), tag: string(rune('a' + i))}, opt))
	}
	return st, results
}

func objectNames(t *testing.T, st objstore.Store) []string {
	return slices.Sorted(maps.Keys(objects(t, st)))
}

func TestPruneKeepsGenerations(t *testing.T) {
	const n = 4
	for keep := 1; keep <= n+1; keep++ {
		st, results := generations(t, n)
		before := objects(t, st)
		dry, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: keep, Grace: -1, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		sameObjects(t, "dry run", objects(t, st), before)
		res, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: keep, Grace: -1})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(res.Objects, dry.Objects) || res.Bytes != dry.Bytes || len(res.Kept) != min(keep, n) {
			t.Fatalf("keep %d: %+v, dry run %+v", keep, res, dry)
		}
		for _, o := range res.Objects {
			if _, ok := before[o.Name]; !ok {
				t.Fatalf("%s was never there", o.Name)
			}
			delete(before, o.Name)
		}
		sameObjects(t, "pruned", objects(t, st), before)
		mustLoad(t, st)
		for i, r := range results {
			if _, ok := before[r.Tables]; ok != (i >= n-keep) {
				t.Fatalf("keep %d: tables of generation %d: there %v", keep, i+1, ok)
			}
		}
		if keep >= n != (len(res.Objects) == 0) {
			t.Fatalf("keep %d deleted %d objects", keep, len(res.Objects))
		}
		// A chain whose older part was pruned is no error.
		if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: n + 1, Grace: -1}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPruneAfterAppend: shards of the generations appended to are named by the new one.
func TestPruneAfterAppend(t *testing.T) {
	st, _ := generations(t, 1)
	src := &synth{items: makeItems(12, 12<<10, 9)}
	for i := range src.items {
		src.items[i].key = "b/" + src.items[i].key
	}
	opt := small("d")
	opt.Mode = writer.ModeAppend
	mustPack(t, st, src, opt)
	res, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range res.Objects {
		if strings.Contains(o.Name, ".tar") {
			t.Fatalf("%s was deleted", o.Name)
		}
	}
	if len(res.Objects) != 2 || len(mustLoad(t, st).Samples) != 24 { // tables and keys
		t.Fatalf("%+v", res.Objects)
	}
}

// TestPruneLeavesOthers: what a Writer has not put stays, whatever it is called.
func TestPruneLeavesOthers(t *testing.T) {
	opt := small("left")
	opt.Plain = true
	left := interrupted(t, 58, opt)
	whole := objects(t, left)
	st, _ := generations(t, 1)
	for name, data := range whole {
		replace(t, st, name, data)
	}
	users := map[string][]byte{
		"x-000001.tar": []byte("a user's archive"), "photos-000000.tar.zst": whole["left-000000.tar"], "notes.txt": []byte("n"), "sub/left-000000.tar": whole["left-000000.tar"],
		"left-000001.tar.bak": {}, "manifest.json.old": {}, "keys-0123.bin": {}, ".hidden-000000.tar": {}, "x.tar.shidx": {}, "y-000000.tar.shidx": []byte("none"),
		// Copies of a user's, whose content is ours and whose names are not.
		"z-000000.tar": []byte("mine"), "z-000000.tar.shidx": whole["left-000000.tar.shidx"], "copy-000000.tar.zst": objects(t, st)["d-000000.tar.zst"],
		"keys-0123456789abcdef.bin": ofPrefix(t, st, "keys-"), "manifest-0123456789abcdef.bin": ofPrefix(t, st, "manifest-"), "part-left-0000-of-0002.bin": ofPrefix(t, st, "manifest-"),
		// Names of ours over something else.
		"keys-00112233445566ff.bin": []byte("secret"), "manifest-00112233445566ff.bin": {}, "skipped-00112233445566ff.jsonl": []byte("{\"reason\": \"mine\"}\n"),
		"skipped-a948904f2f0f479b.jsonl": []byte("hello world\n"), "x.tar.00112233445566ff.shidx": whole["left-000000.tar.shidx"],
	}
	// An archive of the length of ours beside our sidecar.
	same := slices.Clone(whole["left-000001.tar"])
	same[600] ^= 1
	replace(t, st, "left-000001.tar", same)
	users["left-000001.tar"] = same
	delete(whole, "left-000001.tar")
	for name, data := range users {
		replace(t, st, name, data)
	}
	res, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	rest := objects(t, st)
	for name, data := range users {
		if there, ok := rest[name]; !ok || string(there) != string(data) {
			t.Fatalf("%s is gone", name)
		}
	}
	for name := range whole {
		if base, plain := strings.CutSuffix(name, ".tar"); plain && whole[base+".tar.shidx"] == nil {
			continue // stopped between a tar and its sidecar: the tar does not name its pack
		}
		if _, ok := rest[name]; ok {
			t.Fatalf("the leftover %s is there", name)
		}
	}
	var said []string
	for _, o := range res.Left {
		said = append(said, o.Name)
	}
	if !slices.Equal(said, []string{"copy-000000.tar.zst", "keys-00112233445566ff.bin", "keys-0123456789abcdef.bin", "left-000001.tar", "manifest-00112233445566ff.bin",
		"manifest-0123456789abcdef.bin", "part-left-0000-of-0002.bin", "photos-000000.tar.zst", "skipped-00112233445566ff.jsonl", "skipped-a948904f2f0f479b.jsonl",
		"x-000001.tar", "x.tar.00112233445566ff.shidx", "y-000000.tar.shidx", "z-000000.tar", "z-000000.tar.shidx"}) {
		t.Fatalf("left: %q", said)
	}
	mustLoad(t, st)
}

// ofPrefix are the bytes of the only object of a prefix.
func ofPrefix(t *testing.T, st objstore.Store, prefix string) (data []byte) {
	t.Helper()
	for name, bytes := range objects(t, st) {
		if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, ".bin") {
			data = bytes
		}
	}
	if data == nil {
		t.Fatalf("no %s", prefix)
	}
	return data
}

func TestPruneWithoutManifest(t *testing.T) {
	opt := small("left")
	st := interrupted(t, 58, opt)
	replace(t, st, "mine-000000.tar.zst", []byte("mine"))
	res, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1})
	if err != nil || len(res.Objects) == 0 || len(res.Kept) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if left := objectNames(t, st); !slices.Equal(left, []string{"mine-000000.tar.zst"}) {
		t.Fatalf("%q is there", left)
	}
}

// TestPruneRefuses: where it is not known what the data set names, nothing is deleted.
func TestPruneRefuses(t *testing.T) {
	if _, err := writer.Prune(t.Context(), mem.New(), writer.PruneOptions{}); err == nil {
		t.Fatal("kept nothing")
	}
	for what, damage := range map[string]func(st *mem.Store, r *writer.Result){
		"empty":      func(st *mem.Store, _ *writer.Result) { replace(t, st, format.ManifestName, nil) },
		"other json": func(st *mem.Store, _ *writer.Result) { replace(t, st, format.ManifestName, []byte("{}")) },
		"cut": func(st *mem.Store, _ *writer.Result) {
			replace(t, st, format.ManifestName, objects(t, st)[format.ManifestName][:50])
		},
		"newer": func(st *mem.Store, _ *writer.Result) {
			replace(t, st, format.ManifestName, []byte(strings.Replace(string(objects(t, st)[format.ManifestName]), "shardtool/1", "shardtool/2", 1)))
		},
		"no tables":      func(st *mem.Store, r *writer.Result) { _ = st.Delete(t.Context(), r.Tables) },
		"damaged tables": func(st *mem.Store, r *writer.Result) { replace(t, st, r.Tables, objects(t, st)[r.Tables][1:]) },
	} {
		st, results := generations(t, 2)
		damage(st, results[1])
		before := objects(t, st)
		if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); err == nil {
			t.Fatalf("%s: pruned", what)
		}
		sameObjects(t, what, objects(t, st), before)
	}
}

// TestPruneGrace: by default young objects that nothing names are kept and reported, and so are the
// older shards of their pack; older generations are deleted at once.
func TestPruneGrace(t *testing.T) {
	for _, mode := range []writer.Mode{writer.ModeCreate, writer.ModeOverwrite} {
		st := &aged{Store: mem.New(), ages: map[string]time.Duration{}}
		var old map[string][]byte
		opt := small("d")
		if mode == writer.ModeOverwrite {
			mustPack(t, st, &synth{items: makeItems(5, 99, 1), tag: "a"}, opt)
			old = objects(t, st)
			opt.Mode = mode
			mustPack(t, st, &synth{items: makeItems(5, 99, 2), tag: "b"}, opt)
		}
		named := objects(t, st)
		src := resumeSource()
		src.items[58].open = errRead
		if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, errRead) {
			t.Fatal(err)
		}
		var left []string
		for name := range objects(t, st) {
			if named[name] == nil {
				left = append(left, name)
				st.ages[name] = 30 * time.Hour
			}
		}
		slices.Sort(left)
		st.ages[left[len(left)-1]] = writer.DefaultGrace - time.Minute
		res, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1})
		if err != nil {
			t.Fatal(err)
		}
		var young []string
		for _, o := range res.Young {
			young = append(young, o.Name)
		}
		if !slices.Equal(young, left) || (len(res.Objects) == 0) != (old == nil) {
			t.Fatalf("%v: young %q of %q, deleted %+v", mode, young, left, res.Objects)
		}
		for _, o := range res.Objects {
			if old[o.Name] == nil {
				t.Errorf("%s is deleted", o.Name)
			}
		}
		st.ages[left[len(left)-1]] += 2 * time.Minute
		if res, err = writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1}); err != nil || len(res.Objects) != len(left) || len(res.Young) != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

// thenStore calls then when the n-th Delete has been done, or when a List has ended where n is 0.
type thenStore struct {
	objstore.Store
	then func()
	n    int
}

func (s *thenStore) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix) {
			if !yield(info, err) {
				return
			}
		}
		if s.n == 0 {
			s.then()
		}
	}
}

func (s *thenStore) Delete(ctx context.Context, name string) error {
	err := s.Store.Delete(ctx, name)
	if s.n--; s.n == 0 {
		s.then()
	}
	return err
}

// TestPruneWhilePublished: a pack publishes between the listing and a deletion. What it published
// stays whole.
func TestPruneWhilePublished(t *testing.T) {
	for _, mode := range []writer.Mode{writer.ModeCreate, writer.ModeOverwrite} {
		for n := range 3 {
			st, opt := mem.New(), small("d")
			if mode == writer.ModeOverwrite {
				st, _ = generations(t, 1)
			}
			opt.Mode = mode
			src := resumeSource()
			src.items[58].open = errRead
			if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, errRead) {
				t.Fatal(err)
			}
			opt.Resume = true
			during := &thenStore{Store: st, n: n, then: func() { mustPack(t, st, resumeSource(), opt) }}
			if _, err := writer.Prune(t.Context(), during, writer.PruneOptions{Keep: 1, Grace: -1}); !errors.Is(err, writer.ErrLost) {
				t.Fatalf("after %d deletions: %v", n, err)
			}
			checkSet(t, mustLoad(t, st), nil, resumeSource())
		}
	}
}

// TestPublishWhilePruned: tables, keys table or a shard are deleted just before they would be
// published.
func TestPublishWhilePruned(t *testing.T) {
	for _, prefix := range []string{"manifest-", "keys-", "d-000000"} {
		st := &vanishing{Store: mem.New(), prefix: prefix}
		if _, err := writer.Pack(t.Context(), st, resumeSource(), small("d")); !errors.Is(err, writer.ErrLost) || !strings.Contains(err.Error(), prefix) {
			t.Fatalf("%s: %v", prefix, err)
		}
		if digestOf(t, st) != "" {
			t.Fatal("published")
		}
	}
}

// TestPublishedIncomplete: an object is gone or replaced at the moment when the manifest is put.
// The pack does not succeed, and names it.
func TestPublishedIncomplete(t *testing.T) {
	for _, c := range []struct {
		name, want string
		harm       func(st *mem.Store, name string)
	}{
		{"d-000001.tar.zst", "d-000001.tar.zst is missing", func(st *mem.Store, name string) { _ = st.Delete(t.Context(), name) }},
		{"d-000001.tar.zst", "d-000001.tar.zst was replaced by other bytes", func(st *mem.Store, name string) { replace(t, st, name, flipped(objects(t, st)[name])) }},
		{"keys-", " is missing", func(st *mem.Store, name string) { _ = st.Delete(t.Context(), name) }},
		{"manifest-", " was replaced by other bytes", func(st *mem.Store, name string) { replace(t, st, name, flipped(objects(t, st)[name])) }},
		{"d-000001.tar.zst", "", func(st *mem.Store, name string) { replace(t, st, name, objects(t, st)[name]) }}, // the same bytes, another tag
	} {
		st := &atPublish{Store: mem.New()}
		st.then = func() {
			for name := range objects(t, st.Store) {
				if strings.HasPrefix(name, c.name) && name != format.ManifestName {
					c.harm(st.Store, name)
				}
			}
		}
		_, err := writer.Pack(t.Context(), st, resumeSource(), small("d"))
		if c.want == "" {
			if err != nil {
				t.Errorf("rewritten: %v", err)
			}
			continue
		}
		if !errors.Is(err, writer.ErrIncomplete) || !errors.Is(err, writer.ErrLost) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "generation 1 was published") {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

// atPublish calls then before manifest.json is committed.
type atPublish struct {
	*mem.Store
	then func()
}

func (s *atPublish) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	if name == format.ManifestName {
		s.then()
	}
	return s.Store.Create(ctx, name, cond)
}

// TestReplacedBeforePublish: another writer replaced a shard by one of the same length, which a
// server that ignores conditions allows. Nothing is published.
func TestReplacedBeforePublish(t *testing.T) {
	for _, plain := range []bool{false, true} {
		st, opt := mem.New(), small("d")
		opt.Plain, opt.Workers, opt.Memory = plain, 1, 64<<10
		name := map[bool]string{false: "d-000000.tar.zst", true: "d-000000.tar"}[plain]
		src, done := resumeSource(), false
		src.begin = func(ctx context.Context, i int) error {
			if data := objects(t, st)[name]; data != nil && !done {
				done = true
				replace(t, st, name, flipped(data))
			}
			return nil
		}
		_, err := writer.Pack(t.Context(), st, src, opt)
		if !done || !errors.Is(err, writer.ErrLost) || !strings.Contains(err.Error(), name+" was replaced by other bytes") {
			t.Errorf("replaced %v: %v", done, err)
		}
		if _, err := st.Stat(t.Context(), format.ManifestName); err == nil {
			t.Error("published")
		}
	}
}

// vanishing is a store in which objects of a prefix do not last.
type vanishing struct {
	*mem.Store
	prefix string
}

func (v *vanishing) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range v.Store.List(ctx, prefix) {
			if !strings.HasPrefix(info.Name, v.prefix) && !yield(info, err) {
				return
			}
		}
	}
}
