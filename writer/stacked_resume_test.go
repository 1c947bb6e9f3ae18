package writer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// rowSource is a source of samples in memory. It fails at sample stop, unless that is negative.
type rowSource struct {
	samples  []writer.Sample
	at, stop int
	stopping func() // is called before it fails
}

var errStopped = errors.New("stopped")

func (s *rowSource) Next(ctx context.Context) (writer.Sample, error) {
	if s.at == s.stop {
		if s.stopping != nil {
			s.stopping()
		}
		return writer.Sample{}, errStopped
	}
	if s.at == len(s.samples) {
		return writer.Sample{}, io.EOF
	}
	s.at++
	return s.samples[s.at-1], ctx.Err()
}

func (s *rowSource) Cursor() string { return strconv.Itoa(s.at) }

func (s *rowSource) Seek(_ context.Context, cursor string) (err error) {
	s.at, err = strconv.Atoi(cursor)
	return err
}

func (s *rowSource) Fingerprint() string   { return "rows" }
func (s *rowSource) Meta() format.Metadata { return nil }
func (s *rowSource) Total() (int64, int64) { return int64(len(s.samples)), 0 }
func (s *rowSource) Close() error          { return nil }

// TestStackedResume stops a pack at many places and resumes it: all objects are those of a pack
// that was not stopped, where samples do not fit, keys stop being numbered, and headers of one
// array differ.
func TestStackedResume(t *testing.T) {
	samples := rowSamples(3000, func(i int) string {
		if i > 2100 && i < 2600 {
			return storedKey(i)
		}
		return numberedKey(i)
	})
	samples[700].Fields[0].Data = append(npy.AppendHeader(nil, "|u1", 2), 7, 8)
	for _, i := range []int{0, 1300} { // a header of version 2: the same array
		x := &samples[i].Fields[1]
		x.Data = append([]byte("\x93NUMPY\x02\x00\x76\x00\x00\x00"), x.Data[10:]...)
	}
	opt := stackedOptions()
	opt.Layout, opt.Resume = writer.LayoutAuto, true
	pack := func(st *mem.Store, stop int) error {
		_, err := writer.Pack(t.Context(), st, &rowSource{samples: samples, stop: stop}, opt)
		return err
	}
	whole := mem.New()
	if err := pack(whole, -1); err != nil {
		t.Fatal(err)
	}
	want := objects(t, whole)
	kinds := map[string]bool{}
	for _, s := range mustLoad(t, whole).Manifest.Shards {
		kinds[fmt.Sprint(s.Layout != nil, s.Numbered != nil)] = true
	}
	if len(kinds) < 3 {
		t.Fatalf("shards: %v", kinds)
	}
	for _, stop := range []int{1, 690, 701, 1200, 1500, 2101, 2110, 2599, 2700, 2999} {
		st := mem.New()
		if err := pack(st, stop); !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		if err := pack(st, -1); err != nil {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		got := objects(t, st)
		if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
			t.Fatalf("stopped at %d: %q, not %q", stop, a, b)
		}
		for name := range want {
			if string(got[name]) != string(want[name]) {
				t.Errorf("stopped at %d: %s differs", stop, name)
			}
		}
	}
}

// TestStackedMoves: a block whose keys end the shard before it begins a shard as large as others,
// with the samples that were left out within it, also in a run that continues there.
func TestStackedMoves(t *testing.T) {
	samples := rowSamples(3000, func(i int) string {
		if i > 2100 && i < 2600 {
			return storedKey(i)
		}
		return numberedKey(i)
	})
	for _, i := range []int{1000, 2050, 2098, 2100, 2102} {
		samples[i].Key = ""
	}
	for _, layout := range []writer.Layout{writer.LayoutAuto, writer.LayoutStacked} {
		stored, stops := make(chan int64, 10), 0
		opt := stackedOptions()
		opt.Layout, opt.Resume, opt.Faults.Skip = layout, true, true
		opt.Stored = func(samples int64) { stored <- samples }
		whole := mem.New()
		res, err := writer.Pack(t.Context(), whole, &rowSource{samples: samples, stop: -1}, opt)
		if err != nil || res.Skipped != 5 {
			t.Fatal(res, err)
		}
		for shards := range res.Shards {
			st := mem.New()
			for len(stored) > 0 {
				<-stored
			}
			src := &rowSource{samples: samples, stop: 2999, stopping: func() {
				for range min(shards, res.Shards-1) { // the last one is not full
					<-stored
				}
			}}
			if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, errStopped) {
				t.Fatal(err)
			}
			again, err := writer.Pack(t.Context(), st, &rowSource{samples: samples, stop: -1}, opt)
			if err != nil || again.Skipped != 5 {
				t.Fatal(again, err)
			}
			if again.Adopted > 0 {
				stops++
			}
			got, want := objects(t, st), objects(t, whole)
			if !maps.EqualFunc(got, want, func(a, b []byte) bool { return string(a) == string(b) }) {
				t.Errorf("%v, continued after %d samples: %q, want %q", layout, again.Adopted, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
		if stops < 2 {
			t.Errorf("%v: %d runs continued", layout, stops)
		}
	}
}

// TestStackedSkips leaves out samples that cannot be rows: those after them keep their places.
func TestStackedSkips(t *testing.T) {
	samples := rowSamples(2000, numberedKey)
	for _, i := range []int{5, 600, 601, 1999} { // of the same size: a worker finds them
		samples[i].Fields[0].Data = append(npy.AppendHeader[int](nil, "|i1"), 1)
	}
	samples[900].Fields[0].Data = []byte("no array")
	opt := stackedOptions()
	opt.Faults.Skip = true
	st := mem.New()
	res, err := writer.Pack(t.Context(), st, &rowSource{samples: samples, stop: -1}, opt)
	if err != nil {
		t.Fatal(err)
	}
	set := mustLoad(t, st)
	if res.Skipped != 5 || len(set.Samples) != 1995 || set.Samples[1994].Key != numberedKey(1998) {
		t.Fatalf("%d skipped, %d left", res.Skipped, len(set.Samples))
	}
}

// choosing is a rowSource that asks for rows.
type choosing struct {
	rowSource
	stacks bool
}

func (s *choosing) Stacks() bool { return s.stacks && s.at > 0 }

// TestLayoutOfSource stores samples as the source asks; a source that does not know of layouts has
// ordinary samples.
func TestLayoutOfSource(t *testing.T) {
	samples := rowSamples(600, numberedKey)
	opt := stackedOptions()
	for _, c := range []struct {
		src    writer.Source
		layout writer.Layout
	}{
		{&choosing{rowSource{samples: samples, stop: -1}, true}, writer.LayoutStacked},
		{&choosing{rowSource{samples: samples, stop: -1}, false}, writer.LayoutSamples},
		{&rowSource{samples: samples, stop: -1}, writer.LayoutSamples},
	} {
		got := mem.New()
		opt.Layout = writer.LayoutOfSource
		res, err := writer.Pack(t.Context(), got, c.src, opt)
		if err != nil {
			t.Fatal(err)
		}
		opt.Layout = c.layout
		want, err := writer.Pack(t.Context(), mem.New(), &rowSource{samples: samples, stop: -1}, opt)
		if err != nil {
			t.Fatal(err)
		}
		stacked := mustLoad(t, got).Manifest.Shards[0].Layout != nil
		if res.Digest != want.Digest || stacked != (c.layout == writer.LayoutStacked) {
			t.Errorf("the layout %v: digest %v, not %v", c.layout, res.Digest, want.Digest)
		}
	}
	samples[300].Fields = samples[300].Fields[:1]
	opt.Layout = writer.LayoutOfSource
	if _, err := writer.Pack(t.Context(), mem.New(), &choosing{rowSource{samples: samples, stop: -1}, true}, opt); !errors.Is(err, writer.ErrLayout) {
		t.Errorf("another sample: %v", err)
	}
}
