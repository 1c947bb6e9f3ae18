package writer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestFarPayloads: payloads that take long each are waited for many at a time, in bounded memory,
// and the bytes are the same.
func TestFarPayloads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := func() *synth { return &synth{items: makeItems(1500, 12<<10, 4), tag: "far"} }
		opt := small("d")
		opt.Workers, opt.Plain = 2, true
		want := mem.New()
		mustPack(t, want, source(), opt)

		far := source()
		var now, most atomic.Int64
		far.begin = func(ctx context.Context, _ int) error {
			n := now.Add(1)
			defer now.Add(-1)
			for {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(5 * time.Millisecond)
			return ctx.Err()
		}
		got := mem.New()
		mustPack(t, got, far, opt)
		sameObjects(t, "far", objects(t, got), objects(t, want))
		if m := most.Load(); m < 16 || m > 2+64 {
			t.Fatalf("%d payloads were read at once", m)
		}
		// A budget for eight blocks bounds them, too.
		most.Store(0)
		far.at, opt.Memory = 0, 8*2*opt.BlockSize
		got = mem.New()
		mustPack(t, got, far, opt)
		sameObjects(t, "far with little memory", objects(t, got), objects(t, want))
		if m := most.Load(); m > 8 {
			t.Fatalf("%d payloads were read at once", m)
		}
	})
}

// TestFarPayloadsFail: the error names the first failing sample in the order of the source, even if
// others fail earlier.
func TestFarPayloadsFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 5 {
			src := &synth{items: makeItems(600, 12<<10, 4), tag: "far"}
			for i := 300; i < 600; i++ {
				src.items[i].open = errRead
			}
			src.begin = func(ctx context.Context, i int) error {
				d := time.Millisecond
				if i == 300 {
					d = 20 * time.Millisecond
				}
				select {
				case <-time.After(d):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			opt := small("d")
			opt.Workers = 2
			_, err := writer.Pack(t.Context(), mem.New(), src, opt)
			if want := "origin of " + src.items[300].key; err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v, want %s", err, want)
			}
		}
	})
}
