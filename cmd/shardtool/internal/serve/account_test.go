package serve

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// told is an account, decoded as a parent decodes it.
type told struct {
	batches, samples, bytes uint64
	stalls                  [8]uint64 // in the order of stats.Stalls
	blocks, stored          uint64
}

func parseAccount(t *testing.T, b []byte) (a told) {
	t.Helper()
	if len(b) < 136 {
		t.Fatalf("an account of %d bytes", len(b))
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	a.batches, a.samples, a.bytes, a.blocks, a.stored = at(0), at(1), at(2), at(11), at(12)
	for i := range a.stalls {
		a.stalls[i] = at(3 + i)
	}
	return a
}

// account is that of a batch.
func (g *got) account(t *testing.T) told {
	t.Helper()
	return parseAccount(t, g.region[binary.LittleEndian.Uint64(g.header[104:]):])
}

func (a *told) wait() (sum uint64) {
	for _, s := range a.stalls {
		sum += s
	}
	return sum
}

// gated is a store whose shards answer from some moment on.
type gated struct {
	objstore.Store
	open chan struct{}
}

type gatedObject struct {
	objstore.Object
	open chan struct{}
}

func (s gated) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err == nil && strings.HasSuffix(name, ".tar.zst") {
		o = gatedObject{o, s.open}
	}
	return o, err
}

func (o gatedObject) ReadAt(ctx context.Context, p []byte, at int64) error {
	select {
	case <-o.open:
		return o.Object.ReadAt(ctx, p, at)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestAccount: a wait is reported while it lasts and with the batch that ends it, by cause; what is
// made ahead is waited for by nobody and not counted as delivered.
func TestAccount(t *testing.T) {
	store := gated{text(t, 100), make(chan struct{})}
	c := dial(t, store)
	c.info()
	c.start(1, `{"batch_size":10,"prefetch":2,"columns":[{"name":"txt","decode":"bytes"}]}`)
	c.ask(1, 0)
	var last told
	for i := range 2 {
		var f frame
		if _, err := io.ReadFull(c.sock, f[:]); err != nil || f.kind() != kindHeartbeat || f.u64(8) != 1 {
			t.Fatalf("% x: %v", f, err)
		}
		body := make([]byte, f.body())
		if _, err := io.ReadFull(c.sock, body); err != nil {
			t.Fatal(err)
		}
		a := parseAccount(t, body)
		if a.batches != 0 || a.samples != 0 || a.bytes != 0 || a.stalls[0] == 0 || a.stalls[0] <= last.stalls[0] {
			t.Fatalf("heartbeat %d: %+v after %+v", i, a, last)
		}
		last = a
	}
	close(store.open)
	first := c.batch()
	a := first.account(t)
	if a.batches != 1 || a.samples != 10 || a.bytes == 0 || a.blocks == 0 || a.stored == 0 || a.stalls[0] < last.stalls[0] {
		t.Fatalf("%+v after %+v", a, last)
	}
	// Batches 1 and 2 come before they are asked for: nothing is added but the handing over of the
	// first.
	one, two := c.batch(), c.batch()
	b, d := one.account(t), two.account(t)
	if b.batches != 2 || d.batches != 3 || d.samples != 30 || d.bytes <= b.bytes || b.wait() < a.wait() || d.stalls != b.stalls {
		t.Fatalf("%+v, then %+v and %+v", a, b, d)
	}
	// A heartbeat reports the end.
	for number := uint64(1); number < 10; number++ {
		c.ask(1, number)
		if number > 2 {
			c.batch()
		}
	}
	beats := len(c.beats)
	c.ask(1, 10)
	c.want(kindEnd)
	if len(c.beats) == beats {
		t.Fatal("END without an account")
	}
	end := parseAccount(t, c.beats[len(c.beats)-1].body)
	if end.batches != 10 || end.samples != 100 || end.wait() < d.wait() {
		t.Fatalf("%+v at the end, after %+v", end, d)
	}
	c.end()
}
