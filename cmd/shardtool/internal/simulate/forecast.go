package simulate

import (
	"fmt"
	"math/bits"

	"github.com/shardtool/shardtool/internal/order/mix"
)

// Size is the size of a source's data set: its stored bytes, and its tokens, or 0 if they are not
// known.
type Size struct{ Bytes, Tokens uint64 }

// Forecast describes what steps of a mix give. It is computed without walking the steps. End is the
// position after the steps, or the end of the stream if that comes first.
type Forecast struct {
	Step     uint64 `json:"step"`
	Steps    uint64 `json:"steps"`
	Position uint64 `json:"position"`
	End      uint64 `json:"end"`

	GlobalBatch  int    `json:"global_batch"`
	EpochSamples uint64 `json:"epoch_samples"` // length of an epoch
	// What the steps have of a source.
	Sources []SourceForecast `json:"sources"`
	// Changes from Position on. They may come after the steps.
	Events []MixEvent `json:"events"`
}

// SourceForecast describes what a source gives in the steps. Samples counts the samples delivered,
// and with TailDrop also those skipped at the end of an epoch. Tokens is Samples times the mean
// length of a sample, absent if that is not known; Bytes are Samples times the stored bytes of a
// mean sample. TokenShare is absent if the tokens of one source are not known.
type SourceForecast struct {
	Name       string   `json:"name"`
	Samples    uint64   `json:"samples"`
	Share      float64  `json:"share"`
	Tokens     *uint64  `json:"tokens,omitempty"`
	TokenShare *float64 `json:"token_share,omitempty"`
	Bytes      uint64   `json:"bytes"`
	ByteShare  float64  `json:"byte_share"`
	// Epochs given before and after the steps.
	EpochsBefore float64 `json:"epochs_before"`
	Epochs       float64 `json:"epochs"`
}

// Kinds of MixEvent.
const (
	SegmentBegins = "segment" // other weights hold
	SourceEnds    = "source"  // the source has given its max_epochs
	StreamEnds    = "end"     // no source is left
)

// MixEvent is a change of what a mix gives.
type MixEvent struct {
	Kind     string    `json:"kind"` // `segment`, `source` (ends), or `end`
	Position uint64    `json:"position"`
	Step     uint64    `json:"step"`
	Source   string    `json:"source,omitempty"`  // that ends
	Weights  []float64 `json:"weights,omitempty"` // shares of the samples from there on. Absent at the end.
}

// NewForecast computes what steps of a mix from a position on give. at numbers the batches. Without
// steps the forecast is for an epoch of the mix. sizes are by source number. leftOut are positions
// to skip: their steps count, their samples do not.
func NewForecast(plan *mix.Plan, at mix.Steps, position, steps uint64, sizes []Size,
	leftOut []mix.Range) (*Forecast, error) {
	m := plan.Mix()
	if len(sizes) != len(m.Sources) {
		return nil, fmt.Errorf("sizes of %d sources for the %d of a mix: give one for each", len(sizes), len(m.Sources))
	}
	if steps == 0 && at.GlobalBatch > 0 {
		steps = (m.Epoch-1)/uint64(at.GlobalBatch) + 1
	}
	f := &Forecast{Steps: steps, Position: position, GlobalBatch: at.GlobalBatch, EpochSamples: m.Epoch}
	var err error
	if f.Step, err = m.Step(at, position); err != nil {
		return nil, err
	}
	if f.End, err = m.Position(at, f.Step+steps); err != nil {
		return nil, err
	}
	if f.End, err = plan.Until(f.End); err != nil {
		return nil, err
	}
	if err := f.sources(plan, &m, sizes, leftOut); err != nil {
		return nil, err
	}
	return f, f.events(plan, &m, at)
}

// sources fills in what the sources give.
func (f *Forecast) sources(plan *mix.Plan, m *mix.Mix, sizes []Size, leftOut []mix.Range) error {
	shares, err := plan.Shares(f.Position, f.End)
	if err != nil {
		return err
	}
	without, err := f.without(plan, leftOut)
	if err != nil {
		return err
	}
	var tokens, bytes, total float64
	known := true
	for i := range m.Sources {
		s, of, size := &m.Sources[i], &shares[i], sizes[i]
		out := SourceForecast{Name: s.Name, Samples: of.InStep - without[i]}
		if out.EpochsBefore, err = epochs(s, of.Given); err != nil {
			return err
		}
		if out.Epochs, err = epochs(s, of.Given+of.InStep); err != nil {
			return err
		}
		total += float64(out.Samples)
		out.Bytes = scale(out.Samples, size.Bytes, s.Units)
		bytes += float64(out.Bytes)
		if size.Tokens > 0 {
			n := scale(out.Samples, size.Tokens, s.Units)
			out.Tokens = &n
			tokens += float64(n)
		}
		known = known && (size.Tokens > 0 || out.Samples == 0)
		f.Sources = append(f.Sources, out)
	}
	for i := range f.Sources {
		s := &f.Sources[i]
		s.Share, s.ByteShare = float64(s.Samples)/max(total, 1), float64(s.Bytes)/max(bytes, 1)
		if known && s.Tokens != nil {
			share := float64(*s.Tokens) / max(tokens, 1)
			s.TokenShare = &share
		}
	}
	return nil
}

// without returns how many samples of each source the steps leave out.
func (f *Forecast) without(plan *mix.Plan, leftOut []mix.Range) ([]uint64, error) {
	without := make([]uint64, len(plan.Mix().Sources))
	for _, r := range leftOut {
		from, to := max(r.From, f.Position), min(r.To, f.End)
		if from >= to {
			continue
		}
		shares, err := plan.Shares(from, to)
		if err != nil {
			return nil, err
		}
		for i := range without {
			without[i] += shares[i].InStep
		}
	}
	return without, nil
}

// epochs returns how many epochs of a source its first n units are.
func epochs(s *mix.Source, n uint64) (float64, error) {
	if s.Units == 0 {
		return 0, nil
	}
	epoch, place, err := s.Place(n)
	length := s.Units
	if err == nil && place > 0 && mix.LineOf(s) != nil {
		length, err = mix.LineOf(s).Len(epoch)
	}
	return float64(epoch) + float64(place)/float64(length), err
}

// scale returns ⌊n·sum/of⌋, at most 2^64-1.
func scale(n, sum, of uint64) uint64 {
	hi, lo := bits.Mul64(n, sum)
	if of == 0 {
		return 0
	}
	if hi >= of {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, of)
	return q
}

// events fills in the changes. A source without max_epochs ends after 2^32 epochs, which is not an
// event.
func (f *Forecast) events(plan *mix.Plan, m *mix.Mix, at mix.Steps) error {
	f.Events = []MixEvent{}
	var last *mix.Stretch
	for st, err := range plan.Stretches(f.Position) {
		if err != nil {
			return err
		}
		if last != nil {
			weights := mix.Fractions(st.Weights)
			if _, err := f.ended(m, at, last, weights); err != nil {
				return err
			}
			if st.Segment != last.Segment {
				if err := f.event(m, at, MixEvent{Kind: SegmentBegins, Position: st.From,
					Weights: weights}); err != nil {
					return err
				}
			}
		}
		last = &st
	}
	if last == nil {
		return nil
	}
	limited, err := f.ended(m, at, last, nil)
	if limited && err == nil {
		err = f.event(m, at, MixEvent{Kind: StreamEnds, Position: last.To})
	}
	return err
}

// ended adds the sources that end with a stretch, and reports whether there is one. weights are the
// weights after it.
func (f *Forecast) ended(m *mix.Mix, at mix.Steps, st *mix.Stretch, weights []float64) (limited bool, err error) {
	for _, s := range st.Ended {
		if m.Sources[s].MaxEpochs > 0 && err == nil {
			limited = true
			err = f.event(m, at, MixEvent{Kind: SourceEnds, Position: st.To, Source: m.Sources[s].Name,
				Weights: weights})
		}
	}
	return limited, err
}

func (f *Forecast) event(m *mix.Mix, at mix.Steps, e MixEvent) (err error) {
	if e.Step, err = m.Step(at, e.Position); err == nil {
		f.Events = append(f.Events, e)
	}
	return err
}
