package writer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// brokenSource has samples that fail in every way there is, the first and the last among them.
func brokenSource() *synth {
	src := resumeSource()
	for i := range src.items {
		switch it := &src.items[i]; {
		case i == 0, i == 59, i%11 == 3:
			it.next = errRead
		case i%11 == 5, i >= 24 && i < 30: // whole blocks
			it.open = errRead
		case i%11 == 7:
			it.read = errRead
		case i == 41:
			it.key = "a/../b"
		}
	}
	return src
}

// listed reads a list of skipped samples.
func listed(t *testing.T, st objstore.Store, name string) (keys []string) {
	t.Helper()
	data, _, err := objstore.ReadAll(t.Context(), st, name, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var l struct {
			Source, Key, Reason string
			Row, More           int64
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l.More > 0 {
			keys = append(keys, fmt.Sprint("more: ", l.More))
			continue
		}
		if l.Source != "origin of "+l.Key || l.Reason == "" {
			t.Fatalf("%q", line)
		}
		keys = append(keys, l.Key)
	}
	return keys
}

// TestSkippedList: every sample left out is listed, in the order of the source, whatever number of
// workers and wherever a run was interrupted and went on.
func TestSkippedList(t *testing.T) {
	var want []string
	for _, it := range brokenSource().items {
		if broken(&it) {
			want = append(want, it.key)
		}
	}
	opt := small("d")
	opt.Faults.Skip, opt.Plain = true, true
	clean := mem.New()
	res := mustPack(t, clean, brokenSource(), opt)
	if got := listed(t, clean, res.SkippedList); !slices.Equal(got, want) || res.Skipped != int64(len(want)) {
		t.Fatalf("%q, want %q", got, want)
	}
	all := objects(t, clean)
	for at := 0; ; at++ {
		st := mem.New()
		killed := storetest.NewFaulty(st, storetest.Fault{At: at, Kill: true})
		first := opt
		first.Workers = 1 + at%3
		if _, err := writer.Pack(t.Context(), killed, brokenSource(), first); err == nil {
			break // that was its last operation
		}
		again := opt
		again.Resume, again.Workers = true, 4
		got := mustPack(t, st, brokenSource(), again)
		sameObjects(t, fmt.Sprint("killed at ", at), objects(t, st), all)
		if got.Skipped != res.Skipped || got.SkippedList != res.SkippedList {
			t.Fatalf("%+v, want %+v", got, res)
		}
	}
	// A run that finds it published reports the same.
	again := opt
	again.Resume = true
	if got := mustPack(t, clean, brokenSource(), again); got.SkippedList != res.SkippedList || got.Skipped != res.Skipped {
		t.Fatalf("%+v, want %+v", got, res)
	}
	// Without a failure there is no list, and none is named.
	st := mem.New()
	if got := mustPack(t, st, resumeSource(), opt); got.SkippedList != "" {
		t.Fatalf("%+v", got)
	}
	for name := range objects(t, st) {
		if names.IsSkipped(name) {
			t.Fatal(name)
		}
	}
}

// TestSkippedListGenerations: lists live as long as the generations that name them.
func TestSkippedListGenerations(t *testing.T) {
	st := mem.New()
	opt := small("d")
	opt.Faults.Skip, opt.Plain = true, true
	first := mustPack(t, st, brokenSource(), opt)
	more := brokenSource()
	for i := range more.items {
		more.items[i].key = "more/" + strings.ReplaceAll(more.items[i].key, "..", "x")
	}
	opt.Mode = writer.ModeAppend
	second := mustPack(t, st, more, opt)
	if second.SkippedList == "" || second.SkippedList == first.SkippedList {
		t.Fatalf("%+v", second)
	}
	prune := func() {
		t.Helper()
		if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); err != nil {
			t.Fatal(err)
		}
	}
	prune()
	if a, b := listed(t, st, first.SkippedList), listed(t, st, second.SkippedList); len(a) == 0 || len(b) == 0 {
		t.Fatal(a, b)
	}
	opt.Mode = writer.ModeOverwrite
	third := mustPack(t, st, resumeSource(), opt)
	prune()
	for name := range objects(t, st) {
		if names.IsSkipped(name) {
			t.Fatalf("%s is left, %+v", name, third)
		}
	}
}

// TestSkippedListLong: lists are bounded per shard and held on disk; further samples are counted.
func TestSkippedListLong(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks at what is stored: make test runs it without the race detector")
	}
	long := errors.New(strings.Repeat("long reason ", 1000))
	src := &synth{items: makeItems(6000, 10, 4)}
	for i := range src.items {
		if i%1000 != 999 {
			src.items[i].open = long
		}
	}
	opt := small("d")
	opt.Faults.Skip, opt.BlockSize, opt.ShardSize, opt.TempDir = true, 1<<20, 3<<20, t.TempDir()
	st := mem.New()
	res := mustPack(t, st, src, opt)
	data, _, err := objstore.ReadAll(t.Context(), st, res.SkippedList, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	total, more := 0, 0
	for line := range bytes.Lines(data) {
		if len(line) > 5<<10 {
			t.Fatalf("a line of %d bytes", len(line))
		}
		var l struct{ More int }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if more += l.More; l.More == 0 {
			total++
		}
	}
	if res.Skipped != 5994 || total+more != 5994 || more == 0 || total < 1000 {
		t.Fatalf("%d listed, %d more, %+v", total, more, res)
	}
}
