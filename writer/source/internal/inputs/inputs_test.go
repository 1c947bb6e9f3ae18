package inputs_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// TestStems: as many folders as it takes, no scheme, and the first suffix that fits.
func TestStems(t *testing.T) {
	for _, c := range []struct{ paths, want []string }{
		{[]string{"a/x.npy", "a/y.bin", "z"}, []string{"x", "y", "z"}},
		{[]string{"a/x.npy", "b/x.npy"}, []string{"a/x", "b/x"}},
		{[]string{"s3://bucket/a/x.npy", "s3://other/a/x.npy"}, []string{"bucket/a/x", "other/a/x"}},
		{[]string{`c:\data\x.npy`, "./../x.npy.npy"}, []string{"x", "x.npy"}},
		{[]string{"deep/er/x.npy", "er/x.npy"}, []string{"deep/er/x", "er/x"}},
		{[]string{".npy"}, []string{".npy"}},
		{[]string{"a/x.npy", "a/./x.npy"}, nil},
		{[]string{"a.npy", "a.bin"}, nil},
	} {
		var in []source.Input
		for _, p := range c.paths {
			in = append(in, source.Input{Name: p})
		}
		files := inputs.Files(in)
		err := inputs.SetStems(files, ".npy", ".bin")
		if (err != nil) != (c.want == nil) {
			t.Fatalf("%q: %v", c.paths, err)
		}
		var got []string
		for _, f := range files {
			got = append(got, f.Stem)
		}
		if err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.paths, got, c.want)
		}
	}
}

// TestSurvey: the error is the one of the lowest number, which no other cancels.
func TestSurvey(t *testing.T) {
	own, began, later := errors.New("a reason of its own"), make(chan bool), make(chan bool)
	err := inputs.Survey(t.Context(), 4, 4, func(ctx context.Context, i int) error {
		switch i {
		case 0:
			return nil
		case 1: // fails when 2 has failed, and 3 has seen that
			<-later
			return cmp.Or(ctx.Err(), own)
		case 2:
			<-began
			return errors.New("another")
		}
		close(began)
		<-ctx.Done()
		close(later)
		return ctx.Err()
	})
	if err != own {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := inputs.Survey(ctx, 3, 1, func(context.Context, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestReopen: a file that was replaced since it was opened first is refused.
func TestReopen(t *testing.T) {
	store := mem.New()
	put := func(text string) {
		if _, err := objstore.Put(t.Context(), store, "a", []byte(text), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	f := inputs.Files([]source.Input{{Store: store, Name: "a"}})[0]
	obj, err := f.Open(t.Context())
	if err != nil || f.Info.Size != 3 || f.Path != "a" {
		t.Fatal(err, f)
	}
	obj.Close()
	if obj, err = f.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	obj.Close()
	put("two, longer")
	if _, err := f.Reopen(t.Context()); !errors.Is(err, objstore.ErrChanged) {
		t.Fatal(err)
	}
}

func TestMulDiv(t *testing.T) {
	for _, c := range [][4]int64{{7, 3, 2, 10}, {0, 5, 9, 0}, {math.MaxInt64, 1000, 1000, math.MaxInt64}, {math.MaxInt64 - 1, 3, 6, math.MaxInt64 / 2}} {
		if got := inputs.MulDiv(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%d·%d/%d = %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
}
