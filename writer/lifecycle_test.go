package writer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

func one(key string) writer.Sample {
	return writer.Sample{Key: key, Fields: []writer.Field{{Name: "txt", Data: []byte(key)}}}
}

func newWriter(t *testing.T, st objstore.Store, opt writer.Options) *writer.Writer {
	t.Helper()
	w, err := writer.New(t.Context(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Abort() })
	return w
}

func TestLifecycle(t *testing.T) {
	st := mem.New()
	w := newWriter(t, st, writer.Options{})
	if err := w.Write(t.Context(), one("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(t.Context()); err == nil {
		t.Fatal("closed twice")
	}
	if err := w.Write(t.Context(), one("b")); err == nil {
		t.Fatal("wrote after Close")
	}
	before := objects(t, st)
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	sameObjects(t, "after Abort after Close", objects(t, st), before)

	w = newWriter(t, st, writer.Options{Mode: writer.ModeOverwrite})
	if err := w.Write(t.Context(), one("c")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err == nil {
		t.Fatal("Close after Abort")
	}
	sameObjects(t, "after Abort", objects(t, st), before)
	if _, err := writer.New(t.Context(), st, writer.Options{}); !errors.Is(err, writer.ErrExists) {
		t.Fatal(err)
	}
	w = newWriter(t, mem.New(), writer.Options{})
	if _, err := w.Close(t.Context()); !errors.Is(err, writer.ErrEmpty) {
		t.Fatal(err)
	}
}

// TestWriteCopies: the caller may use its memory again at once.
func TestWriteCopies(t *testing.T) {
	st := mem.New()
	w := newWriter(t, st, writer.Options{Plain: true})
	buf := make([]byte, 17<<20)
	for i, n := range []int{10, 1000, 17 << 20, 5} {
		for j := range buf[:n] {
			buf[j] = byte(i + 1)
		}
		attrs := []format.AttrValue{{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: int64(i)}}
		s := writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "z", Data: buf[:n]}, {Name: "a", Data: buf[:1]}}, Attrs: attrs}
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if s.Fields[0].Name != "z" {
			t.Fatal("the caller's fields were sorted in place")
		}
		clear(buf)
		attrs[0] = format.AttrValue{}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range mustLoad(t, st).Samples {
		if s.Attrs[0].Integer != int64(i) || len(bytes.TrimLeft(s.Field("z"), string(rune(i+1)))) != 0 || s.Field("a")[0] != byte(i+1) {
			t.Fatalf("sample %d", i)
		}
	}
}

// TestErrorsStick: after the first failure nothing is published, whatever the caller does next.
func TestErrorsStick(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	number := format.AttrValue{Attribute: format.Attribute{Name: "x", Kind: format.AttrNumber}}
	label := format.AttrValue{Attribute: format.Attribute{Name: "x", Kind: format.AttrLabel}}
	withAttrs := func(key string, a ...format.AttrValue) writer.Sample { s := one(key); s.Attrs = a; return s }
	field := func(f ...writer.Field) writer.Sample { return writer.Sample{Key: "k", Fields: f} }
	for what, fail := range map[string]func(w *writer.Writer) error{
		"context":     func(w *writer.Writer) error { return w.Write(ended, one("b")) },
		"duplicate":   func(w *writer.Writer) error { return w.Write(t.Context(), one("a")) },
		"no fields":   func(w *writer.Writer) error { return w.Write(t.Context(), writer.Sample{Key: "k"}) },
		"field twice": func(w *writer.Writer) error { return w.Write(t.Context(), field(writer.Field{}, writer.Field{})) },
		"field name":  func(w *writer.Writer) error { return w.Write(t.Context(), field(writer.Field{Name: "a/b"})) },
		"long name": func(w *writer.Writer) error {
			return w.Write(t.Context(), field(writer.Field{Name: strings.Repeat("x", 4095)}))
		},
		"negative": func(w *writer.Writer) error {
			return w.Write(t.Context(), field(writer.Field{Payload: zeros{}, Size: -1}))
		},
		"beyond 64 bits": func(w *writer.Writer) error {
			return w.Write(t.Context(), field(writer.Field{Payload: zeros{}, Size: math.MaxInt64}))
		},
		"attribute twice": func(w *writer.Writer) error { return w.Write(t.Context(), withAttrs("k", label, label)) },
		"no such kind": func(w *writer.Writer) error {
			return w.Write(t.Context(), withAttrs("k", format.AttrValue{Attribute: format.Attribute{Name: "y", Kind: 9}}))
		},
		"other kind": func(w *writer.Writer) error { return w.Write(t.Context(), withAttrs("k", number)) },
	} {
		t.Run(what, func(t *testing.T) {
			for _, skip := range []bool{false, true} {
				st := mem.New()
				opt := writer.Options{Plain: true}
				if skip {
					opt.Faults.Skip = true
				}
				w := newWriter(t, st, opt)
				if err := w.Write(t.Context(), withAttrs("a", label)); err != nil {
					t.Fatal(err)
				}
				// An own shard for "a": a context that has ended is seen where a block begins.
				if what == "context" {
					w = newWriter(t, st, opt)
				}
				err := fail(w)
				if skip && what != "context" {
					if err != nil {
						t.Fatalf("one bad sample: %v", err)
					}
					res, err := w.Close(t.Context())
					if err != nil || res.Skipped != 1 || res.Samples != 1 {
						t.Fatalf("%+v, %v", res, err)
					}
					mustLoad(t, st)
					continue
				}
				if err == nil {
					t.Fatal("no error")
				}
				if again := w.Write(t.Context(), one("c")); again == nil {
					t.Fatal("the error did not stick")
				}
				if _, last := w.Close(t.Context()); last == nil || len(objects(t, st)) != 0 {
					t.Fatalf("published after %v", err)
				}
			}
		})
	}
}

// blocking is a store whose named operation waits for the end of its context.
type blocking struct {
	*mem.Store
	op      string
	reached chan struct{}
}

func (b *blocking) wait(ctx context.Context, op string) error {
	if op != b.op {
		return nil
	}
	select {
	case b.reached <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func (b *blocking) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	if err := b.wait(ctx, "create"); err != nil {
		return nil, err
	}
	if strings.HasPrefix(name, "keys-") {
		if err := b.wait(ctx, "keys"); err != nil {
			return nil, err
		}
	}
	up, err := b.Store.Create(ctx, name, cond)
	return &blockingUpload{up, b, ctx}, err
}

type blockingUpload struct {
	objstore.Upload
	b   *blocking
	ctx context.Context
}

func (u *blockingUpload) Write(p []byte) (int, error) {
	if err := u.b.wait(u.ctx, "write"); err != nil {
		return 0, err
	}
	return u.Upload.Write(p)
}

func (u *blockingUpload) Commit(ctx context.Context) (objstore.Info, error) {
	if err := u.b.wait(ctx, "commit"); err != nil {
		return objstore.Info{}, err
	}
	return u.Upload.Commit(ctx)
}

var shared sync.Once

// bubble runs f in a bubble of synctest: what takes time takes exactly that time, on every machine.
// What all packs share, an encoder and a decoder, is made before, outside of it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	shared.Do(func() { mustPack(t, mem.New(), resumeSource(), small("d")) })
	synctest.Test(t, f)
}

// TestCancel ends a pack whose store or source hangs: promptly, with the cause, with nothing
// published and no goroutine left.
func TestCancel(t *testing.T) {
	for _, op := range []string{"create", "write", "commit", "keys", "payload"} {
		for _, c := range []struct {
			memory  int64
			samples int
		}{{1, 60}, {1 << 30, 60}, {1 << 30, 1}} { // Write waits for the budget, or for a channel, or Close waits
			bubble(t, func(t *testing.T) {
				st := &blocking{mem.New(), op, make(chan struct{}, 1)}
				src := resumeSource()
				src.items = src.items[:c.samples]
				src.begin = func(ctx context.Context, _ int) error { return st.wait(ctx, "payload") }
				cause := errors.New("the reason")
				ctx, cancel := context.WithCancelCause(t.Context())
				begin := time.Now()
				go func() { <-st.reached; time.Sleep(time.Second); cancel(cause) }()
				opt := small("d")
				opt.Plain, opt.Memory = true, c.memory
				_, err := writer.Pack(ctx, st, src, opt)
				if !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
					t.Fatalf("%s: %v", op, err)
				}
				if d := time.Since(begin); d != time.Second {
					t.Fatalf("%s: it ends after %v, cancelled after a second", op, d)
				}
				if digestOf(t, st) != "" {
					t.Fatal("published")
				}
			})
			goleak.VerifyNone(t)
		}
	}
}

// TestAbortWhileBlocked needs no context.
func TestAbortWhileBlocked(t *testing.T) {
	for _, op := range []string{"create", "write", "commit"} {
		st := &blocking{mem.New(), op, make(chan struct{}, 1)}
		w := newWriter(t, st, writer.Options{Plain: true, SamplesPerShard: 1})
		if err := w.Write(t.Context(), one("a")); err != nil {
			t.Fatal(err)
		}
		<-st.reached
		_ = w.Abort()
		goleak.VerifyNone(t)
	}
}

// TestStored: each shard is reported once it is in the store, in order, and a shard whose put fails
// is not.
func TestStored(t *testing.T) {
	st := mem.New()
	var stored []int64
	opt := writer.Options{SamplesPerShard: 3, Stored: func(samples int64) {
		stored = append(stored, samples)
		if name := fmt.Sprintf("data-%06d.tar.zst", len(stored)-1); !has(t, st, name) {
			t.Errorf("%s is reported and not in the store", name)
		}
	}}
	w := newWriter(t, st, opt)
	for i := range 8 {
		if err := w.Write(t.Context(), one(fmt.Sprint("k", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil || fmt.Sprint(stored) != "[3 3 2]" {
		t.Errorf("stored %v, %v", stored, err)
	}
	stored = nil
	full := &blocking{mem.New(), "commit", make(chan struct{}, 1)}
	w = newWriter(t, full, opt)
	for i := range 3 {
		if err := w.Write(t.Context(), one(fmt.Sprint("k", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _ = w.Abort(); len(stored) > 0 {
		t.Errorf("stored %v", stored)
	}
}

func has(t *testing.T, st objstore.Store, name string) bool {
	t.Helper()
	_, err := st.Stat(t.Context(), name)
	return err == nil
}

// TestNoDescriptorsLeft: uploads and sorted runs are given back after every kind of end.
func TestNoDescriptorsLeft(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(entries)
	}
	st := localStore(t, t.TempDir())
	before := open()
	for _, end := range []string{"abort", "fail", "cancel"} {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := writer.New(ctx, st, writer.Options{Plain: true, Memory: 1, SamplesPerShard: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50_100 { // more keys than fit in memory
			if err := w.Write(ctx, one(fmt.Sprint(end, i))); err != nil {
				t.Fatal(err)
			}
		}
		switch end {
		case "fail":
			_ = w.Write(ctx, one(""))
			_, err = w.Close(ctx)
		case "cancel":
			cancel()
			_, err = w.Close(ctx)
		default:
			err = errors.Join(w.Abort(), errRead)
		}
		cancel()
		if err == nil {
			t.Fatal("no error")
		}
		if after := open(); after > before {
			t.Fatalf("%s: %d files are open, %d were before", end, after, before)
		}
		if n, err := objstore.TraitsOf(st).Sweep(t.Context(), 0); n != 0 || err != nil {
			t.Fatalf("%s: %d temporary files left, %v", end, n, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for what, opt := range map[string]writer.Options{
		"block size": {BlockSize: 4095}, "large block": {BlockSize: 16<<20 + 1}, "negative block": {BlockSize: -1}, "shard below block": {ShardSize: 1 << 19},
		"negative samples": {SamplesPerShard: -1}, "workers": {Workers: -1}, "memory": {Memory: -1}, "skipped": {Faults: writer.Faults{MaxSkipped: -1}},
		"share": {Faults: writer.Faults{MaxSkippedShare: 1.1}}, "negative share": {Faults: writer.Faults{MaxSkippedShare: -0.1}}, "NaN": {Faults: writer.Faults{MaxSkippedShare: math.NaN()}},
		"level": {Level: 4}, "negative level": {Level: -1}, "mode": {Mode: 3}, "negative mode": {Mode: -1},
		"slash": {Name: "a/b"}, "dot": {Name: ".a"}, "dash": {Name: "-a"}, "manifest": {Name: "manifest"}, "keys": {Name: "keys"}, "space": {Name: "a b"},
		"umlaut": {Name: "ä"}, "long": {Name: strings.Repeat("a", 201)},
	} {
		st := mem.New()
		if w, err := writer.New(t.Context(), st, opt); err == nil {
			_ = w.Abort()
			t.Errorf("%s: %+v was taken", what, opt)
		}
	}
	for _, opt := range []writer.Options{
		{BlockSize: 4 << 10}, {BlockSize: 16 << 20}, {BlockSize: 1 << 20, ShardSize: 1 << 20}, {Name: strings.Repeat("a", 200)}, {Name: "_A-z.9"}, {Faults: writer.Faults{MaxSkippedShare: 1}}, {Memory: 1, Workers: 100},
	} {
		st := mem.New()
		w := newWriter(t, st, opt)
		if err := w.Write(t.Context(), one("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, st)
	}
}
