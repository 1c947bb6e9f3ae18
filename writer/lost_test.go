package writer_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestTwoPacksOneTarget lets two packs run into one place at once, in all pairs of modes and with
// equal or other sources. One of them publishes; the other hears of it and has changed nothing.
func TestTwoPacksOneTarget(t *testing.T) {
	modes := []writer.Mode{writer.ModeCreate, writer.ModeOverwrite, writer.ModeAppend}
	for _, existing := range []bool{false, true} {
		for _, a := range modes {
			for _, b := range modes {
				for _, same := range []bool{true, false} {
					t.Run(fmt.Sprintf("existing=%v/%v/%v/same=%v", existing, a, b, same), func(t *testing.T) {
						for round := range 3 {
							raceTwo(t, existing, a, b, same, round)
						}
					})
				}
			}
		}
	}
}

func raceTwo(t *testing.T, existing bool, a, b writer.Mode, same bool, round int) {
	st := mem.New()
	if existing {
		base := childJob{Tag: "base", Items: 8}
		opt := small("d")
		opt.Plain = true
		mustPack(t, st, base.source(), opt)
	}
	jobs := [2]childJob{{Tag: "a", Items: 20}, {Tag: "a", Items: 20}}
	if !same {
		jobs[1].Tag = "b"
	}
	// Nobody reads before both have seen what is there.
	var ready sync.WaitGroup
	ready.Add(2)
	var results [2]*writer.Result
	var errs [2]error
	var wg sync.WaitGroup
	for i, mode := range []writer.Mode{a, b} {
		wg.Go(func() {
			src := jobs[i].source()
			var once sync.Once
			meet := func() { once.Do(func() { ready.Done(); ready.Wait() }) }
			src.begin = func(context.Context, int) error { meet(); return nil }
			opt := small("d")
			opt.Plain, opt.Mode, opt.Workers = round > 0, mode, 1+round
			results[i], errs[i] = writer.Pack(t.Context(), st, src, opt)
			once.Do(ready.Done) // it failed before it read anything
		})
	}
	wg.Wait()
	won := 0
	set := mustLoad(t, st)
	for i, mode := range []writer.Mode{a, b} {
		if errs[i] == nil {
			won++
			if set.Digest != results[i].Digest {
				t.Fatalf("%v says it published %v, %v is there", mode, results[i].Digest, set.Digest)
			}
			src := []*synth{jobs[i].source()}
			if base := (&childJob{Tag: "base", Items: 8}); existing && mode == writer.ModeAppend {
				src = append([]*synth{base.source()}, src...)
			}
			checkSet(t, set, nil, src...)
		} else if !errors.Is(errs[i], writer.ErrLost) && !errors.Is(errs[i], writer.ErrExists) {
			t.Fatalf("%v: %v", mode, errs[i])
		}
	}
	want := 1
	if existing && a == writer.ModeCreate && b == writer.ModeCreate {
		want = 0
	}
	if won != want {
		t.Fatalf("%d packs say they published: %v, %v", won, errs[0], errs[1])
	}
}

// TestTwoProcessesOneTarget is the same with processes and a local store.
func TestTwoProcessesOneTarget(t *testing.T) {
	base := t.TempDir()
	if r := (&childJob{Dir: base, Tag: "base", Items: 8}).run(t); r.Error != "" {
		t.Fatal(r.Error)
	}
	for _, c := range []struct {
		existing bool
		a, b     writer.Mode
		tagB     string
	}{
		{false, writer.ModeCreate, writer.ModeCreate, "a"}, {false, writer.ModeCreate, writer.ModeCreate, "b"}, {false, writer.ModeOverwrite, writer.ModeAppend, "b"},
		{true, writer.ModeOverwrite, writer.ModeAppend, "b"}, {true, writer.ModeAppend, writer.ModeAppend, "b"}, {true, writer.ModeAppend, writer.ModeAppend, "a"},
	} {
		t.Run(fmt.Sprintf("existing=%v/%v/%v/%s", c.existing, c.a, c.b, c.tagB), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.existing {
				dir = copyDir(t, base)
			}
			jobs := [2]childJob{{Dir: dir, Tag: "a", Items: 60, Pause: 2e6}, {Dir: dir, Tag: c.tagB, Items: 60, Pause: 2e6}}
			jobs[0].Mode, jobs[1].Mode = c.a, c.b
			var results [2]childResult
			var wg sync.WaitGroup
			for i := range jobs {
				wg.Go(func() {
					out, err := jobs[i].command(t).Output()
					if err != nil {
						t.Error(err)
						return
					}
					results[i] = parseChild(t, out)
				})
			}
			wg.Wait()
			set := mustLoad(t, localStore(t, dir))
			var won []*writer.Result
			for i, r := range results {
				switch {
				case r.Error == "":
					won = append(won, r.Result)
				case !r.Lost:
					t.Errorf("process %d: %s", i, r.Error)
				}
			}
			// A process that began when the other had ended builds on its data set: then both published.
			if len(won) == 0 || len(won) == 2 && won[0].Generation == won[1].Generation {
				t.Fatalf("%d processes published one generation: %+v", len(won), results)
			}
			newest := slices.MaxFunc(won, func(a, b *writer.Result) int { return cmp.Compare(a.Generation, b.Generation) })
			if newest.Digest != set.Digest {
				t.Errorf("generation %d is %v, %v is there", newest.Generation, newest.Digest, set.Digest)
			}
		})
	}
}

// TestGoneBeforePublish: somebody deletes a shard while the pack runs. Nothing that lacks it is
// published.
func TestGoneBeforePublish(t *testing.T) {
	for _, suffix := range []string{".tar.zst", ".tar", ".tar.shidx"} {
		st := mem.New()
		src := (&childJob{Tag: "a", Items: 60}).source()
		name := "d-000000" + suffix
		gone := false
		src.begin = func(ctx context.Context, i int) error {
			if _, err := st.Stat(ctx, name); err == nil {
				gone = true
				return st.Delete(ctx, name)
			}
			return nil
		}
		opt := small("d")
		opt.Plain, opt.Workers, opt.Memory = suffix != ".tar.zst", 1, 64<<10
		_, err := writer.Pack(t.Context(), st, src, opt)
		if !gone || !errors.Is(err, writer.ErrLost) {
			t.Fatalf("%s gone %v: %v", name, gone, err)
		}
		if _, err := objstore.Put(t.Context(), st, "manifest.json", nil, objstore.Condition{IfNoneMatch: true}); err != nil {
			t.Fatal("a manifest is there")
		}
	}
}

// refusing is a store that answers nothing, such as a bucket that does not exist.
type refusing struct{ *mem.Store }

var errNoBucket = errors.New("the bucket does not exist")

func (refusing) Open(context.Context, string) (objstore.Object, error) { return nil, errNoBucket }

// TestNoStore: a store that cannot be read is not called a data set that is in the way.
func TestNoStore(t *testing.T) {
	for _, mode := range []writer.Mode{writer.ModeCreate, writer.ModeOverwrite, writer.ModeAppend} {
		opt := small("d")
		opt.Mode = mode
		_, err := writer.Pack(t.Context(), refusing{mem.New()}, resumeSource(), opt)
		if !errors.Is(err, errNoBucket) || errors.Is(err, writer.ErrExists) || strings.Contains(err.Error(), "data set already") {
			t.Errorf("%v: %v", mode, err)
		}
	}
}

// TestLeftovers: a pack accepts shards that are in the store under the names of its own if every
// byte is the same, and refuses one that differs in any of its parts: frames, compressed or not,
// end of the archive and index.
func TestLeftovers(t *testing.T) {
	for _, plain := range []bool{false, true} {
		source := func() *synth { return (&childJob{Tag: "a", Items: 60}).source() }
		opt := small("d")
		opt.Plain = plain
		st := mem.New()
		mustPack(t, st, source(), opt)
		all := objects(t, st)
		shards := mustLoad(t, st).Manifest.Shards
		left := func() *mem.Store { // what an interrupted pack leaves
			st := mem.New()
			for i := range shards {
				for _, name := range []string{shards[i].Name, shards[i].IndexObject()} {
					replace(t, st, name, all[name])
				}
			}
			return st
		}
		st = left()
		mustPack(t, st, source(), opt)
		sameObjects(t, "over leftovers", objects(t, st), all)

		shard := &shards[1]
		at := []int{0, int(shard.Size) - 1}
		for end, rows := 0, shard.Rows; len(rows) > 0; rows = rows[1:] {
			end += int(rows[0].Stored)
			at = append(at, end-1, end)
		}
		for _, at := range at {
			st := left()
			other := bytes.Clone(all[shard.Name])
			other[at] ^= 1
			replace(t, st, shard.Name, other)
			if _, err := writer.Pack(t.Context(), st, source(), opt); !errors.Is(err, writer.ErrLost) || !strings.Contains(err.Error(), shard.Name) {
				t.Errorf("plain %v: byte %d of %d is another: %v", plain, at, len(other), err)
			}
		}
	}
}

// after calls a function after a conditional put of manifest.json has succeeded, and before the
// writer hears of it.
type after struct {
	objstore.Store
	cond  func(objstore.Condition) objstore.Condition
	every func()
}

func (s after) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	if name != "manifest.json" {
		return s.Store.Create(ctx, name, cond)
	}
	up, err := s.Store.Create(ctx, name, s.cond(cond))
	return afterUpload{up, s.every}, err
}

type afterUpload struct {
	objstore.Upload
	do func()
}

func (u afterUpload) Commit(ctx context.Context) (objstore.Info, error) {
	info, err := u.Upload.Commit(ctx)
	if err == nil {
		u.do()
	}
	return info, err
}

// TestBothWin packs to a store that lets two writers of manifest.json succeed at once, as some
// servers do that check the condition before they write: only the later one says that it published.
func TestBothWin(t *testing.T) {
	for _, mode := range []writer.Mode{writer.ModeCreate, writer.ModeOverwrite, writer.ModeAppend} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			st := mem.New()
			if mode != writer.ModeCreate {
				mustPack(t, st, (&childJob{Tag: "base", Items: 8}).source(), small("base"))
			}
			var seen, written sync.WaitGroup // both have read what is there; both have written
			seen.Add(2)
			written.Add(2)
			racy := after{st, func(objstore.Condition) objstore.Condition { return objstore.Condition{} }, func() { written.Done(); written.Wait() }}
			var results [2]*writer.Result
			var errs [2]error
			var group sync.WaitGroup
			for i, name := range []string{"a", "b"} {
				group.Go(func() {
					opt := small(name)
					opt.Mode = mode
					src := (&childJob{Tag: name, Items: 20}).source()
					meet := sync.OnceFunc(func() { seen.Done(); seen.Wait() })
					src.begin = func(context.Context, int) error { meet(); return nil }
					results[i], errs[i] = writer.Pack(t.Context(), racy, src, opt)
				})
			}
			group.Wait()
			if errs[0] != nil {
				errs[0], errs[1], results[0] = errs[1], errs[0], results[1]
			}
			if errs[0] != nil || !errors.Is(errs[1], writer.ErrLost) || !strings.Contains(errs[1].Error(), "let two writers succeed") {
				t.Fatalf("one must succeed and the other hear why not: %v; %v", errs[0], errs[1])
			}
			if set := mustLoad(t, st); set.Digest != results[0].Digest {
				t.Fatalf("the generation %v is there, published is %v", set.Digest, results[0].Digest)
			}
		})
	}
}

// TestFollowedAtOnce has two others append before a pack reads manifest.json again: its generation
// is published, and is no longer the current one.
func TestFollowedAtOnce(t *testing.T) {
	st := mem.New()
	followed := after{st, func(c objstore.Condition) objstore.Condition { return c }, func() {
		for _, name := range []string{"b", "c"} {
			opt := small(name)
			opt.Mode = writer.ModeAppend
			mustPack(t, st, (&childJob{Tag: name, Items: 8}).source(), opt)
		}
	}}
	res, err := writer.Pack(t.Context(), followed, (&childJob{Tag: "a", Items: 8}).source(), small("a"))
	if err != nil || res.Generation != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
}
