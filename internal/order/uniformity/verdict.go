package uniformity

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/reader/order"
)

// Batches lists the batches of an order: of samples, of units or of a mix.
type Batches interface {
	NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error)
}

// Accumulated is how many batches are measured as one for what a step sees that accumulates
// gradients. Batches that follow one another draw from nearly the same samples, so their sum
// strays further than each.
const Accumulated = 16

// BySource measures the parts that the sources of a mix have of the batches that follow one
// another. It is not safe for concurrent use.
type BySource struct {
	labels []*Labels
	parts  []inflation
	own    [][]order.Ref
}

// NewBySource returns a BySource that measures so many batches as one. labels are by number of the
// source; a source without labels is not measured.
func NewBySource(labels []*Labels, together int) *BySource {
	b := &BySource{labels, make([]inflation, len(labels)), make([][]order.Ref, len(labels))}
	for i, l := range labels {
		if l != nil {
			b.parts[i] = newInflation(l, together)
		}
	}
	return b
}

// Add adds a batch, or one rank's part of it. Padding does not count, and the pieces of a sample
// that follow one another count once: a sample that is split mixes no worse than a whole one. cuts
// are the pieces, nil where there are none.
func (b *BySource) Add(refs []order.Ref, cuts []order.Cut) {
	for i := range b.own {
		b.own[i] = b.own[i][:0]
	}
	for i, r := range refs {
		own := b.own[r.Source]
		if r.Padding || cuts != nil && cuts[i].Offset > 0 && len(own) > 0 && own[len(own)-1].Number == r.Number {
			continue
		}
		b.own[r.Source] = append(own, r)
	}
	for i, l := range b.labels {
		if l != nil {
			b.parts[i].batch(l, b.own[i])
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

// MeasureParts measures one rank's parts of the batches that c lists, so many as one, until they
// have most samples or c ends. It returns what BySource.VIF does. Samples of units count, not
// units.
func MeasureParts(c Batches, labels []*Labels, s order.Split, together, most int,
	stop func() error) ([]float64, error) {
	by := NewBySource(labels, together)
	err := each(c, s, uint64(most), stop, func(refs []order.Ref, batch *order.Batch) uint64 {
		by.Add(refs, batch.Cuts)
		return uint64(len(refs))
	})
	return by.VIF(), err
}

// each calls batch with one rank's parts of batches, until it has seen most samples or c ends. It
// returns the error of stop, which may be nil.
func each(c Batches, s order.Split, most uint64, stop func() error,
	batch func(refs []order.Ref, b *order.Batch) (seen uint64)) (err error) {
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
			return err
		}
		seen += batch(refs, &b)
	}
	return nil
}

// Verdict tells whether an order mixes well enough, and what helps.
type Verdict struct {
	VIF    float64
	Source string // of a mix: the source that is mixed least
	// Pooled is the variance inflation of that source in Accumulated global batches together; 0 where
	// it was not measured.
	Pooled float64
	// Memory is the shuffle memory, a power of two, with which a new run mixes well. It is 0 where all
	// is shuffled at once already.
	Memory uint64
	// Delayed reports that the user fixed the delay, so a shuffle memory has no effect.
	Delayed bool
}

// Little is the variance inflation above which a user is warned.
const Little = 1.3

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
	v := Verdict{VIF: vif, Source: source}
	if slices.ContainsFunc(plans, func(p *order.Plan) bool { return p != nil && !p.Whole() }) {
		// aims at 1.2, because other things than memory count too
		need := float64(live) * max(vif-1, 0) / (Little - 1.1)
		need = min(need, 8*float64(all)) // then the data is held whole
		v.Memory = 1 << bits.Len64(uint64(max(need, 1<<20))-1)
	}
	return v
}

// Little reports whether a warning is due.
func (v Verdict) Little() bool { return v.VIF > Little }

// Spelling is how a user says what helps.
type Spelling struct {
	Memory  string // to give a shuffle memory, with %s for its size
	Delay   string // the option of the delay
	Shuffle string // to shuffle when packing
}

// Warning says what is wrong and what helps.
func (v Verdict) Warning(say Spelling) string {
	of, size := "", fmt.Sprintf("%dMiB", v.Memory>>20)
	if v.Source != "" {
		of = " of source " + v.Source
	}
	if v.Memory >= 1<<30 {
		size = fmt.Sprintf("%dGiB", v.Memory>>30)
	}
	helps := fmt.Sprintf("Give a new run %s, or %s", fmt.Sprintf(say.Memory, size), say.Shuffle)
	switch {
	case v.Memory == 0:
		helps = strings.ToUpper(say.Shuffle[:1]) + say.Shuffle[1:]
	case v.Delayed: // it fixes how much is shuffled, whatever the memory
		helps = fmt.Sprintf("Give a new run a larger %s, or none and %s, or %s", say.Delay,
			fmt.Sprintf(say.Memory, size), say.Shuffle)
	}
	return fmt.Sprintf("samples%s are mixed little: if they are stored class by class, the class mix of what a rank gets of a batch varies %.1f times as much as "+
		"at random. %s", of, v.VIF, helps)
}
