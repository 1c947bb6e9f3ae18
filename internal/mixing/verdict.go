package mixing

import (
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
)

// Batches lists the batches of an order: of samples, of units or of a mix.
type Batches interface {
	NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error)
}

// BySource measures the parts that the sources of a mix have of the batches that follow one
// another. It is not safe for concurrent use.
type BySource struct {
	labels []*Labels
	parts  []inflation
	own    [][]order.Ref
}

// NewBySource returns a BySource. labels are by number of the source; a source without labels is
// not measured.
func NewBySource(labels []*Labels) *BySource {
	b := &BySource{labels, make([]inflation, len(labels)), make([][]order.Ref, len(labels))}
	for i, l := range labels {
		if l != nil {
			b.parts[i] = newInflation(l)
		}
	}
	return b
}

// Add adds a batch, or one rank's part of it. Padding does not count.
func (b *BySource) Add(refs []order.Ref) {
	for i := range b.own {
		b.own[i] = b.own[i][:0]
	}
	for _, r := range refs {
		if !r.Padding {
			b.own[r.Source] = append(b.own[r.Source], r)
		}
	}
	for i, l := range b.labels {
		if l != nil {
			b.parts[i].part(l, b.own[i])
			b.parts[i].next()
		}
	}
}

// VIF returns the variance inflation of each source's samples, 0 where there were none.
func (b *BySource) VIF() []float64 {
	vif := make([]float64, len(b.parts))
	for i := range b.parts {
		vif[i] = b.parts[i].mean()
	}
	return vif
}

// MeasureParts measures one rank's parts of the batches that c lists, until they have most samples
// or c ends. It returns what BySource.VIF does. Samples of units count, not units.
func MeasureParts(c Batches, labels []*Labels, s order.Split, most int, stop func() error) ([]float64, error) {
	by := NewBySource(labels)
	err := each(c, s, uint64(most), stop, func(refs []order.Ref, _ *order.Batch) uint64 {
		by.Add(refs)
		return uint64(len(refs))
	})
	return by.VIF(), err
}

// each calls batch with one rank's parts of batches, until it has seen most samples or c ends. It
// returns the error of stop, which may be nil.
func each(c Batches, s order.Split, most uint64, stop func() error, batch func(refs []order.Ref, b *order.Batch) (seen uint64)) (err error) {
	var refs []order.Ref
	var b order.Batch
	for seen, batches := uint64(0), uint64(0); seen < most && batches < most; batches++ { // a part may be empty
		if stop != nil {
			if err := stop(); err != nil {
				return err
			}
		}
		refs, b, err = c.NextBatch(refs[:0], s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mixing: %w", err)
		}
		seen += batch(refs, &b)
	}
	return nil
}

// Verdict tells whether an order mixes well enough, and what helps.
type Verdict struct {
	VIF    float64
	Source string // of a mix: the source that is mixed least
	// Memory is the shuffle memory, a power of two, with which a new run mixes well.
	Memory uint64
}

// Little is the variance inflation above which a user is warned.
const Little = 1.5

// Judge returns the verdict on an order with this variance inflation. plans are the plans of all
// sources, which share the shuffle memory.
func Judge(vif float64, source string, plans ...*order.Plan) Verdict {
	var live, all uint64
	for _, p := range plans {
		if p != nil {
			l, a := p.Live()
			live, all = live+l, all+a
		}
	}
	need := float64(live) * max(vif-1, 0) / (Little - 1.1) // aims at 1.4, because other things than memory count too
	need = min(need, 8*float64(all))                       // then the data is held whole
	return Verdict{vif, source, 1 << bits.Len64(uint64(max(need, 1<<20))-1)}
}

// Little reports whether a warning is due.
func (v Verdict) Little() bool { return v.VIF > Little }

// Warning says what is wrong and what helps. memory is how the user gives a shuffle memory, with %s
// for its size, and shuffle how the user shuffles when packing.
func (v Verdict) Warning(memory, shuffle string) string {
	of, size := "", fmt.Sprintf("%dMiB", v.Memory>>20)
	if v.Source != "" {
		of = " of source " + v.Source
	}
	if v.Memory >= 1<<30 {
		size = fmt.Sprintf("%dGiB", v.Memory>>30)
	}
	return fmt.Sprintf("samples%s are mixed little: if they are stored class by class, the class mix of what a rank gets of a batch varies %.1f times as much as "+
		"at random. Give a new run %s, or %s", of, v.VIF, fmt.Sprintf(memory, size), shuffle)
}
