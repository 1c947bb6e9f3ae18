package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// text is a set of samples with one field that differs in size.
func text(t *testing.T, n int) *mem.Store {
	return pack(t, n, func(i int) []writer.Field {
		return []writer.Field{{Name: "txt", Data: fmt.Appendf(nil, "%0*d", 100+i%50, i)}}
	})
}

// TestSameAsStream holds the batches of two epochs against those of the reader itself: numbers,
// keys, payloads, places and checkpoints.
func TestSameAsStream(t *testing.T) {
	store := text(t, 1000)
	ds, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	for _, tail := range []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad} {
		s, err := ds.Stream(t.Context(), reader.StreamOptions{Shuffle: true, Epochs: 2, GlobalBatch: 64, World: 1, Tail: tail})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, store)
		if in := c.info(); in.Samples != 1000 || len(in.Fields) != 1 || in.Fields[0].Name != "txt" {
			t.Fatalf("INFO is %+v", in)
		}
		if said := c.start(7, fmt.Sprintf(`{"batch_size":64,"shuffle":true,"epochs":2,"tail":%q,"columns":[{"name":"txt","decode":"bytes"}]}`, tail)); said.GlobalBatch != 64 || said.Tail != string(tail) {
			t.Fatalf("STARTED is %+v", said)
		}
		batches, ends := uint64(0), 0
		for {
			want, err := s.Next(t.Context())
			c.ask(7, batches)
			if errors.Is(err, io.EOF) {
				for range 3 { // as often as it is asked
					if f, _ := c.want(kindEnd); f.u64(8) != 7 || f.u64(16) != batches {
						t.Fatalf("END is % x", f)
					}
					c.ask(7, batches)
				}
				c.want(kindEnd)
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			g := c.batch()
			sameBatch(t, &g, want, batches)
			last := g.flags()&flagLast != 0
			if end := want.NextEpoch > want.Epoch || tail == order.TailDrop && want.NextPosition == 960; last != end {
				t.Fatalf("tail %s: batch %d at %d: last of its epoch: %v", tail, batches, want.Position, last)
			}
			if last {
				ends++
			}
			c.release(&g.frame)
			batches++
		}
		if ends != 2 || len(c.segments) != 1 {
			t.Fatalf("tail %s: %d epochs ended in %d batches, in %d segments", tail, ends, batches, len(c.segments))
		}
		c.end()
		s.Close()
	}
}

func sameBatch(t *testing.T, g *got, want *reader.Batch, number uint64) {
	t.Helper()
	le := binary.LittleEndian
	if g.u64(8) != number || g.u64(40) != want.Epoch || g.u64(48) != want.NextEpoch || g.u64(56) != want.NextPosition {
		t.Fatalf("batch %d is % x", number, g.frame)
	}
	if le.Uint64(g.header) != want.Epoch || le.Uint64(g.header[8:]) != want.Position || le.Uint32(g.header[32:]) != uint32(want.Global) {
		t.Fatalf("batch %d has the header % x", number, g.header)
	}
	cp, err := want.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := cp.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if is := g.region[le.Uint64(g.header[56:]):][:le.Uint32(g.header[64:])]; !bytes.Equal(is, checkpoint) {
		t.Fatalf("batch %d: checkpoint\n%s, want\n%s", number, is, checkpoint)
	}
	padding := uint32(0)
	for i := range want.Samples {
		s := &want.Samples[i]
		data, _ := s.Field("txt")
		if s.Padding {
			padding++
		}
		seed, origin := le.Uint64(g.region[le.Uint64(g.header[112:])+8*uint64(i):]), g.region[le.Uint64(g.header[120:])+8*uint64(i):]
		if seed != s.Seed() || le.Uint32(origin) != s.Epoch || le.Uint32(origin[4:]) != uint32(s.SourceNumber()) {
			t.Fatalf("batch %d sample %d has seed %x and origin % x", number, i, seed, origin[:8])
		}
		if g.numbers[i] != s.Number || g.keys[i] != string(s.Key) || !bytes.Equal(g.columns[0].payloads[i], data) {
			t.Fatalf("batch %d sample %d is %d %q %q, want %d %q %q", number, i, g.numbers[i], g.keys[i], g.columns[0].payloads[i], s.Number, s.Key, data)
		}
	}
	if len(g.numbers) != len(want.Samples) || le.Uint32(g.header[52:]) != padding {
		t.Fatalf("batch %d has %d samples, %d of padding", number, len(g.numbers), le.Uint32(g.header[52:]))
	}
}

// TestKept keeps all batches, of many times the bytes that may be ahead, and gives some of them
// back out of order: no batch is lost or repeated, and none is written to.
func TestKept(t *testing.T) {
	c := dial(t, text(t, 20000))
	c.info()
	c.start(1, `{"batch_size":500,"ring":1048576,"prefetch":8,"columns":[{"name":"txt","decode":"bytes"}]}`)
	var kept []got
	seen := []uint64{}
	for number := uint64(0); ; number++ {
		c.ask(1, number)
		f, body := c.next()
		if f.kind() == kindEnd {
			break
		}
		if f.kind() != kindBatch {
			t.Fatalf("a frame of kind %d: %s", f.kind(), body)
		}
		g := c.parse(f)
		seen = append(seen, g.numbers...)
		kept = append(kept, g)
		if number%3 == 2 {
			c.release(&kept[len(kept)-2].frame)
			kept = slices.Delete(kept, len(kept)-2, len(kept)-1)
		}
	}
	for i := range kept {
		again := c.parse(kept[i].frame)
		if !slices.Equal(again.numbers, kept[i].numbers) || !bytes.Equal(again.columns[0].data, kept[i].columns[0].data) {
			t.Fatalf("batch %d was written to", kept[i].u64(8))
		}
	}
	slices.Sort(seen)
	for i, n := range seen {
		if n != uint64(i) {
			t.Fatalf("sample %d is missing or came twice", i)
		}
	}
	if len(seen) != 20000 {
		t.Fatalf("%d samples came", len(seen))
	}
	c.end()
}

// TestAhead: batches that the parent has not said to have taken are bounded, however many may be
// ahead by their number. A NEXT says that those before it are taken, as does another START.
func TestAhead(t *testing.T) {
	c := dial(t, text(t, 2000))
	c.info()
	start := `{"batch_size":50,"ring":65536,"prefetch":64,"columns":[{"name":"txt","decode":"bytes"}]}`
	for run := uint64(1); run < 4; run++ {
		c.send(newFrame(kindStart, 0, len(start)).set64(8, run), []byte(start))
		for f, _ := c.next(); f.kind() != kindStarted; f, _ = c.next() { // what the run before has sent
			if f.kind() == kindError || f.kind() == kindEnd {
				t.Fatalf("run %d: % x", run, f)
			}
		}
		number := uint64(0)
		for range 5 {
			bytes := uint64(0)
			for bytes+16384 <= 65536 { // each has four pages
				g := c.batch()
				if g.u64(8) != number || g.u64(32) > 16384 {
					t.Fatalf("batch %d of %d bytes came, want %d", g.u64(8), g.u64(32), number)
				}
				bytes += g.u64(32)
				number++
			}
			c.send(newFrame(kindGet, flagKey, 4).set64(8, number), []byte("none"))
			c.wantError(kindGet, number, "not_found", codeNotFound) // nothing else came before
			c.ask(run, number)
		}
	}
	c.end()
}

// TestPrefetch: as many batches come ahead as asked for, or as the default has of small and large
// ones, and no more.
func TestPrefetch(t *testing.T) {
	for tuning, ahead := range map[string]int{
		`"batch_size":5,"prefetch":3`: 3, `"batch_size":5,"ring":65536`: 4, `"batch_size":5,"ring":1048576`: 64,
		`"batch_size":400,"ring":65536`: 1, // a quarter of the ring does not hold it
	} {
		c := dial(t, text(t, 1000))
		c.info()
		c.start(1, `{`+tuning+`,"columns":[]}`)
		for range ahead {
			c.batch()
		}
		c.send(newFrame(kindGet, 0, 0).set64(8, 5).set64(16, 1), nil)
		if f, _ := c.want(kindSample); f.u64(8) != 5 { // nothing else came before
			t.Fatalf("%s: SAMPLE is % x", tuning, f)
		}
		c.ask(1, uint64(ahead))
		for range ahead + 1 {
			c.batch()
		}
		c.end()
	}
}

// TestRestart starts runs while the previous one has not ended: all batches after STARTED are of
// the new run, from its beginning.
func TestRestart(t *testing.T) {
	c := dial(t, text(t, 300))
	c.info()
	for run := uint64(1); run <= 30; run++ {
		// Without prefetch the child sends only the batches that are requested, from STARTED on.
		request := fmt.Sprintf(`{"batch_size":7,"prefetch":%d,"columns":[{"name":"txt","decode":"bytes"}]}`, run%3)
		c.send(newFrame(kindStart, 0, len(request)).set64(8, run), []byte(request))
		for {
			f, _ := c.next()
			if f.kind() == kindStarted && f.u64(8) == run {
				break
			}
			if f.kind() != kindBatch {
				t.Fatalf("a frame of kind %d", f.kind())
			}
			c.release(&f)
		}
		for number := range run % 6 {
			c.ask(run, number)
			g := c.batch()
			if g.u64(8) != number || g.numbers[0] != 7*number {
				t.Fatalf("run %d: batch %d begins with sample %d, want batch %d", run, g.u64(8), g.numbers[0], number)
			}
			c.release(&g.frame)
		}
	}
	if len(c.segments) != 1 {
		t.Fatalf("%d segments: regions of ended runs are lost", len(c.segments))
	}
	c.end()
}

// TestGet reads samples by number and key, many at a time.
func TestGet(t *testing.T) {
	c := dial(t, text(t, 100))
	c.info()
	for i := range uint64(100) {
		if i%2 == 0 {
			c.send(newFrame(kindGet, 0, 0).set64(8, i).set64(16, i), nil)
			continue
		}
		key := fmt.Appendf(nil, "s/%04d", i)
		c.send(newFrame(kindGet, flagKey, len(key)).set64(8, i), key)
	}
	seen := map[uint64]bool{}
	for range 100 {
		f, _ := c.want(kindSample)
		i := f.u64(8)
		r := c.segments[f.u32(16)][f.u64(24):][:f.u64(32)]
		part := func(n int) string {
			at, size := binary.LittleEndian.Uint64(r[16*n:]), binary.LittleEndian.Uint64(r[16*n+8:])
			return string(r[at : at+size])
		}
		if seen[i] || f.u64(40) != i || f.u32(20) != 1 || part(0) != fmt.Sprintf("s/%04d", i) || part(1) != "txt" || part(2) != fmt.Sprintf("%0*d", 100+i%50, i) {
			t.Fatalf("sample %d is %d %q %q %q", i, f.u64(40), part(0), part(1), part(2))
		}
		seen[i] = true
		c.release(&f)
	}
	c.send(newFrame(kindGet, 0, 0).set64(8, 1000).set64(16, 100), nil)
	c.wantError(kindGet, 1000, "not_found", codeNotFound)
	c.send(newFrame(kindGet, flagKey, 4).set64(8, 1001), []byte("none"))
	c.wantError(kindGet, 1001, "not_found", codeNotFound)
	c.end()
}

// TestRefused sends invalid requests. The child answers with the reason and continues.
func TestRefused(t *testing.T) {
	c := dial(t, text(t, 100))
	c.openAt("elsewhere")
	c.wantError(kindOpen, 0, "not_found", codeNotFound)
	c.info()
	for request, want := range map[string]string{
		`{"batch_size":0,"columns":[]}`:                                "at least 1",
		`{"batch_size":5,"columns":[],"x":1}`:                          `unknown field "x"`,
		`{"batch_size":5`:                                              "unexpected EOF",
		`{"batch_size":5,"columns":[]}{}`:                              "more than one",
		`{"batch_size":5,"global_batch":5,"columns":[]}`:               "one of them",
		`{"batch_size":5,"prefetch":65,"columns":[]}`:                  "0 to 64",
		`{"batch_size":5,"ring":1,"columns":[]}`:                       "at least",
		`{"batch_size":5,"columns":[{"name":"txt","decode":"magic"}]}`: `no decoding "magic"`,
		`{"batch_size":5,"columns":[{"name":"txt","decode":"bytes"},{"name":"txt","decode":"bytes"}]}`:           "twice",
		`{"batch_size":5,"columns":[{"name":"txt","decode":"array","item_size":4,"shape":[-1,2]}]}`:              "shape [-1 2]",
		`{"batch_size":5,"columns":[{"name":"txt","decode":"array","item_size":4,"shape":[2000000,2000000]}]}`:   "below 2 GiB",
		`{"batch_size":5,"columns":[{"name":"txt","decode":"array","item_size":0,"shape":[2]}]}`:                 "items of 0",
		`{"batch_size":5,"columns":[{"name":"txt","decode":"array","item_size":4,"shape":[2],"optional":true}]}`: "optional",
	} {
		c.send(newFrame(kindStart, 0, len(request)).set64(8, 3), []byte(request))
		if p := c.wantError(kindStart, 3, "config", codeUsage); !strings.Contains(p.Message, want) {
			t.Errorf("%s: %q, want %q", request, p.Message, want)
		}
	}
	c.start(4, `{"batch_size":60,"ring":65536,"columns":[{"name":"txt","decode":"array","item_size":1,"shape":[1]}]}`)
	for range 3 { // it sticks
		c.ask(4, 0)
		if p := c.wantError(kindStart, 4, "decode", codeFailed); p.Key != "s/0000" || p.Field != "txt" {
			t.Errorf("decode: %+v", p)
		}
	}
	c.start(5, `{"batch_size":100,"columns":[{"name":"txt","decode":"bytes"}]}`)
	c.batch()
	c.end()
}

// TestTooLarge: a batch that does not fit into an empty ring is refused, and does not wait for
// ever.
func TestTooLarge(t *testing.T) {
	c := dial(t, pack(t, 10, func(int) []writer.Field { return []writer.Field{{Name: "bin", Data: make([]byte, 20<<10)}} }))
	c.info()
	c.start(1, `{"batch_size":10,"ring":65536,"columns":[{"name":"bin","decode":"bytes"}]}`)
	c.ask(1, 0)
	if p := c.wantError(kindStart, 1, "config", codeUsage); !strings.Contains(p.Message, "ring_memory") {
		t.Error(p.Message)
	}
	c.start(2, `{"batch_size":1,"ring":65536,"columns":[{"name":"bin","decode":"bytes"}]}`)
	c.batch()
	c.end()
}

// TestHostile sends frames that the protocol does not allow. The child reports that and exits.
func TestHostile(t *testing.T) {
	store := text(t, 10)
	for name, f := range map[string]frame{
		"unknown kind":          newFrame(99, 0, 0),
		"a kind of the child":   newFrame(kindBatch, 0, 0),
		"zeros":                 {},
		"a huge body":           newFrame(kindOpen, 0, 1<<30),
		"RELEASE with a body":   newFrame(kindRelease, 0, 1),
		"RELEASE of nothing":    newFrame(kindRelease, 0, 0).set64(24, 4096),
		"RELEASE of no segment": newFrame(kindRelease, 0, 0).set32(16, 77),
	} {
		c := dial(t, store)
		c.send(f, nil)
		p := c.wantError(0, 0, "protocol", codeUsage)
		if !strings.Contains(p.Message, "of one version") {
			t.Errorf("%s: %s", name, p.Message)
		}
		c.ended(p.Message)
	}
	c := dial(t, store)
	c.send(newFrame(kindOpen, 0, 2).set32(16, 9), []byte("{}"))
	c.wantError(kindOpen, 0, "protocol", codeUsage)
	c.send(newFrame(kindStart, 0, 16).set64(8, 1), []byte(`{"columns":null}`))
	c.wantError(kindStart, 1, "protocol", codeUsage)
	c.send(newFrame(kindGet, 0, 0).set64(8, 1), nil)
	c.wantError(kindGet, 1, "protocol", codeUsage)
	c.send(newFrame(kindStop, 0, 0), nil)
	c.ended("")
	// A parent that is killed in the middle of a frame.
	c = dial(t, store)
	if _, err := c.sock.Write([]byte{34, 0, 0}); err != nil {
		t.Fatal(err)
	}
	c.end()
}

// stuck is a store whose shards do not answer until the request is given up.
type stuck struct{ objstore.Store }

type stuckObject struct{ objstore.Object }

func (s stuck) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err == nil && strings.HasSuffix(name, ".tar.zst") {
		o = stuckObject{o}
	}
	return o, err
}

func (stuckObject) ReadAt(ctx context.Context, _ []byte, _ int64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestStuck: while a store does not answer, the parent hears that the child lives, and can end it.
func TestStuck(t *testing.T) {
	for _, stop := range []bool{true, false} {
		c := dial(t, stuck{text(t, 100)})
		c.info()
		c.start(1, `{"batch_size":10,"columns":[{"name":"txt","decode":"bytes"}]}`)
		c.ask(1, 0)
		var f frame
		if _, err := io.ReadFull(c.sock, f[:]); err != nil || f.kind() != kindHeartbeat || f.u64(8) != 1 || f.u64(16) != 1000 {
			t.Fatalf("% x: %v", f, err)
		}
		if stop {
			c.send(newFrame(kindStop, 0, 0), nil)
			c.ended("")
		} else {
			c.end()
		}
	}
}

// TestCorrupt flips a byte: the batches before it are delivered, and the error gives its place.
// With skipping, the batch has holes, and the first batch after the ledger changed carries the
// ledger.
func TestCorrupt(t *testing.T) {
	store := text(t, 2000)
	flip(t, store)
	c := dial(t, store)
	c.info()
	c.start(1, `{"batch_size":50,"columns":[{"name":"txt","decode":"bytes"}]}`)
	number := uint64(0)
	for {
		c.ask(1, number)
		f, body := c.next()
		if f.kind() == kindError {
			var zero int64
			p := problem{}
			mustJSON(t, body, &p)
			if p.Kind != "corrupt" || p.Shard == "" || p.Block == nil || p.Offset == nil || *p.Offset <= zero || f.u32(16) != codeCorrupt {
				t.Fatalf("%s", body)
			}
			break
		}
		c.release(&f)
		number++
	}
	if number == 0 {
		t.Fatal("no batch came before the damage")
	}
	c.start(2, `{"batch_size":50,"on_error":"skip","columns":[{"name":"txt","decode":"bytes"}]}`)
	ledgers, holes, samples := 0, uint32(0), 0
	for i := range uint64(40) {
		c.ask(2, i)
		g := c.batch()
		if n := binary.LittleEndian.Uint32(g.header[68:]); n > 0 != (g.flags()&flagLedger != 0) {
			t.Fatalf("a ledger of %d bytes, flags %d", n, g.flags())
		} else if n > 0 {
			at := binary.LittleEndian.Uint64(g.header[72:])
			blocks, err := ledger.Decode(g.region[at : at+uint64(n)])
			if err != nil || len(blocks) != 1 {
				t.Fatalf("%v: %v", blocks, err)
			}
			ledgers++
		}
		holes += binary.LittleEndian.Uint32(g.header[44:])
		samples += len(g.numbers)
		c.release(&g.frame)
	}
	if ledgers != 1 || holes == 0 || samples+int(holes) != 2000 {
		t.Fatalf("%d ledgers, %d holes, %d samples", ledgers, holes, samples)
	}
	c.end()
}

// flip turns bits in the middle of the first shard's blocks.
func flip(t *testing.T, store *mem.Store) {
	t.Helper()
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(info.Name, ".tar.zst") {
			continue
		}
		data, _, err := objstore.ReadAll(t.Context(), store, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 0xff
		if _, err := objstore.Put(t.Context(), store, info.Name, data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal(fs.ErrNotExist)
}

// TestDescriptor refuses what is no socket.
func TestDescriptor(t *testing.T) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[1])
	if err := Serve(t.Context(), p[0], Options{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "socket pair") {
		t.Errorf("a pipe: %v", err)
	}
	if err := Serve(t.Context(), 1<<20, Options{}); !errors.Is(err, ErrConfig) {
		t.Errorf("no descriptor: %v", err)
	}
}

// TestNoLeak makes and ends servers; descriptors come back. goleak looks at goroutines.
func TestNoLeak(t *testing.T) {
	store := text(t, 200)
	before := 0
	for i := range 30 {
		c := dial(t, store)
		c.info()
		c.start(1, `{"batch_size":20,"columns":[{"name":"txt","decode":"bytes"}]}`)
		c.batch()
		c.end()
		if i == 2 {
			before = openFiles(t)
		}
	}
	if after := openFiles(t); after > before+5 { // of 27 servers; the runtime opens some too
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
