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

// Part measures the parts that one rank, or one source, has of the batches that follow one another.
// It is not safe for concurrent use.
type Part struct {
	labels *Labels
	inflation
}

// NewPart returns a Part that measures by these labels; nil: it measures nothing.
func NewPart(l *Labels) *Part {
	if l == nil {
		return &Part{}
	}
	return &Part{l, newInflation(l)}
}

// Add adds the part of a batch.
func (p *Part) Add(refs []order.Ref) {
	if p.labels != nil {
		p.part(p.labels, refs)
		p.next()
	}
}

// VIF returns the variance inflation so far, 0 where nothing was measured.
func (p *Part) VIF() float64 { return p.mean() }

// BySource measures the parts that the sources of a mix have of the batches that follow one
// another.
type BySource struct {
	parts []*Part
	own   [][]order.Ref
}

// NewBySource returns a BySource. labels are by number of the source; a source without labels is
// not measured.
func NewBySource(labels []*Labels) *BySource {
	b := &BySource{own: make([][]order.Ref, len(labels))}
	for _, l := range labels {
		b.parts = append(b.parts, NewPart(l))
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
	for i := range b.parts {
		b.parts[i].Add(b.own[i])
	}
}

// VIF returns the variance inflation of each source's samples, 0 where there were none.
func (b *BySource) VIF() []float64 {
	vif := make([]float64, len(b.parts))
	for i := range b.parts {
		vif[i] = b.parts[i].VIF()
	}
	return vif
}

// MeasureParts measures one rank's parts of the batches that c lists, until they have most samples
// or c ends. It returns what BySource.VIF does. Samples of units count, not units.
func MeasureParts(c Batches, labels []*Labels, s order.Split, most int, stop func() error) ([]float64, error) {
	by := NewBySource(labels)
	var refs []order.Ref
	for seen, batches := 0, 0; seen < most && batches < most; batches++ { // a part may be empty
		if err := stop(); err != nil {
			return nil, err
		}
		var err error
		refs, _, err = c.NextBatch(refs[:0], s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("mixing: %w", err)
		}
		by.Add(refs)
		seen += len(refs)
	}
	return by.VIF(), nil
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
