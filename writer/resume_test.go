package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

func resumeSource() *synth { return &synth{items: makeItems(60, 12<<10, 4), tag: "r", attrs: true} }

// interrupted is a store in which a pack stopped at the given sample.
func interrupted(t *testing.T, at int, opt writer.Options) *mem.Store {
	t.Helper()
	st := mem.New()
	src := resumeSource()
	src.items[at].open = errRead
	if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	return st
}

// TestResumeAnywhere interrupts a pack at every sample and resumes it.
func TestResumeAnywhere(t *testing.T) {
	for _, plain := range []bool{false, true} {
		opt := small("d")
		opt.Plain, opt.Level = plain, codec.LevelFastest
		clean := mem.New()
		res := mustPack(t, clean, resumeSource(), opt)
		want := objects(t, clean)
		step := 1
		if !plain || testing.Short() {
			step = 13
		}
		adopted := map[int64]bool{}
		for at := 0; at < 60; at += step {
			st := interrupted(t, at, opt)
			src, again := resumeSource(), opt
			again.Resume, again.Workers = true, 3
			var last writer.Progress
			again.Progress = func(p writer.Progress) { last = p }
			got := mustPack(t, st, src, again)
			sameObjects(t, fmt.Sprint("interrupted at ", at), objects(t, st), want)
			if got.Adopted+got.Written != 60 || got.Digest != res.Digest || got.Bytes != res.Bytes || last.Samples != 60 ||
				last.Adopted != got.Adopted || last.PayloadBytes != int64(res.PayloadBytes) {
				t.Fatalf("%+v, progress %+v, want %+v", got, last, res)
			}
			if src.reads.Load() != got.Written { // every sample has one payload
				t.Fatalf("%d payloads read, %d samples written", src.reads.Load(), got.Written)
			}
			adopted[got.Adopted] = true
		}
		if len(adopted) < 2 || (step == 1 && len(adopted) < len(mustLoad(t, clean).Manifest.Shards)/2) {
			t.Fatalf("adopted %v", adopted)
		}
	}
}

// TestResumeFinished: the pack was published; repeating it with Resume reports that and reads
// nothing.
func TestResumeFinished(t *testing.T) {
	st := mem.New()
	modes := []writer.Mode{writer.ModeCreate, writer.ModeOverwrite, writer.ModeAppend}
	for i, mode := range modes {
		opt, src := small("d"), resumeSource()
		opt.Mode, opt.Faults.Skip = mode, true
		if mode == writer.ModeAppend {
			src.tag = "appended"
			for i := range src.items {
				src.items[i].key = "a/" + src.items[i].key
			}
		}
		src.items[7].open = errRead
		want := mustPack(t, st, src, opt)
		before := objects(t, st)
		src.at = 0
		src.begin = func(context.Context, int) error { t.Error("a payload was read"); return nil }
		opt.Resume = true
		got := mustPack(t, st, src, opt)
		sameObjects(t, mode.String(), objects(t, st), before)
		want.Adopted, want.Written, want.Already = want.Written, 0, true
		if *got != *want || got.Generation != uint64(i+1) || got.Skipped != 1 {
			t.Fatalf("%v: %+v, want %+v", mode, got, want)
		}
		src.at = 0
		src.begin = nil
		src.tag += "x" // another source: not what is there
		opt.Mode = writer.ModeCreate
		if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, writer.ErrExists) {
			t.Fatal(err)
		}
	}
}

// TestResumeCountsSkipped: samples that the interrupted run left out count against the limit, and
// in the result.
func TestResumeCountsSkipped(t *testing.T) {
	source := func() *synth {
		s := resumeSource()
		s.items[1].next, s.items[3].open, s.items[55].open = errRead, errRead, errRead
		s.items[4].key = "a//b" // not a key
		return s
	}
	opt := small("d")
	opt.Faults.Skip, opt.Plain = true, true
	clean := mem.New()
	res := mustPack(t, clean, source(), opt)
	if res.Skipped != 4 || mustLoad(t, clean).Manifest.Meta["skipped"] != "4" {
		t.Fatalf("%+v", res)
	}
	st := mem.New()
	ctx, cancel := context.WithCancel(t.Context())
	src := source()
	src.begin = func(ctx context.Context, i int) error {
		if i == 50 {
			cancel()
			<-ctx.Done()
		}
		return ctx.Err()
	}
	if _, err := writer.Pack(ctx, st, src, opt); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	opt.Resume, opt.Faults.MaxSkipped = true, 3
	if _, err := writer.Pack(t.Context(), st.Clone(), source(), opt); !errors.Is(err, writer.ErrSkipped) {
		t.Fatalf("the limit of 3 was passed by resuming: %v", err)
	}
	opt.Faults.MaxSkipped = 4
	again := mustPack(t, st, source(), opt)
	if again.Adopted == 0 || again.Skipped != 4 {
		t.Fatalf("%+v", again)
	}
	sameObjects(t, "resumed", objects(t, st), objects(t, clean))
}

// TestResumeRefuses a different pack, with an error that names the difference.
func TestResumeRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("what is stored decides: make test runs it without the race detector")
	}
	base := small("d")
	for what, c := range map[string]struct {
		edit func(o *writer.Options, s *synth)
		says string
	}{
		"source":      {func(_ *writer.Options, s *synth) { s.tag = "changed" }, "sources"},
		"block size":  {func(o *writer.Options, _ *synth) { o.BlockSize = 32 << 10 }, "options"},
		"shard size":  {func(o *writer.Options, _ *synth) { o.ShardSize = 128 << 10 }, "options"},
		"samples":     {func(o *writer.Options, _ *synth) { o.SamplesPerShard = 5 }, "options"},
		"level":       {func(o *writer.Options, _ *synth) { o.Level = codec.LevelBest }, "options"},
		"source's":    {func(o *writer.Options, _ *synth) { o.SourceOptions = map[string]string{"x": "y"} }, "options"},
		"place":       {func(_ *writer.Options, s *synth) { s.at = 3 }, "place"},
		"without":     {func(o *writer.Options, s *synth) { s.tag, o.Resume = "changed", false }, "other bytes"},
		"after prune": {func(*writer.Options, *synth) {}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			st := interrupted(t, 50, base)
			before := objects(t, st)
			opt, src := base, resumeSource()
			opt.Resume = true
			c.edit(&opt, src)
			if c.says == "" {
				if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); err != nil || len(objects(t, st)) != 0 {
					t.Fatal(err)
				}
				mustPack(t, st, src, opt)
				return
			}
			_, err := writer.Pack(t.Context(), st, src, opt)
			want := writer.ErrSource
			if what == "without" {
				want = writer.ErrLost
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "d-000000.tar.zst") {
				t.Fatal(err)
			}
			sameObjects(t, "after a refusal", objects(t, st), before)
		})
	}
}

// replace puts other bytes under a name.
func replace(t *testing.T, st objstore.Store, name string, data []byte) {
	t.Helper()
	if _, err := objstore.Put(t.Context(), st, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// TestResumeOtherTool: bytes of a shard depend on the program that wrote it.
func TestResumeOtherTool(t *testing.T) {
	opt := small("d")
	st := interrupted(t, 50, opt)
	data := objects(t, st)["d-000000.tar.zst"]
	tail, _, err := metadata.ParseTail(data, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	off, n := tail.Cold()
	ix, err := tail.DecodeCold(data[off : off+n])
	if err != nil {
		t.Fatal(err)
	}
	ix.Meta["tool"] = "shardtool v99.0.0"
	other, err := metadata.AppendTail(data[:tail.DataSize:tail.DataSize], ix, false)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, st, "d-000000.tar.zst", other)
	opt.Resume = true
	if _, err := writer.Pack(t.Context(), st, resumeSource(), opt); !errors.Is(err, writer.ErrSource) || !strings.Contains(err.Error(), "v99") {
		t.Fatal(err)
	}
}

// TestResumeDamaged: a leftover that is not whole is never taken over, and never replaced.
func TestResumeDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("what is stored decides: make test runs it without the race detector")
	}
	for _, plain := range []bool{false, true} {
		opt := small("d")
		opt.Plain = plain
		name := "d-000001.tar.zst"
		if plain {
			name = "d-000001.tar"
		}
		whole := objects(t, interrupted(t, 58, opt))
		for what, data := range map[string][]byte{
			"cut": whole[name][:len(whole[name])-100], "empty": {}, "longer": append(whole[name][:len(whole[name]):len(whole[name])], 0), "text": []byte("hello"), "flipped": flipped(whole[name]),
		} {
			for _, resume := range []bool{false, true} {
				if resume && what == "flipped" {
					continue // blocks are not read again to be taken over: their checksums speak when they are read
				}
				st := interrupted(t, 58, opt)
				replace(t, st, name, data)
				again := opt
				again.Resume = resume
				_, err := writer.Pack(t.Context(), st, resumeSource(), again)
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Fatalf("%s %s, resume %v: %v", name, what, resume, err)
				}
				if digestOf(t, st) != "" {
					t.Fatal("something was published")
				}
				if got := objects(t, st)[name]; string(got) != string(data) {
					t.Fatal("the damaged object was replaced")
				}
			}
		}
	}
}

func flipped(b []byte) []byte {
	b = slices.Clone(b)
	b[len(b)/3] ^= 1
	return b
}

// TestResumeWithoutSidecar: a process died between a plain shard and its sidecar. The shard is
// written again, found equal, and the sidecar is put.
func TestResumeWithoutSidecar(t *testing.T) {
	opt := small("d")
	opt.Plain, opt.Resume = true, true
	clean := mem.New()
	mustPack(t, clean, resumeSource(), opt)
	st := interrupted(t, 58, opt)
	if err := st.Delete(t.Context(), "d-000001.tar.shidx"); err != nil {
		t.Fatal(err)
	}
	res := mustPack(t, st, resumeSource(), opt)
	sameObjects(t, "resumed", objects(t, st), objects(t, clean))
	if first := int64(mustLoad(t, st).Manifest.Shards[0].Samples); res.Adopted != first {
		t.Fatalf("%d samples adopted, the first shard has %d", res.Adopted, first)
	}
}
