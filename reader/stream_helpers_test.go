package reader

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader/order"
)

// watch ends the process with all goroutines' stacks when a test hangs.
func watch(t testing.TB) {
	timer := time.AfterFunc(10*time.Minute, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		panic(t.Name() + " hangs")
	})
	t.Cleanup(func() { timer.Stop() })
}

// streamed are samples and the data set they were packed into.
type streamed struct {
	*Dataset
	samples []testset.Sample
}

func newStreamed(t testing.TB, store objstore.Store, samples []testset.Sample, o testset.Options) *streamed {
	t.Helper()
	buildIn(t, store, slices.Values(samples), o)
	return &streamed{open(t, store, Options{Workers: 2}), samples}
}

func inDir(t testing.TB) objstore.Store {
	t.Helper()
	store, err := local.New(t.TempDir(), local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// stream opens a stream that the test closes.
func (d *streamed) stream(t testing.TB, o StreamOptions) *Stream {
	t.Helper()
	s, err := d.Stream(t.Context(), o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// follower compares a stream with its plan.
type follower struct {
	*Stream
	set    *streamed
	cursor *order.Cursor
}

func (d *streamed) follow(t testing.TB, o StreamOptions) *follower {
	t.Helper()
	f := &follower{Stream: d.stream(t, o), set: d}
	epoch, position := o.Epoch, uint64(0)
	if o.Checkpoint != nil {
		epoch, position = o.Checkpoint.Place().Epoch, o.Checkpoint.Place().Position
	}
	var err error
	if f.cursor, err = f.Info().Plans[0].Seek(epoch, position); err != nil {
		t.Fatal(err)
	}
	if o.Epochs > 0 {
		f.cursor.Until(o.Epoch + o.Epochs)
	}
	return f
}

// expected is a batch and what must be in it, for as long as it is held.
type expected struct {
	*Batch
	set     *streamed
	refs    []order.Ref
	mapped  bool
	skipped func(number uint64) bool
}

// next takes a batch. It returns nil at the end of the order, which must be that of the stream.
func (f *follower) next(t testing.TB) *expected {
	t.Helper()
	refs, info, planErr := f.cursor.NextBatch(nil, f.split)
	b, err := f.Next(t.Context())
	if errors.Is(planErr, io.EOF) {
		if !errors.Is(err, io.EOF) {
			t.Fatalf("the order has ended, the stream says %v", err)
		}
		return nil
	}
	if err != nil || planErr != nil {
		t.Fatalf("batch at %d/%d: %v, %v", info.Epoch, info.Position, err, planErr)
	}
	if b.Epoch != info.Epoch || b.Position != info.Position || b.NextEpoch != info.NextEpoch || b.NextPosition != info.NextPosition ||
		b.Global != info.Global || b.First != info.First {
		t.Fatalf("batch %+v, want %+v", b, info)
	}
	return &expected{Batch: b, set: f.set, refs: refs, mapped: f.opts.Map != nil}
}

// check compares every byte.
func (e *expected) check(t testing.TB) {
	t.Helper()
	at, holes := 0, 0
	for i, r := range e.refs {
		if e.skipped != nil && e.skipped(r.Number) {
			holes++
			continue
		}
		if at >= len(e.Samples) {
			t.Fatalf("batch at %d/%d has %d samples, want %d and %d holes", e.Epoch, e.Position, len(e.Samples), len(e.refs), holes)
		}
		s := &e.Samples[at]
		if s.Number != r.Number || s.Padding != r.Padding || e.Place(at) != i {
			t.Fatalf("batch at %d/%d, place %d: sample %d at place %d, want %+v", e.Epoch, e.Position, i, s.Number, e.Place(at), r)
		}
		at++
		got := *s
		if e.mapped {
			n := len(got.Fields) - 1
			if string(got.Fields[n].Name) != "mapped" || string(got.Fields[n].Data) != string(got.Key) {
				t.Fatalf("sample %d was not mapped: %q", r.Number, got.Fields[n])
			}
			got.Fields = got.Fields[:n]
		}
		if err := equal(&got, int(r.Number), e.set.samples[r.Number]); err != nil {
			t.Fatalf("batch at %d/%d, place %d: %v", e.Epoch, e.Position, i, err)
		}
	}
	if at != len(e.Samples) || holes != e.Holes {
		t.Fatalf("batch at %d/%d has %d samples and %d holes, want %d and %d", e.Epoch, e.Position, len(e.Samples), e.Holes, at, holes)
	}
}

// rest goes to the end.
func (f *follower) rest(t testing.TB) (batches int) {
	t.Helper()
	for e := f.next(t); e != nil; e = f.next(t) {
		e.check(t)
		e.Release()
		batches++
	}
	return batches
}

// hooked is a store whose reads go through hooks.
type hooked struct {
	objstore.Store
	mu sync.Mutex
	// read, when set, is called after every ReadAt that succeeded, open before every Open.
	read func(name string, p []byte, off int64) error
	open func(ctx context.Context, name string) error
}

func (h *hooked) hooks() (func(string, []byte, int64) error, func(context.Context, string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.read, h.open
}

func (h *hooked) Open(ctx context.Context, name string) (objstore.Object, error) {
	if _, open := h.hooks(); open != nil {
		if err := open(ctx, name); err != nil {
			return nil, err
		}
	}
	o, err := h.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &hookedObject{o, h, name}, nil
}

type hookedObject struct {
	objstore.Object
	h    *hooked
	name string
}

func (o *hookedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := o.Object.ReadAt(ctx, p, off); err != nil {
		return err
	}
	if read, _ := o.h.hooks(); read != nil {
		return read(o.name, p, off)
	}
	return nil
}
