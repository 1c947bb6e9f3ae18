package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"

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

// tokenArray is an .npy file of int32 ids.
func tokenArray(r *rand.Rand, n int) []byte {
	dict := fmt.Sprintf("{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }", n)
	dict = fmt.Sprintf("%-117s\n", dict)
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), 0)
	out = append(out, dict...)
	for range n {
		out = binary.LittleEndian.AppendUint32(out, r.Uint32()) // no data set is compressed: decoding would hide the rest
	}
	return out
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
	r := rand.New(rand.NewPCG(15, 16))
	for i, n := range lengths {
		s := writer.Sample{
			Key: fmt.Sprintf("%09d", i), Fields: []writer.Field{{Name: "ids.npy", Data: tokenArray(r, int(n))}},
			Attrs: []format.AttrValue{{Attribute: format.Attribute{Name: "tokens", Kind: format.AttrInteger}, Integer: int64(n)}},
		}
		if err := w.Write(b.ctx, s); err != nil {
			return "", err
		}
	}
	_, err = w.Close(b.ctx)
	return dir, err
}

// unitStreams compares packed streams with streams of samples.
func (b *bench) unitStreams() error {
	tokens := b.mib << 20 / 4
	_, lengths := webText.make(tokens / 1000)
	sum := uint64(0)
	for _, n := range lengths {
		sum += uint64(n)
	}
	docs, err := b.tokenData("documents", lengths)
	if err != nil {
		return err
	}
	fixed := make([]uint32, sum/sequence)
	for i := range fixed {
		fixed[i] = sequence
	}
	rows, err := b.tokenData("rows", fixed)
	if err != nil {
		return err
	}
	o := shuffled
	o.Epochs, o.GlobalBatch, o.World, o.Workers = 1, 16, 1, 2
	packed := o
	packed.Units = units.Params{Kind: units.Pack, Size: sequence, Long: units.LongSplit, By: "tokens"}
	packed.Plans = filepath.Join(b.dir, "plans")
	r, our, _, err := b.ratio(b.tokensOf(docs, packed), b.tokensOf(docs, o))
	if err != nil {
		return err
	}
	b.AtLeast("units", "packed stream / stream of the same samples", r, "x", 0.9,
		fmt.Sprintf("tokens a second, copied into rows of %d; %.0f M tokens/s, 2 workers", sequence, float64(sum)/our.Median()/1e6))
	if r, _, _, err = b.ratio(b.tokensOf(docs, packed), b.tokensOf(rows, o)); err != nil {
		return err
	}
	b.Info("units", "packed stream / stream of fixed samples of as many tokens", r, "x", fmt.Sprintf("%d samples against %d", len(lengths), len(fixed)))
	return b.unitStart(docs, o, packed)
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
	plan, err := s.UnitOrder().Plan(b.ctx, 0)
	if err != nil {
		return err
	}
	middle, err := s.UnitOrder().Checkpoint(0, plan.Units()/2)
	if err != nil {
		return err
	}
	o.GlobalBatch *= int(ds.NumSamples() / plan.Units()) // samples of a batch, nearly
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
	half, err := plain.Plan().Checkpoint(0, ds.NumSamples()/2)
	if err != nil {
		return err
	}
	resumed := packed
	o.Checkpoint, resumed.Checkpoint = &half, &middle
	if r, our, _, err = b.ratio(b.firstBatch(ds, o), b.firstBatch(ds, resumed)); err != nil {
		return err
	}
	b.AtMost("units", "resume in the middle of an epoch / resume of samples", r, "x", 1.3, fmt.Sprintf("%.1f ms; both read the window of the middle, which is larger than that of the beginning", 1000*our.Median()))
	return nil
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
