package reader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/order"
)

// large is the tables of a data set of many parts that are all the same: too large to be made as
// others are. It has nothing else. Sections of groups have that many blocks a group, none if 0.
type large struct {
	*mem.Store
	name                   string
	front, groups, part    []byte
	parts                  int
	delay                  atomic.Int64
	requests, bytes, limit atomic.Int64
}

const (
	partShards  = 128
	shardBlocks = 512 // so that a part is full
)

// newLarge makes tables of so many parts, with 63 to 200 samples a block.
func newLarge(tb testing.TB, parts int, grain uint32, delay time.Duration) *large {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	m := metadata.Manifest{Totals: metadata.Totals{Generation: 1, Fields: []format.FieldTotal{{Name: "x", Min: 1, Max: 1}}}}
	for i := range partShards {
		s := metadata.ShardEntry{ShardInfo: metadata.ShardInfo{Name: fmt.Sprintf("s-%06d.tar", i), Size: 1024, Tail: 500, Blocks: shardBlocks,
			Rows: shardBlocks, FirstKey: "a", LastKey: "b"}}
		for range shardBlocks {
			n := 63 + random.Uint32N(138)
			r := format.Row{Stored: 4096 * n, Decoded: 4096 * n, Samples: n, Codec: format.CodecBytes, CRC: random.Uint32()}
			s.Rows, s.Size, s.Samples = append(s.Rows, r), s.Size+uint64(r.Stored), s.Samples+uint64(n)
		}
		binary.LittleEndian.PutUint64(s.Hash[:], random.Uint64())
		m.Shards = append(m.Shards, s)
		m.Fields[0].Samples += s.Samples * uint64(parts)
	}
	m.Fields[0].Bytes = m.Fields[0].Samples
	raw, hash, _, err := metadata.EncodeTables(&m)
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := section.DecodeDirectory(raw, "SHRDMAN1", func(string) bool { return true })
	if err != nil {
		tb.Fatal(err)
	}
	one, err := metadata.OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
	if err != nil {
		tb.Fatal(err)
	}
	l := &large{Store: mem.New(), name: names.Tables(hash), parts: parts}
	l.delay.Store(int64(delay))
	body := func(s section.Section) []byte { return raw[s.Off : s.Off+uint64(s.Stored)] }
	totals, first := []byte(nil), len(dir.Sections)
	var of, all []section.Section
	for i, s := range dir.Sections {
		switch {
		case s.Kind == "NAME" || first < i:
			first = min(first, i)
			of, l.part = append(of, s), append(l.part, body(s)...)
		case s.Kind == "PART":
			secs := section.Raw{Kind: s.Kind, Critical: true, Raw: binary.LittleEndian.AppendUint32(nil, uint32(parts))}
			p := one.Parts[0]
			for _, n := range []uint64{p.Shards, p.Rows, p.Blocks, p.Samples, p.Bytes, p.Decoded} {
				secs.Raw = section.AppendPlanes(secs.Raw, slices.Repeat([]uint64{n}, parts), &secs.Cuts)
			}
			payload, rows, err := section.Append(nil, 0, []section.Raw{secs})
			if err != nil {
				tb.Fatal(err)
			}
			totals, all = append(totals, payload...), append(all, rows...)
		default:
			totals, all = append(totals, body(s)...), append(all, s)
		}
	}
	var groups []section.Section
	if grain > 0 {
		s := section.Raw{Kind: "GSMP", Raw: binary.LittleEndian.AppendUint32(nil, grain)}
		s.Raw = section.AppendPlanes(s.Raw, slices.Repeat([]uint64{shardBlocks}, partShards), &s.Cuts)
		var sums []uint64
		for i := range m.Shards {
			sums = metadata.AppendGroups(sums, m.Shards[i].Rows, uint64(grain))
		}
		s.Raw = section.AppendPlanes(s.Raw, sums, &s.Cuts)
		if l.groups, groups, err = section.Append(nil, 0, []section.Raw{s}); err != nil {
			tb.Fatal(err)
		}
	}
	for _, repeated := range [][]section.Section{groups, of} {
		for i := range parts {
			for _, s := range repeated {
				s.Part = uint32(i)
				all = append(all, s)
			}
		}
	}
	at := uint64(section.DirectoryLen(len(all)))
	for i := range all {
		all[i].Off = at
		at += uint64(all[i].Stored)
	}
	l.front = append(section.AppendDirectory(nil, "SHRDMAN1", all), totals...)
	tables, err := metadata.OpenTables(func(p []byte, off int64) error { l.read(p, off); return nil }, l.size())
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := objstore.Put(tb.Context(), l.Store, format.ManifestName, tables.Summary(l.name).Encode(), objstore.Condition{}); err != nil {
		tb.Fatal(err)
	}
	return l
}

func (l *large) size() int64 { return int64(len(l.front) + l.parts*(len(l.groups)+len(l.part))) }

// read copies bytes of the tables.
func (l *large) read(p []byte, off int64) {
	for len(p) > 0 {
		at, n := off, 0
		if at < int64(len(l.front)) {
			n = copy(p, l.front[at:])
		} else if at -= int64(len(l.front)); at < int64(l.parts*len(l.groups)) {
			n = copy(p, l.groups[at%int64(len(l.groups)):])
		} else {
			n = copy(p, l.part[(at-int64(l.parts*len(l.groups)))%int64(len(l.part)):])
		}
		p, off = p[n:], off+int64(n)
	}
}

func (l *large) Traits() objstore.Traits { return objstore.Traits{Requests: 64} }

func (l *large) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := l.Store.Open(ctx, format.ManifestName)
	return &largeObject{o, l, name == l.name}, err
}

type largeObject struct {
	objstore.Object
	l      *large
	tables bool
}

func (o *largeObject) Info(ctx context.Context) (objstore.Info, error) {
	info, err := o.Object.Info(ctx)
	if o.tables {
		info.Size = o.l.size()
	}
	return info, err
}

func (o *largeObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.l.requests.Add(1)
	o.l.bytes.Add(int64(len(p)))
	if limit := o.l.limit.Load(); limit > 0 && o.l.requests.Load() > limit {
		return errDown
	}
	if delay := time.Duration(o.l.delay.Load()); delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !o.tables {
		return o.Object.ReadAt(ctx, p, off)
	}
	o.l.read(p, off)
	return nil
}

// opened is what it takes until a shuffled order has listed its first batch.
type opened struct {
	open, first    time.Duration // until the order is there, and until the batch is
	atOpen, all    int64         // requests
	bytes, memory  int64         // read, and held after it
	samples, spans int
}

// openLarge opens a data set and lists the first batch of an order of it.
func openLarge(tb testing.TB, l *large, o Options, split order.Split, refs *[]order.Ref) (m opened) {
	tb.Helper()
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before, began := heap(), time.Now()
	l.requests.Store(0)
	l.bytes.Store(0)
	d, err := Open(tb.Context(), l, o)
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	spec := Spec{Order: order.Choice{Shuffle: true, GlobalBatch: split.GlobalBatch, World: split.World, Seed: 3}, Sources: []SourceSpec{{Set: d}}}
	run, err := d.read(tb.Context(), spec, nil, Change{}, Planning{})
	if err != nil {
		tb.Fatal(err)
	}
	defer run.Close()
	m.open, m.atOpen = time.Since(began), l.requests.Load()
	c, err := run.Seek(tb.Context(), Place{}, split)
	if err != nil {
		tb.Fatal(err)
	}
	got, b, err := c.Next(nil)
	if err != nil {
		tb.Fatal(err)
	}
	m.first, m.all, m.bytes, m.samples, m.spans = time.Since(began), l.requests.Load(), l.bytes.Load(), len(got), len(b.Opened)
	m.memory = heap() - before
	if refs != nil {
		for range 20 {
			if *refs = append(*refs, got...); err != nil {
				tb.Fatal(err)
			}
			got, _, err = c.Next(nil)
		}
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(run)
	return m
}

// TestLargeOpen: what it takes to open large data sets. SHARDTOOL_LARGE is the delay of a request,
// such as 100ms, for the figures of bench/GOALS.md; times are not judged.
func TestLargeOpen(t *testing.T) {
	delay, _ := time.ParseDuration(os.Getenv("SHARDTOOL_LARGE"))
	for _, c := range []struct {
		blocks   int
		grain    uint32
		requests int64 // at most, to open
		memory   int64
	}{
		{10_000_000, 0, 400, 100 << 20},
		{10_000_000, 1, 8, 100 << 20},
		{1_000_000_000, 64, 12, 250 << 20},
	} {
		if delay == 0 && testing.Short() && c.blocks > 1<<26 {
			continue
		}
		parts := c.blocks / (partShards * shardBlocks)
		l := newLarge(t, parts, c.grain, delay)
		m := openLarge(t, l, Options{}, order.Split{GlobalBatch: 256, Rank: 3, World: 8}, nil)
		t.Logf("%s blocks, tables of %d MB, groups of %d: open %.2f s, %d requests; first batch after %.2f s, %d requests, %.1f MB; %.0f MB held; %d spans",
			strconv.Itoa(c.blocks), l.size()/1e6, c.grain, m.open.Seconds(), m.atOpen, m.first.Seconds(), m.all, float64(m.bytes)/1e6, float64(m.memory)/1e6, m.spans)
		if m.atOpen > c.requests || m.memory > c.memory || m.samples != 32 {
			t.Errorf("%d blocks: %d requests, %d bytes held, %d samples", c.blocks, m.atOpen, m.memory, m.samples)
		}
	}
}

// regroup is the data set with the samples of groups of so many blocks in its tables. edit may
// change them.
func regroup(t *testing.T, from *mem.Store, grain uint32, edit func(sums []uint64)) *mem.Store {
	t.Helper()
	to := from.Clone()
	d := open(t, from, Options{})
	raw := object(t, from, d.Info().Tables)
	dir, err := section.DecodeDirectory(raw, "SHRDMAN1", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var blocks, sums []uint64
	for i, first := range table.ShardFirst {
		end := len(table.Samples)
		if i+1 < len(table.ShardFirst) {
			end = table.ShardFirst[i+1]
		}
		blocks = append(blocks, uint64(end-first))
		for ; first < end; first += int(grain) {
			sum := uint64(0)
			for _, n := range table.Samples[first:min(first+int(grain), end)] {
				sum += uint64(n)
			}
			sums = append(sums, sum)
		}
	}
	edit(sums)
	groups := section.Raw{Kind: "GSMP", Raw: binary.LittleEndian.AppendUint32(nil, grain)}
	groups.Raw = section.AppendPlanes(groups.Raw, blocks, &groups.Cuts)
	groups.Raw = section.AppendPlanes(groups.Raw, sums, &groups.Cuts)
	var secs []section.Raw
	for _, s := range dir.Sections {
		payload, err := s.Payload(raw[s.Off : s.Off+uint64(s.Stored)])
		if err != nil {
			t.Fatal(err)
		}
		if s.Kind == "NAME" {
			secs = append(secs, groups)
		}
		secs = append(secs, section.Raw{Kind: s.Kind, Part: s.Part, Critical: s.Critical, Encoding: s.Encoding, Raw: payload})
	}
	payload, all, err := section.Append(nil, uint64(section.DirectoryLen(len(secs))), secs)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(section.AppendDirectory(nil, "SHRDMAN1", all), payload...)
	tables, err := metadata.OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	name := names.Tables(format.BlockHash(raw))
	put(t, to, name, raw)
	put(t, to, format.ManifestName, tables.Summary(name).Encode())
	return to
}

// TestGroupedStreams: a data set whose blocks are not held gives the same samples in the same order,
// whatever a stream asks for, and goes on from the other's checkpoint.
func TestGroupedStreams(t *testing.T) {
	samples := mixed(1500)
	whole := build(t, samples, testset.Options{BlockSize: 2 << 10, ShardSize: 40 << 10})
	for _, grain := range []uint32{1, 2, 4} {
		apart := regroup(t, whole, grain, func([]uint64) {})
		for _, o := range []StreamOptions{
			{Shuffle: true, GlobalBatch: 64, Epochs: 2, Order: OrderOptions{Lanes: 6, RunBlocks: 4, Delay: 4}},
			{Shuffle: true, GlobalBatch: 48, Epochs: 1, World: 3, Rank: 1, Order: OrderOptions{Lanes: 4, RunBlocks: 8, Delay: 3}},
			{Shuffle: true, GlobalBatch: 32, Epochs: 1, Order: OrderOptions{Lanes: 4, WholeShards: true, Delay: 3}},
			{Shuffle: true, GlobalBatch: 64, Epochs: 1}, // held whole: its runs are blocks
			{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 2, RunBlocks: 3, Delay: 4}},
			{GlobalBatch: 100, Epochs: 1, Order: OrderOptions{RunBlocks: 4}},
			{GlobalBatch: 100, Epochs: 1, Shards: [2]int{2, 5}},
		} {
			var got [2][]string
			var at [2]Checkpoint
			for i, store := range []*mem.Store{whole, apart} {
				d := open(t, store, Options{})
				s, err := d.Stream(t.Context(), o)
				if err != nil {
					t.Fatal(grain, o, err)
				}
				for k := 0; ; k++ {
					b, err := s.Next(t.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(grain, o, err)
					}
					for n := range b.Samples {
						got[i] = append(got[i], string(b.Samples[n].Key))
					}
					if k == 2 && o.Shards == [2]int{} {
						if at[i], err = s.Checkpoint(); err != nil {
							t.Fatal(err)
						}
					}
				}
				s.Close()
			}
			if !slices.Equal(got[0], got[1]) || len(got[0]) == 0 {
				t.Fatalf("groups of %d, %+v: %d samples in another order than %d", grain, o, len(got[1]), len(got[0]))
			}
			if at[0].Dataset == nil {
				continue
			}
			o.Checkpoint = &at[0]
			s, err := open(t, apart, Options{}).Stream(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			b, err := s.Next(t.Context())
			if err != nil || string(b.Samples[0].Key) != got[0][3*b.Len()] {
				t.Fatal("resumed:", err)
			}
			s.Close()
		}
	}
	if d := open(t, regroup(t, whole, 2, func([]uint64) {}), Options{}); d.tables.Grouped() {
		if table, err := d.OrderTable(t.Context()); err != nil || table.Groups != nil || uint64(len(table.Samples)) != d.tables.Blocks {
			t.Error("OrderTable is not of blocks:", err)
		}
	}
}

// TestGroupedDamage: groups that other blocks have are damage, which the stream reports when it
// comes to them, and verify at once.
func TestGroupedDamage(t *testing.T) {
	whole := build(t, mixed(600), testset.Options{BlockSize: 2 << 10, ShardSize: 40 << 10})
	for _, grain := range []uint32{1, 2} {
		moved := regroup(t, whole, grain, func(sums []uint64) { sums[4], sums[5] = sums[4]+1, sums[5]-1 })
		damagedGroups(t, moved)
	}
}

func damagedGroups(t *testing.T, moved *mem.Store) {
	t.Helper()
	s, err := open(t, moved, Options{}).Stream(t.Context(), StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 1, Order: OrderOptions{Lanes: 2, RunBlocks: 2, Delay: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for err == nil {
		_, err = s.Next(t.Context())
	}
	if !Damaged(err) || errors.Is(err, io.EOF) {
		t.Error("stream:", err)
	}
	report, err := check.Verify(t.Context(), moved, check.Options{})
	if err != nil || report.Damage() != 1 {
		t.Error("verify:", report, err)
	}
}

// TestGroupedClose: a stream whose tables cannot be read on ends with the error, and closes while it
// waits for them.
func TestGroupedClose(t *testing.T) {
	watch(t)
	l := newLarge(t, 64, 4, time.Hour)
	l.delay.Store(0)
	d := open(t, l, Options{Memory: 64 << 20})
	o := StreamOptions{Shuffle: true, GlobalBatch: 64, Order: OrderOptions{RunBlocks: 4, Lanes: 4, Delay: 2}}
	l.limit.Store(8)
	s, err := d.Stream(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Next(t.Context()); !errors.Is(err, errDown) {
		t.Error("tables that cannot be read:", err)
	}
	s.Close()
	l.limit.Store(0)
	l.delay.Store(int64(time.Hour)) // what the closed stream asked for may still come
	if s, err = d.Stream(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.Close()
}
