package reshard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/big"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/export"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// A path delivers samples: their keys, their payloads, or both. It appends to out what it delivers
// of every sample.
type path struct {
	name          string
	keys, payload bool // what it delivers
	deliver       func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error
	refuses       map[string]error // by data set of sets; with removed samples, " removed" follows its name
}

var (
	large   = "blocks that are not read whole"
	another = "archives of another tool"

	errLarge = errors.New("the block is large: its samples are read through Field")
)

// paths are all the ways in which package reader, and what is built on it, gives samples away. A
// new way belongs here.
var paths = []path{
	{"stream in storage order", true, true, stream(reader.StreamOptions{Epochs: 1, GlobalBatch: 3}), nil},
	{"stream, shuffled", true, true, stream(reader.StreamOptions{Epochs: 1, GlobalBatch: 16, Shuffle: true, Tail: order.TailShort, Seed: 9}), nil},
	{"stream of large batches", true, true, stream(reader.StreamOptions{
		Epochs: 1, GlobalBatch: 1000, Shuffle: true, Tail: order.TailShort, Hold: 2,
		Order:  reader.OrderOptions{ShuffleMemory: 1 << 30},
		Tuning: reader.Tuning{Memory: 64 << 20},
	}), nil},
	{"two ranks", true, true, func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		for rank := range 2 {
			o := reader.StreamOptions{Epochs: 1, GlobalBatch: 10, Shuffle: true, Tail: order.TailPad, Rank: rank, World: 2}
			if err := stream(o)(t, d, out); err != nil {
				return err
			}
		}
		return nil
	}, nil},
	{"a mix", true, true, mixed, nil},
	{"Samples", true, true, func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		for s, err := range d.Samples(t.Context(), reader.Range{}) {
			if err != nil {
				return err
			}
			write(out, s)
		}
		return nil
	}, map[string]error{large: format.ErrTooLarge, large + " removed": format.ErrTooLarge}},
	{"Blocks", true, true, blocks, map[string]error{large: errLarge, large + " removed": errLarge}},
	{"Frames", true, true, func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		for f, err := range d.Frames(t.Context(), reader.Range{}) {
			if err != nil {
				return err
			}
			out.Write(f.Decoded)
		}
		return nil
	}, nil},
	{"Get", true, true, numbered(func(ctx context.Context, d *reader.Dataset, n uint64, out *bytes.Buffer) error {
		s, err := d.Get(ctx, n)
		if err == nil {
			write(out, s)
		}
		return err
	}), nil},
	{"Field", false, true, numbered(func(ctx context.Context, d *reader.Dataset, n uint64, out *bytes.Buffer) error {
		return d.Field(ctx, n, "txt", out)
	}), nil},
	{"WriteTar", true, true, numbered(func(ctx context.Context, d *reader.Dataset, n uint64, out *bytes.Buffer) error {
		return d.WriteTar(ctx, n, out)
	}), nil},
	{"Lookup", true, false, func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		for i := range int(d.NumSamples()) {
			switch numbers, err := d.Lookup(t.Context(), key(i)); {
			case err == nil && slices.Equal(numbers, []uint64{uint64(i)}):
				out.WriteString(key(i))
			case !errors.Is(err, fs.ErrNotExist) || !d.Removed(uint64(i)):
				return fmt.Errorf("%v, %w", numbers, err)
			}
		}
		return nil
	}, nil},
	{"Index", true, false, func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		for i := range d.NumShards() {
			ix, err := d.Index(t.Context(), i)
			if err != nil {
				return err
			}
			for _, k := range ix.Keys.All() {
				fmt.Fprintln(out, k)
			}
		}
		return nil
	}, nil},
	{"export as tar", true, true, exported(export.Tar), nil},
	{"export as DALI", true, true, exported(export.DALI), map[string]error{another + " removed": export.ErrForm}},
	{"export as wids", true, true, exported(export.WIDS), nil},
	{"repacking", true, true, repack(reshard.Options{}), nil},
	// Archives of another tool have no attributes.
	{"repacking with a condition", true, true, repack(reshard.Options{Where: []string{"n>=0"}}), map[string]error{another: writer.ErrOptions, another + " removed": writer.ErrOptions}},
}

func write(out *bytes.Buffer, s *reader.Sample) {
	out.Write(s.Key)
	for i := range s.Fields {
		out.Write(s.Fields[i].Data)
	}
}

func stream(o reader.StreamOptions) func(testing.TB, *reader.Dataset, *bytes.Buffer) error {
	return func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		s, err := d.Stream(t.Context(), o)
		if err != nil {
			return err
		}
		return drain(t, s, d, out)
	}
}

// drain writes the samples of a stream.
func drain(t testing.TB, s *reader.Stream, d *reader.Dataset, out *bytes.Buffer) error {
	defer s.Close()
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			return err
		}
		for i := range b.Samples {
			smp := &b.Samples[i]
			if d.Removed(smp.Number) {
				t.Errorf("sample %d was delivered", smp.Number)
			}
			write(out, smp)
		}
	}
	return nil
}

func mixed(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
	fixed := reader.Lanes{Lanes: 2, RunBlocks: 1, Delay: 2, Head: 2}
	spec := reader.Spec{Length: reader.Length{Units: 2 * d.NumSamples()}, Order: order.Choice{Seed: 4, Shuffle: true, Tail: order.TailShort, Epochs: 1, GlobalBatch: 8}}
	for _, name := range []string{"a", "b"} {
		spec.Sources = append(spec.Sources, reader.SourceSpec{Name: name, Set: d, Share: big.NewRat(1, 1), Fixed: fixed})
	}
	x, err := reader.OpenSources(t.Context(), spec, nil, nil)
	if err != nil {
		return err
	}
	run, err := x.Resolve(t.Context(), spec, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		return err
	}
	defer run.Close()
	s, err := run.Stream(t.Context(), reader.StreamOptions{})
	if err != nil {
		return err
	}
	return drain(t, s, d, out)
}

func blocks(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
	for b, err := range d.Blocks(t.Context(), reader.BlockOptions{}) {
		if err != nil {
			return err
		}
		if b.Large {
			return errLarge
		}
		for {
			s, err := b.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			write(out, s)
		}
	}
	return nil
}

// numbered asks for every sample by its number. A removed one must give the error for removed
// samples.
func numbered(get func(context.Context, *reader.Dataset, uint64, *bytes.Buffer) error) func(testing.TB, *reader.Dataset, *bytes.Buffer) error {
	return func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		for n := range d.NumSamples() {
			err := get(t.Context(), d, n, out)
			if removed := d.Removed(n); removed != errors.Is(err, reader.ErrRemoved) || removed != errors.Is(err, fs.ErrNotExist) || !removed && err != nil {
				return fmt.Errorf("sample %d, removed %v: %w", n, removed, err)
			}
		}
		return nil
	}
}

func exported(form export.Form) func(testing.TB, *reader.Dataset, *bytes.Buffer) error {
	return func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		to := mem.New()
		for range 2 { // the second one compares
			if _, err := export.Run(t.Context(), d, to, export.Options{Form: form}); err != nil {
				return err
			}
		}
		for info, err := range to.List(t.Context(), "") {
			if err != nil {
				return err
			}
			data, _, err := objstore.ReadAll(t.Context(), to, info.Name, 1<<30)
			if err != nil {
				return err
			}
			out.Write(data)
		}
		return nil
	}
}

func repack(o reshard.Options) func(testing.TB, *reader.Dataset, *bytes.Buffer) error {
	return func(t testing.TB, d *reader.Dataset, out *bytes.Buffer) error {
		src, err := reshard.New(t.Context(), []*reader.Dataset{d}, o)
		if err != nil {
			return err
		}
		defer src.Close()
		to := mem.New()
		if _, err := writer.Pack(t.Context(), to, src, small); err != nil {
			return err
		}
		again := open(t, to, reader.Options{})
		if again.NumSamples() != d.NumSamples()-uint64(len(d.Info().Removed)) || len(again.Info().Removed) != 0 {
			t.Errorf("%d samples, %d removed", again.NumSamples(), len(again.Info().Removed))
		}
		for f, err := range again.Frames(t.Context(), reader.Range{}) {
			if err != nil {
				return err
			}
			out.Write(f.Decoded)
		}
		return nil
	}
}

// sets are data sets of every kind, without removed samples.
func sets(t testing.TB) iter.Seq2[string, func() (*mem.Store, reader.Options)] {
	return func(yield func(string, func() (*mem.Store, reader.Options)) bool) {
		plain := small
		plain.Plain = true
		_ = yield("compressed", func() (*mem.Store, reader.Options) { return packed(t, some(0, 150, 300), small), reader.Options{} }) &&
			yield("plain", func() (*mem.Store, reader.Options) { return packed(t, some(0, 150, 300), plain), reader.Options{} }) &&
			yield(another, func() (*mem.Store, reader.Options) { return foreign(t), reader.Options{} }) &&
			yield("blocks of several frames", func() (*mem.Store, reader.Options) {
				return packed(t, some(0, 6, 9<<20), writer.Options{BlockSize: 16 << 20}), reader.Options{}
			}) &&
			yield(large, func() (*mem.Store, reader.Options) {
				return packed(t, some(0, 6, 9<<20), writer.Options{BlockSize: 16 << 20}), reader.Options{Memory: 4 << 20}
			})
	}
}

// foreign indexes archives that were packed elsewhere.
func foreign(t testing.TB) *mem.Store {
	plain := small
	plain.Plain = true
	from := packed(t, some(0, 150, 300), plain)
	to := mem.New()
	var names []string
	for info, err := range from.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := metadata.ShardFormat(info.Name); err != nil {
			continue
		}
		data, _, err := objstore.ReadAll(t.Context(), from, info.Name, 1<<30)
		if err == nil {
			_, err = objstore.Put(t.Context(), to, info.Name, data, objstore.Condition{})
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if _, err := writer.Index(t.Context(), to, names, small); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestNoPathDelivers: no way of reading a data set delivers a removed sample, and every one still
// delivers all others.
func TestNoPathDelivers(t *testing.T) {
	for name, set := range sets(t) {
		t.Run(name, func(t *testing.T) {
			store, options := set()
			before := open(t, store, options)
			removed := []int{1, 2, int(before.NumSamples()) - 1}
			if before.NumSamples() > 100 {
				removed = append(removed, 0, 5, 7)
				for i := 40; i < 80; i++ { // whole blocks
					removed = append(removed, i)
				}
			}
			run(t, store, reshard.RemoveOptions{}, removed...)
			d := open(t, store, options)
			if d.Digest() != before.Digest() || d.NumSamples() != before.NumSamples() || len(d.Info().Removed) != len(removed) {
				t.Fatalf("%d samples, %d removed, digest %v", d.NumSamples(), len(d.Info().Removed), d.Digest())
			}
			everyPath(t, name, d, removed)
			if before.NumSamples() > 100 { // the others take long
				everyPath(t, name, before, nil) // the generation before is what it was
			}
			report, err := check.Verify(t.Context(), store, check.Options{Deep: true})
			if err != nil || !report.OK() || report.Removed != uint64(len(removed)) {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

func everyPath(t *testing.T, set string, d *reader.Dataset, removed []int) {
	if len(removed) > 0 {
		set += " removed"
	}
	for _, p := range paths {
		t.Run(p.name, func(t *testing.T) {
			var out bytes.Buffer
			err := p.deliver(t, d, &out)
			if want := p.refuses[set]; want != nil {
				if !errors.Is(err, want) {
					t.Fatalf("%v, want %v", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range int(d.NumSamples()) {
				gone := slices.Contains(removed, i)
				if has := bytes.Contains(out.Bytes(), []byte(key(i))); has && gone || p.keys && !has && !gone {
					t.Errorf("key of sample %d, removed %v: delivered %v", i, gone, has)
				}
				if has := bytes.Contains(out.Bytes(), []byte(mark(i))); has && gone || p.payload && !has && !gone {
					t.Errorf("payload of sample %d, removed %v: delivered %v", i, gone, has)
				}
			}
		})
	}
}
