package assemble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/tune"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// memory is a source of one shard whose blocks are made when they are wanted. Sample n has the key
// n and a field of its key, repeated.
type memory struct {
	plan   *order.Plan
	blocks [][]byte
	shard  *fetch.Shard
}

func newMemory(t *testing.T, p order.Params, blocks, perBlock int) *memory {
	t.Helper()
	m := &memory{shard: &fetch.Shard{ShardInfo: &metadata.ShardInfo{Name: "s.tar", Blocks: uint64(blocks)}}}
	table := order.Table{ShardFirst: []int{0}}
	for b := range blocks {
		var buf tarblock.Builder
		for i := range perBlock {
			key := fmt.Sprint(b*perBlock + i)
			data := slices.Repeat([]byte(key), 100)
			at := buf.Member(format.JoinName(key, "x"), len(data))
			copy(buf.Buf[at:], data)
		}
		m.blocks = append(m.blocks, buf.Buf)
		table.Samples = append(table.Samples, uint32(perBlock))
		table.Decoded += uint64(len(buf.Buf))
		n := uint32(len(buf.Buf))
		m.shard.Rows = append(m.shard.Rows, format.Row{Samples: uint32(perBlock), Stored: n, Decoded: n, Codec: format.CodecBytes})
	}
	var err error
	if m.plan, err = order.New(table, "", p); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *memory) Shards(context.Context, int, uint32) ([]planner.Shard, int, error) {
	return []planner.Shard{{Of: m.shard}}, 0, nil
}

// cursor is one rank's part of an order.
type cursor struct {
	*order.Cursor
	split order.Split
}

func (c cursor) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	return c.NextBatch(refs, c.split)
}

// list collects a batch.
type list struct {
	keys, data []string
	places     []int
}

// add adds what a batch holds.
func (l *list) add(h *Held, samples []found) {
	for i, s := range samples {
		l.places = append(l.places, h.Place(i))
		l.keys = append(l.keys, string(s.key))
		if len(s.fields) > 0 {
			l.data = append(l.data, string(s.fields[0].Data))
		}
	}
}

// found is a sample of a batch.
type found struct {
	key    []byte
	fields []format.FieldView
}

// run streams all batches through planner, window and assembler.
func run(t *testing.T, m *memory, split order.Split, limit int64, damaged int, skip bool, each func(planner.Draft, list)) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := m.plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Until(2)
	clock, landing := new(account.Clock), make(chan struct{}, 1)
	drafts, fetches := make(chan *planner.Draft, 4), make(chan *window.Piece, 4)
	w := window.New(limit, clock)
	p := &planner.Planner{
		Order: cursor{c, split}, Shards: m, Sources: []planner.Source{{PieceBlocks: 2, FirstBlocks: 1, SampleBytes: 300}},
		Window: w, Clock: clock, Ahead: tune.NewAhead(4), Load: new(tune.Load), Limit: limit, Share: limit / 2, Drafts: drafts, Fetches: fetches,
	}
	go p.Run(ctx)
	go func() {
		var packer block.Packer
		for piece := range fetches {
			for i := range piece.Blocks {
				number := piece.First + i
				if number == damaged {
					piece.Table.AddError(fmt.Errorf("block %d: %w", number, format.ErrCorrupt))
					continue
				}
				buf := slices.Clone(m.blocks[number])
				if number%2 == 0 { // a mix of both, as large blocks and small ones are
					b, err := packer.Pack(piece.Table, func(n int) []byte { return make([]byte, n) }, buf, int(m.shard.Rows[number].Samples), false)
					if err != nil {
						t.Error(err)
						return
					}
					piece.Table.AddPacked(b, uint64(number)*uint64(m.shard.Rows[0].Samples))
					continue
				}
				if err := piece.Table.Add(buf, uint64(number)*uint64(m.shard.Rows[0].Samples), int(m.shard.Rows[number].Samples), block.Kind{}); err != nil {
					t.Error(err)
				}
			}
			piece.Land()
			select {
			case landing <- struct{}{}:
			default:
			}
		}
	}()
	a := Assembler{Window: w, Clock: clock, Landing: landing, Skip: func(_ *window.Piece, _ *order.Ref, cause error) error {
		if skip {
			return nil
		}
		return cause
	}}
	var held Held
	mem := Samples[found]{Make: func(to *found, _ *order.Ref, key []byte, fields []format.FieldView) { *to = found{key, fields} }}
	for d := range drafts {
		w.Urgent(true)
		if d.Err != nil {
			return d.Err
		}
		var got list
		if err := a.Fill(ctx, d, &held, &mem); err != nil {
			return err
		}
		if held.Len() != len(mem.List) || held.Len()+held.Holes != len(d.Refs) {
			t.Fatalf("%d samples and %d holes of %d references, and %d in the list", held.Len(), held.Holes, len(d.Refs), len(mem.List))
		}
		got.add(&held, mem.List)
		p.Ahead.Deliver()
		each(*d, got)
		mem.Reset()
		p.Release(d)
	}
	return nil
}

// TestOrder streams two epochs through windows from ample to tiny, and compares every batch with
// the order itself. In an ample window batches share their pieces; what batches hold together never
// exceeds what one may hold.
func TestOrder(t *testing.T) {
	params := order.Params{Seed: 3, Shuffle: true, Lanes: 6, RunBlocks: 2, Delay: 3, Head: 2, Affinity: order.AffinityEpoch, Tail: order.TailPad}
	m := newMemory(t, params, 40, 7)
	split := order.Split{GlobalBatch: 33, Rank: 1, World: 2}
	for _, limit := range []int64{1 << 20, 40 << 10, 17 << 10} {
		want, err := m.plan.Seek(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		want.Until(2)
		copied, shared := 0, 0
		err = run(t, m, split, limit, -1, false, func(d planner.Draft, got list) {
			refs, _, err := want.NextBatch(nil, split)
			if err != nil || len(got.keys) != len(refs) {
				t.Fatalf("%d samples, want %d, %v", len(got.keys), len(refs), err)
			}
			data := got.data
			for i, r := range refs {
				key := fmt.Sprint(r.Number)
				if got.keys[i] != key || got.places[i] != i {
					t.Fatalf("place %d has %q at %d, want %q", i, got.keys[i], got.places[i], key)
				}
				if data[0] != string(slices.Repeat([]byte(key), 100)) {
					t.Fatalf("sample %s has other data", key)
				}
				data = data[1:]
			}
			drawn, held := map[int32]bool{}, int64(0)
			for _, in := range d.In[0] {
				if in >= 0 {
					drawn[in] = true
				}
			}
			for _, p := range d.Pieces {
				held += int64(fetch.SizeOf(p.Plan.Size))
			}
			switch {
			case d.Copied:
				copied++
			case held > limit/2:
				t.Errorf("limit %d: batches hold %d bytes", limit, held)
			case len(d.Fresh()) < len(drawn):
				shared++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := want.NextBatch(nil, split); !errors.Is(err, io.EOF) {
			t.Errorf("batches are missing: %v", err)
		}
		if (copied > 0) != (limit < 1<<20) {
			t.Errorf("limit %d: %d batches were copied", limit, copied)
		}
		if limit == 1<<20 && shared == 0 {
			t.Error("no batch shares pieces with one before it")
		}
	}
}

// TestFirstBatch: the first batch brings only blocks that it draws from, later ones whole pieces.
func TestFirstBatch(t *testing.T) {
	params := order.Params{Seed: 3, Shuffle: true, Lanes: 6, RunBlocks: 2, Delay: 3, Head: 2, Affinity: order.AffinityEpoch, Tail: order.TailPad}
	m := newMemory(t, params, 240, 7)
	batch, larger := 0, 0
	err := run(t, m, order.Split{GlobalBatch: 12, World: 1}, 1<<20, -1, false, func(d planner.Draft, _ list) {
		drawn := map[int]bool{}
		for i := range d.Refs {
			drawn[int(d.Refs[i].Block)] = true
		}
		for _, p := range d.Pieces {
			for b := range p.Blocks {
				if batch == 0 && !drawn[p.First+b] {
					t.Errorf("the first batch brings block %d, and draws nothing from it", p.First+b)
				}
			}
			if p.Blocks > 1 {
				larger++
			}
		}
		batch++
	})
	if err != nil {
		t.Fatal(err)
	}
	if larger == 0 {
		t.Error("no piece has two blocks")
	}
}

// TestDamage checks that the samples of a damaged block are left out, or end the stream.
func TestDamage(t *testing.T) {
	params := order.Params{Seed: 3, Shuffle: true, Lanes: 2, RunBlocks: 1, Delay: 2, Head: 1, Affinity: order.AffinityEpoch, Tail: order.TailShort}
	m := newMemory(t, params, 20, 5)
	split := order.Split{GlobalBatch: 10, World: 1}
	for _, limit := range []int64{1 << 20, 17 << 10} {
		samples := 0
		if err := run(t, m, split, limit, 7, true, func(d planner.Draft, got list) { samples += len(got.keys) }); err != nil {
			t.Fatal(err)
		}
		if samples != 2*(100-5) {
			t.Errorf("limit %d: %d samples, want %d", limit, samples, 2*(100-5))
		}
		if err := run(t, m, split, limit, 7, false, func(planner.Draft, list) {}); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// TestTooLarge checks that a block larger than the budget is refused with its place.
func TestTooLarge(t *testing.T) {
	m := newMemory(t, order.Params{Tail: order.TailShort, Lanes: 1, RunBlocks: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch}, 4, 50)
	err := run(t, m, order.Split{GlobalBatch: 10, World: 1}, 8<<10, -1, false, func(planner.Draft, list) {})
	var at *format.PosError
	if !errors.Is(err, format.ErrTooLarge) || !errors.As(err, &at) || at.Shard != "s.tar" || at.Block != 0 {
		t.Errorf("%v", err)
	}
}
