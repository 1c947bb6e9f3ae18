package planner

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/tune"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

const (
	blockBytes   = 1 << 20
	blockSamples = 10
)

// script is an order that is written down, over one shard.
type script struct {
	batches []batch
	shard   *fetch.Shard
	next    int
}

type batch struct {
	opened, closed []order.Span
	refs           []order.Ref
	err            error
}

func newScript(blocks int, batches ...batch) *script {
	s := &script{batches: batches, shard: &fetch.Shard{ShardInfo: &metadata.ShardInfo{Name: "s.tar", Blocks: uint64(blocks)}, Number: 4}}
	for range blocks {
		s.shard.Rows = append(s.shard.Rows, format.Row{Samples: blockSamples, Stored: blockBytes, Decoded: blockBytes, Codec: format.CodecBytes})
	}
	return s
}

func (s *script) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	if s.next == len(s.batches) {
		return refs, order.Batch{}, io.EOF
	}
	b := &s.batches[s.next]
	s.next++
	return append(refs[:0], b.refs...), order.Batch{Opened: b.opened, Closed: b.closed}, b.err
}

func (s *script) Shards(context.Context, int, uint32) ([]Shard, int, error) {
	return []Shard{{Of: s.shard}}, 0, nil
}

// ref is the reference to a sample by its number.
func ref(slot, number uint64) order.Ref {
	return order.Ref{Number: number, Slot: slot, Block: uint32(number / blockSamples), Index: uint32(number % blockSamples)}
}

// padding is a reference that repeats a sample.
func padding(number uint64) order.Ref {
	r := ref(0, number)
	r.Padding = true
	return r
}

// start runs a planner over the script. Pieces have two blocks.
func start(t *testing.T, s *script, limit int64) (p *Planner, drafts chan *Draft, fetches chan *window.Piece) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p, drafts, fetches = prepare(s, limit)
	go func() {
		p.Run(ctx)
		close(fetches)
	}()
	return p, drafts, fetches
}

// prepare returns a planner over the script that does not run.
func prepare(s *script, limit int64) (p *Planner, drafts chan *Draft, fetches chan *window.Piece) {
	clock := new(account.Clock)
	drafts, fetches = make(chan *Draft, 10), make(chan *window.Piece, 10)
	p = &Planner{
		Order: s, Shards: s, Sources: []Source{{PieceBlocks: 2, FirstBlocks: 2, SampleBytes: 100}},
		Window: window.New(limit, clock), Clock: clock, Ahead: tune.NewAhead(10), Load: new(tune.Load),
		Limit: limit, Share: limit / 2, Drafts: drafts, Fetches: fetches,
	}
	return p, drafts, fetches
}

// blocksOf returns the first blocks of pieces.
func blocksOf(pieces []*window.Piece) (first []int) {
	for _, p := range pieces {
		first = append(first, p.First)
	}
	return first
}

// TestChain checks that small pieces of a batch come in one job, in the order in which the batch
// needs them, and that a large piece ends the job.
func TestChain(t *testing.T) {
	s := newScript(80, batch{opened: []order.Span{{Slot: 1, Block: 0, Blocks: 80}}, closed: []order.Span{{Slot: 1}}})
	for i := range s.shard.Rows {
		if r := &s.shard.Rows[i]; i < 78 {
			r.Stored, r.Decoded = 512, 512
		}
		s.batches[0].refs = append(s.batches[0].refs, ref(1, uint64(i*blockSamples)))
	}
	p, drafts, fetches := prepare(s, 64<<20)
	p.Local = true
	go func() {
		p.Run(t.Context())
		close(fetches)
	}()
	for d := range drafts {
		if d.Err != nil {
			t.Fatal(d.Err)
		}
	}
	var jobs []int
	at := 0
	for piece := range fetches {
		n := 0
		for ; piece != nil; piece = piece.Note.Next {
			if piece.First != at {
				t.Errorf("job %d: the piece of block %d, not %d", len(jobs), piece.First, at)
			}
			at, n = at+2, n+1
		}
		jobs = append(jobs, n)
	}
	if want := []int{jobPieces, jobPieces, 8}; !slices.Equal(jobs, want) {
		t.Errorf("jobs of %d pieces, want %d", jobs, want)
	}
}

// TestBatches plans two batches that share a piece: each reference finds its piece, a piece is
// fetched once, in the order in which the batches need it, and removed samples need none.
// Padding finds the block of the sample that it repeats, although no span of the order has it.
func TestBatches(t *testing.T) {
	s := newScript(6,
		batch{
			opened: []order.Span{{Slot: 1, Block: 2, Blocks: 4}},
			refs:   []order.Ref{ref(1, 51), ref(1, 20), ref(1, 33), ref(1, 24), padding(7), padding(24), padding(8), padding(52)},
		},
		batch{
			opened: []order.Span{{Slot: 2, Block: 0, Blocks: 2}},
			refs:   []order.Ref{ref(1, 59), ref(2, 7)},
			closed: []order.Span{{Slot: 1}, {Slot: 2}},
		},
	)
	s.shard.Removed = []uint64{24}
	p, drafts, fetches := start(t, s, 64<<20)
	var got []*Draft
	for d := range drafts {
		if d.Err != nil {
			t.Fatal(d.Err)
		}
		got = append(got, d)
	}
	if len(got) != 2 {
		t.Fatalf("%d batches", len(got))
	}
	for i, want := range []struct{ in, fresh []int }{
		{[]int{4, 2, 2, -1, 0, -1, 0, 4}, []int{4, 2, 0}},
		{[]int{4, 0}, []int{0}},
	} {
		d, in := got[i], []int{}
		for _, at := range d.In[0] {
			if at < 0 {
				in = append(in, -1)
			} else {
				in = append(in, d.Pieces[at].First)
			}
		}
		if !slices.Equal(in, want.in) || !slices.Equal(blocksOf(d.Fresh()), want.fresh) || d.Copied {
			t.Errorf("batch %d: references in the pieces of blocks %v, new ones %v, copied %v", i, in, blocksOf(d.Fresh()), d.Copied)
		}
	}
	var fetched []*window.Piece
	for p := range fetches {
		fetched = append(fetched, p)
	}
	if first := blocksOf(fetched); !slices.Equal(first, []int{4, 2, 0}) {
		t.Errorf("fetched the pieces of blocks %v", first)
	}
	for _, d := range got {
		p.Release(d)
	}
	if n := len(p.idle.idle); n != len(got) {
		t.Errorf("%d of %d drafts are kept for reuse", n, len(got))
	}
}

// TestCopied plans a batch whose pieces are more than its share of the window: it is copied, and
// its pieces are in the order in which they can be freed.
func TestCopied(t *testing.T) {
	s := newScript(8, batch{
		opened: []order.Span{{Slot: 1, Block: 0, Blocks: 8}},
		refs:   []order.Ref{ref(1, 70), ref(1, 0), ref(1, 45), ref(1, 21)},
	})
	p, drafts, fetches := start(t, s, 6<<20)
	d := <-drafts
	if !d.Copied || len(d.Pieces) != 4 {
		t.Fatalf("copied %v, %d pieces of 2 MiB in a window of 6 MiB", d.Copied, len(d.Pieces))
	}
	for i := range d.Refs {
		if piece := d.Pieces[d.In[0][i]]; int(d.Refs[i].Block)/2*2 != piece.First {
			t.Errorf("sample %d is looked for in the piece of block %d", d.Refs[i].Number, piece.First)
		}
	}
	held := 0
	for range d.Pieces { // they follow one another
		p.Window.Urgent(true)
		piece := <-fetches
		held = max(held, len(piece.Buf))
		piece.Land()
		p.Window.Gathered(d.Use, piece)
	}
	if _, most := p.Window.Stats(); held == 0 || most > 6<<20 {
		t.Errorf("%d bytes were held", most)
	}
}

// TestTooLarge refuses a block that is larger than the memory budget, by shard and block.
func TestTooLarge(t *testing.T) {
	s := newScript(3, batch{opened: []order.Span{{Slot: 1, Block: 1, Blocks: 1}}, refs: []order.Ref{ref(1, 12)}})
	s.shard.Rows[1].Decoded, s.shard.Rows[1].Stored = 9<<20, 9<<20
	_, drafts, _ := start(t, s, 8<<20)
	d, ok := <-drafts
	if !ok || !errors.Is(d.Err, format.ErrTooLarge) {
		t.Fatal(ok, d.Err)
	}
	var at *format.PosError
	if !errors.As(d.Err, &at) || at.Shard != "s.tar" || at.Block != 1 || !strings.Contains(d.Err.Error(), "9437184 bytes") {
		t.Errorf("%v", d.Err)
	}
	if _, more := <-drafts; more {
		t.Error("a batch after the error")
	}
}

// TestOrderFails hands on the error of the order in place of a batch.
func TestOrderFails(t *testing.T) {
	broken := errors.New("broken")
	_, drafts, fetches := start(t, newScript(1, batch{err: broken}), 8<<20)
	if d := <-drafts; !errors.Is(d.Err, broken) {
		t.Error(d.Err)
	}
	if _, more := <-fetches; more {
		t.Error("a piece was fetched")
	}
}
