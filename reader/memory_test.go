package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/reader/check"
)

// TestMemory reads blocks of 1 to 24 MiB in a budget of 8 MiB. A block that would have to be held
// whole is refused; its frames are not, and neither is one sample.
func TestMemory(t *testing.T) {
	const budget = 8 << 20
	noise := rand.NewChaCha8([32]byte{1})
	var samples []testset.Sample
	for i, mib := range []int{1, 1, 2, 24, 1, 5, 1, 1, 7, 3, 1} {
		s := testset.Sample{Key: fmt.Sprint(i), Fields: []testset.Field{{Name: "x", Data: bytes.Repeat([]byte("abc "), mib<<18)}}}
		if i%2 == 0 {
			noise.Read(s.Fields[0].Data)
		}
		samples = append(samples, s)
	}
	// In one piece the block of 24 MiB is too much; its frames are not.
	d := open(t, build(t, samples, testset.Options{}), Options{Memory: budget})
	n := 0
	var last error
	for s, err := range d.Samples(t.Context(), Range{}) {
		if last = err; err == nil {
			if err := equal(s, n, samples[n]); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	var at *format.PosError
	if n != 3 || !errors.Is(last, format.ErrTooLarge) || !errors.As(last, &at) || at.Block != 3 || !strings.Contains(last.Error(), "8388608") {
		t.Fatalf("%d samples, %v", n, last)
	}
	for i, want := range samples {
		s, err := d.Get(t.Context(), uint64(i))
		if err == nil {
			err = equal(s, i, want)
		}
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := d.Field(t.Context(), uint64(i), "x", &out); err != nil || !bytes.Equal(out.Bytes(), want.Fields[0].Data) {
			t.Fatalf("sample %d: %d bytes, %v", i, out.Len(), err)
		}
	}
	if r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: true}); err != nil || !r.OK() {
		t.Fatalf("%v %+v", err, r)
	}
}

// TestCopiesAhead: a batch that is larger than its share of the window is copied. The batches ahead
// may all draw from a piece that is in memory, and still at most one of them is copied ahead.
func TestCopiesAhead(t *testing.T) {
	const size = 4 << 20
	noise := rand.NewChaCha8([32]byte{1})
	sample := testset.Sample{Key: "a", Fields: []testset.Field{{Name: "x", Data: make([]byte, size)}}}
	noise.Read(sample.Fields[0].Data)
	d := open(t, build(t, []testset.Sample{sample}, testset.Options{}), Options{})
	s, err := d.Stream(t.Context(), StreamOptions{
		Shuffle: true, GlobalBatch: 1, Epochs: 50, Tuning: Tuning{Memory: size + size/8, Depth: 8, Workers: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil || len(b.Samples) != 1 || !bytes.Equal(b.Samples[0].Fields[0].Data, sample.Fields[0].Data) {
			t.Fatalf("batch %d: %d samples, %v", n, len(b.Samples), err)
		}
		runtime.Gosched()
		n++
	}
	// The piece, the batch in hand, and the one that follows.
	if _, most := s.window.Stats(); n != 50 || most > 3*(size+size/8) {
		t.Errorf("%d batches, %d bytes were held", n, most)
	}
}

// TestAllocations: walking samples allocates nothing, whatever the number of samples and blocks.
func TestAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("figures of memory: make test runs it without the race detector")
	}
	for name, o := range map[string]testset.Options{"zstd": {BlockSize: 16 << 10}, "raw": {BlockSize: 16 << 10, Raw: true}, "plain": {BlockSize: 16 << 10, Plain: true}} {
		measure := func(n int) (allocs uint64) {
			var samples []testset.Sample
			for i := range n {
				samples = append(samples, testset.Sample{Key: fmt.Sprintf("a/%06d", i), Fields: []testset.Field{
					{Name: "cls", Data: []byte("7")}, {Name: "txt", Data: bytes.Repeat([]byte("text "), 100)}}})
			}
			d := open(t, build(t, samples, o), Options{Workers: 2})
			var before, after runtime.MemStats
			read := func() {
				for _, err := range d.Samples(context.Background(), Range{}) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			read() // caches and pools
			runtime.ReadMemStats(&before)
			read()
			runtime.ReadMemStats(&after)
			return after.Mallocs - before.Mallocs
		}
		// 8,000 samples more are some 1,000 blocks more.
		few, many := measure(2_000), measure(10_000)
		if many > few+300 {
			t.Errorf("%s: %d allocations for 2,000 samples, %d for 10,000", name, few, many)
		}
	}
}

// TestStreamAllocations: once a stream has its memory, most blocks cost no allocation, also those
// of which only the samples are kept. Blocks are not compressed: the decoder's pools allocate under
// the race detector.
func TestStreamAllocations(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		of   testset.Options
	}{"packed": {200, testset.Options{Plain: true}}, "whole": {2500, testset.Options{Plain: true}}, "raw": {200, testset.Options{Raw: true}}} {
		c.of.BlockSize = 8 << 10
		var samples []testset.Sample
		for i := range 2_000 {
			samples = append(samples, testset.Sample{Key: fmt.Sprintf("%06d", i), Fields: []testset.Field{
				{Name: "cls", Data: []byte("7")}, {Name: "txt", Data: bytes.Repeat([]byte{byte(i), 'x'}, c.size/2)}}})
		}
		d := newStreamed(t, inDir(t), samples, c.of)
		const epochs = 4
		s := d.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 500, Order: OrderOptions{ShuffleMemory: 1 << 20}, Tuning: Tuning{Depth: 2}})
		var before, after runtime.MemStats
		for i := range 2 * epochs * len(samples) / 500 {
			if i == epochs*len(samples)/500 {
				runtime.ReadMemStats(&before)
			}
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if n, blocks := after.Mallocs-before.Mallocs, epochs*d.Info().Blocks; n > blocks {
			t.Errorf("%s: %d allocations for %d blocks", name, n, blocks)
		} else {
			t.Logf("%s: %d allocations for %d blocks", name, n, blocks)
		}
	}
}

// TestStreamingHuge passes a sample that is much larger than the budget through Field, without
// holding it.
func TestStreamingHuge(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	d := open(t, build(t, []testset.Sample{
		{Key: "small", Fields: []testset.Field{{Name: "x", Data: []byte("1")}}},
		{Key: "huge", Fields: []testset.Field{{Name: "x", Data: data}, {Name: "y", Data: []byte("2")}}},
	}, testset.Options{FrameSize: 1 << 20}), Options{Memory: 4 << 20, Workers: 2})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := &comparer{want: data}
	if err := d.Field(t.Context(), 1, "x", w); err != nil || len(w.want) != 0 {
		t.Fatalf("%v, %d bytes left", err, len(w.want))
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Fatalf("%d bytes were allocated", used)
	}
	var y bytes.Buffer
	if err := d.Field(t.Context(), 1, "y", &y); err != nil || y.String() != "2" {
		t.Fatal(y.String(), err)
	}
	if n, err := d.Lookup(t.Context(), "huge"); err != nil || n[0] != 1 {
		t.Fatal(n, err)
	}
}

// comparer is a writer that wants certain bytes.
type comparer struct{ want []byte }

func (c *comparer) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(c.want, p) {
		return 0, io.ErrUnexpectedEOF
	}
	c.want = c.want[len(p):]
	return len(p), nil
}

// copied is 1 for a batch whose samples were copied out of blocks.
func (b *Batch) copied() int {
	if b.draft.Copied {
		return 1
	}
	return 0
}

// TestStreamHeap: what a stream keeps alive is its budget and little more, also where blocks of
// many sizes come and go, and batches are copied out of them. What lies idle must not keep memory
// that the budget no longer counts.
func TestStreamHeap(t *testing.T) {
	if testing.Short() {
		t.Skip("figures of memory: make test runs it without the race detector")
	}
	const budget = 4 << 20
	noise := rand.New(rand.NewPCG(1, 2))
	var samples []testset.Sample
	for i := range 2000 {
		s := testset.Sample{Key: fmt.Sprintf("%04d", i), Fields: []testset.Field{{Name: "x", Data: make([]byte, noise.IntN(24<<10))}}}
		_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(s.Fields[0].Data)
		samples = append(samples, s)
	}
	d := newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 40 << 10, ShardSize: 4 << 20})
	before := usage(t, math.MaxInt).heap
	s := d.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 128, Tail: "wrap", Order: OrderOptions{ShuffleMemory: 16 << 20}, Tuning: Tuning{Memory: budget}})
	copied := 0
	for i := range 40 {
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if copied += b.copied(); i%8 == 7 {
			alive, counted := usage(t, math.MaxInt).heap-before, s.Stats().Held
			t.Logf("%d bytes alive, %d counted", alive, counted)
			if counted > budget || alive > counted+1<<20 {
				t.Fatalf("after %d batches %d bytes are alive and at most %d were counted, with a budget of %d", i+1, alive, counted, budget)
			}
		}
	}
	if copied == 0 || s.Stats().Evicted == 0 {
		t.Fatalf("%d copies, %+v", copied, s.Stats())
	}
	runtime.KeepAlive(samples) // they were there before
}
