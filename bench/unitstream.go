package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order/units"
	"github.com/shardtool/shardtool/reader/sequences"
	"github.com/shardtool/shardtool/writer"
)

// sequence is the length of the packed sequences that are measured, and of the fixed samples beside
// them.
const sequence = 8192

// vocabulary has ids as often as a text has words: of 50,257, the most common one in eleven tokens.
// They compress to half, as those of real text do.
func vocabulary(r *rand.Rand) *rand.Zipf { return rand.NewZipf(r, 1.1, 3, 50_256) }

// tokenArray is an .npy file of int32 ids.
func tokenArray(ids *rand.Zipf, n int) []byte {
	out := arrayHeader("<i4", int64(n))
	for range n {
		out = binary.LittleEndian.AppendUint32(out, uint32(ids.Uint64()))
	}
	return out
}

// arrayHeader begins an .npy file with one dimension, as NumPy writes it.
func arrayHeader(descr string, n int64) []byte {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, n)
	return fmt.Appendf([]byte("\x93NUMPY\x01\x00\x76\x00"), "%-117s\n", dict)
}

// tokenData packs arrays of these lengths, with the lengths in the index.
func (b *bench) tokenData(name string, lengths []uint32) (string, error) {
	dir := filepath.Join(b.dir, name)
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return "", err
	}
	w, err := writer.New(b.ctx, store, writer.Options{})
	if err != nil {
		return "", err
	}
	defer w.Abort()
	ids := vocabulary(rand.New(rand.NewPCG(15, 16)))
	for i, n := range lengths {
		s := writer.Sample{
			Key: fmt.Sprintf("%09d", i), Fields: []writer.Field{{Name: "ids.npy", Data: tokenArray(ids, int(n))}},
			Attrs: []format.AttrValue{{Attribute: format.Attribute{Name: "tokens", Kind: format.AttrInteger}, Integer: int64(n)}},
		}
		if err := w.Write(b.ctx, s); err != nil {
			return "", err
		}
	}
	_, err = w.Close(b.ctx)
	return dir, err
}

// unitData is documents, and as many tokens in samples of one length.
type unitData struct {
	docs, rows             string
	tokens                 uint64
	documents              int
	packed, samples, fixed reader.StreamOptions
}

// unitCorpus packs both. A stream holds a sixteenth of them, so that blocks at the ends of lanes,
// which are read twice, count nearly as little as they do in a real data set.
func (b *bench) unitCorpus() (d unitData, err error) {
	_, lengths := webText.make(b.mib << 20 / 4 / 1000)
	for _, n := range lengths {
		d.tokens += uint64(n)
	}
	d.documents = len(lengths)
	if d.docs, err = b.tokenData("documents", lengths); err != nil {
		return d, err
	}
	fixed := make([]uint32, d.tokens/sequence)
	for i := range fixed {
		fixed[i] = sequence
	}
	if d.rows, err = b.tokenData("rows", fixed); err != nil {
		return d, err
	}
	d.fixed = shuffled
	d.fixed.Epochs, d.fixed.GlobalBatch, d.fixed.World, d.fixed.Workers = 1, 16, 1, 2
	d.fixed.ShuffleMemory = uint64(max(b.mib/16, 8)) << 20
	d.packed, d.samples = d.fixed, d.fixed
	d.samples.GlobalBatch *= len(lengths) / len(fixed) // as many tokens in a batch, nearly
	d.packed.Units = units.Params{Kind: units.Pack, Size: sequence, Long: units.LongSplit, By: "tokens"}
	d.packed.Plans = filepath.Join(b.dir, "plans")
	return d, nil
}

// unitStreams compares packed streams with streams of samples.
func (b *bench) unitStreams() error {
	d, err := b.unitCorpus()
	if err != nil {
		return err
	}
	for _, base := range []struct {
		shown, dir string
		o          reader.StreamOptions
		goal       float64
	}{
		{"samples of 8,192 tokens", d.rows, d.fixed, 0.9},
		{"the same samples unpacked", d.docs, d.samples, 0},
	} {
		packed, plain := cpuTimed{run: b.tokensOf(d.docs, d.packed)}, cpuTimed{run: b.tokensOf(base.dir, base.o)}
		wall, our, _, err := b.ratio(packed.call, plain.call)
		if err != nil {
			return err
		}
		add := func(name string, s table.Sample, detail string) {
			if base.goal > 0 {
				b.AtLeast("units", name, s, "x", base.goal, detail)
			} else {
				b.Info("units", name, s, "x", detail)
			}
		}
		name := "packed stream / " + base.shown
		add(name, wall, fmt.Sprintf("tokens a second, copied into rows of %d; %.0f M tokens/s of %d documents, 2 workers, data of sixteen windows",
			sequence, float64(d.tokens)/our.Median()/1e6, d.documents))
		add(name+", by CPU time", plain.took[1:].Over(packed.took[1:]), fmt.Sprintf("%.2f ns a token against %.2f: what else runs on the machine disturbs this less",
			1e9*packed.took.Median()/float64(d.tokens), 1e9*plain.took.Median()/float64(d.tokens)))
	}
	if err := b.unitsInPython(d); err != nil {
		return err
	}
	return b.unitStart(d.docs, d.samples, d.packed)
}

// unitStart measures first batches.
func (b *bench) unitStart(dir string, o, packed reader.StreamOptions) error {
	ds, err := b.open(dir, reader.Options{Workers: 2})
	if err != nil {
		return err
	}
	defer ds.Close()
	s, err := ds.Stream(b.ctx, packed)
	if err != nil {
		return err
	}
	defer s.Close()
	plan, err := s.Info().UnitOrder.Plan(b.ctx, 0)
	if err != nil {
		return err
	}
	middle, err := s.Info().UnitOrder.Checkpoint(0, plan.Units()/2)
	if err != nil {
		return err
	}
	r, our, _, err := b.ratio(b.firstBatch(ds, o), b.firstBatch(ds, packed))
	if err != nil {
		return err
	}
	b.AtMost("units", "first batch, plan kept / first batch of samples", r, "x", 1.3, fmt.Sprintf("as many samples in both, %.1f ms", 1000*our.Median()))
	plain, err := ds.Stream(b.ctx, o)
	if err != nil {
		return err
	}
	defer plain.Close()
	half, err := plain.Info().Plan.Checkpoint(0, ds.NumSamples()/2)
	if err != nil {
		return err
	}
	resumed := packed
	o.Checkpoint, resumed.Checkpoint = &half, &middle
	if r, our, _, err = b.ratio(b.firstBatch(ds, o), b.firstBatch(ds, resumed)); err != nil {
		return err
	}
	b.AtMost("units", "resume in the middle of an epoch / resume of samples", r, "x", 1.3, fmt.Sprintf("as many samples in both, %.1f ms", 1000*our.Median()))
	there, err := b.blocksOfFirst(ds, resumed)
	if err != nil {
		return err
	}
	here, err := b.blocksOfFirst(ds, packed)
	if err != nil {
		return err
	}
	if r, our, _, err = b.ratio(b.firstBatch(ds, packed), b.firstBatch(ds, resumed)); err != nil {
		return err
	}
	detail := fmt.Sprintf("a batch in the middle draws from %d blocks and the first one from %d, as the window fills in the beginning of an epoch", there, here)
	b.Info("units", "resume in the middle of an epoch / first batch", r, "x", detail)
	b.AtMost("units", "the same, by block that the batch draws from", r.By(float64(there)/float64(here)), "x", 1, fmt.Sprintf("%.2f ms a block in the first batch", 1000*our.Median()/float64(here)))
	return nil
}

// blocksOfFirst counts the blocks that the first batch of a stream draws from.
func (b *bench) blocksOfFirst(ds *reader.Dataset, o reader.StreamOptions) (int, error) {
	s, err := ds.Stream(b.ctx, o)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	batch, err := s.Next(b.ctx)
	if err != nil {
		return 0, err
	}
	blocks := map[[2]int]bool{}
	for i := range batch.Samples {
		at, err := ds.Locate(b.ctx, batch.Samples[i].Number)
		if err != nil {
			return 0, err
		}
		blocks[[2]int{at.Shard, at.Block}] = true
	}
	return len(blocks), nil
}

// tokensOf reads all tokens of a data set into rows: packed, or samples one after another.
func (b *bench) tokensOf(dir string, o reader.StreamOptions) func() error {
	return func() error {
		ds, err := b.open(dir, reader.Options{Workers: o.Workers})
		if err != nil {
			return err
		}
		defer ds.Close()
		s, err := ds.Stream(b.ctx, o)
		if err != nil {
			return err
		}
		defer s.Close()
		q, err := sequences.New(sequence, []sequences.Field{{Name: "ids.npy"}})
		if err != nil {
			return err
		}
		row := make([]byte, o.GlobalBatch*sequence*4)
		for {
			batch, err := s.Next(b.ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if batch.Units > 0 {
				if err := q.Set(batch); err != nil {
					return err
				}
				q.Tokens(0, row[:q.Size(0)])
				continue
			}
			at := 0
			for i := range batch.Samples {
				at += copy(row[at:], batch.Samples[i].Fields[0].Data[128:])
			}
		}
	}
}
