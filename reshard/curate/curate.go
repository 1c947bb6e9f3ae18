// Package curate makes views of a data set: which samples an epoch has, and how often. Samples are
// chosen by an expression over attributes and by lists of keys, and weighted by an attribute, by
// scores in a file, or so that the values of an attribute are equally frequent. No sample is read.
//
// Keys are matched by their hashes, against the keys table of the data set or, without one, the
// indexes of its shards; where two keys of the data set share a hash, the keys themselves decide. A
// key that the data set does not have is taken for another one with a probability of N/2^64.
package curate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/reader"
)

// Errors that a caller branches on.
var (
	// ErrSpec: the Spec cannot be, or does not fit the data set.
	ErrSpec = errors.New("view")
	// ErrMissing: keys are not in the data set, or samples have no weight.
	ErrMissing = errors.New("missing")
	// ErrEmpty: no sample is chosen.
	ErrEmpty = view.ErrEmpty
)

// Spec is a view to be made. Samples must fulfil all of Where, Keys and WithoutKeys that are given.
// With Weight, Scores or Balance, of which at most one is given, the view draws by weight.
type Spec struct {
	// Where are expressions over attributes, see package where. All must hold.
	Where []string
	// Keys are the only samples to choose from, WithoutKeys those to leave out.
	Keys, WithoutKeys *KeyList
	// Weight is an attribute, a number that is not negative, whose values are the weights.
	Weight string
	// Scores are weights by key.
	Scores *Scores
	// Balance is an attribute: the samples with a value are a class, and a class of c samples is
	// drawn in proportion to c^(p/q), where Temperature is p/q, 0 ≤ p ≤ q ≤ 16. {0, 0} is 0/1, which
	// makes all values equally frequent.
	Balance     string
	Temperature [2]int
	// Draws is the number of draws of an epoch. Default: the number of samples of weight > 0.
	Draws uint64
	// Default, when not nil, is the weight of samples without one. Otherwise they are an error that
	// wraps ErrMissing.
	Default *float64
	// AllowMissing accepts keys that the data set does not have; otherwise they are an error that
	// wraps ErrMissing.
	AllowMissing bool
	// Memory bounds what sorting keys takes, in bytes. Default 96 MiB. More goes to a temporary file
	// in the folder Temp, by default the system's.
	Memory int64
	Temp   string
}

// Report is what was found while a view was made.
type Report struct {
	// Chosen is how many samples the view has, each counted once, and Samples the samples of an epoch.
	Chosen, Samples uint64
	// MissingKeys are the keys that the data set does not have.
	MissingKeys Missing
	// WithoutValue is how many samples were left out of a balanced view because they have no value.
	WithoutValue uint64
	// Raised is how many weights are so small beside the largest that they were raised to 2^-32 of it.
	Raised uint64
}

// Missing are keys that are not in the data set.
type Missing struct {
	Count uint64   `json:"count"`
	Some  []string `json:"some,omitempty"` // at most ten
}

func (m *Missing) String() string {
	text := ""
	for _, k := range m.Some {
		text += fmt.Sprintf(" %q", k)
	}
	if m.Count > uint64(len(m.Some)) {
		text += fmt.Sprintf(" and %d more", m.Count-uint64(len(m.Some)))
	}
	return text
}

// kindError is an error of one of the kinds above, with the text of another.
type kindError struct {
	kind error
	error
}

func (e *kindError) Unwrap() []error { return []error{e.kind, e.error} }

func specf(text string, args ...any) error { return &kindError{ErrSpec, fmt.Errorf(text, args...)} }

func missingf(text string, args ...any) error {
	return &kindError{ErrMissing, fmt.Errorf(text, args...)}
}

// Weighted reports whether the view draws by weight.
func (s *Spec) Weighted() bool { return s.Weight != "" || s.Scores != nil || s.Balance != "" }

func (s *Spec) check() error {
	given := 0
	for _, is := range []bool{s.Weight != "", s.Scores != nil, s.Balance != ""} {
		if is {
			given++
		}
	}
	p, q := s.Temperature[0], s.Temperature[1]
	switch {
	case given > 1:
		return specf("more than one of weight, scores and balance: give one of them")
	case given == 0 && (s.Draws > 0 || s.Default != nil):
		return specf("draws and a default weight go with weights: give a weight, or an attribute to balance")
	case s.Draws >= 1<<63:
		return specf("%d draws: give fewer than 2^63", s.Draws)
	case s.Default != nil && !(*s.Default >= 0 && *s.Default <= maxWeight):
		return specf("a default weight of %v: give a number that is not negative", *s.Default)
	case s.Balance == "" && s.Temperature != [2]int{}:
		return specf("a temperature goes with balance")
	case s.Temperature != [2]int{} && !(0 <= p && p <= q && 1 <= q && q <= 16):
		return specf("temperature %d/%d: give p/q with 0 ≤ p ≤ q ≤ 16", p, q)
	case s.Balance != "" && s.Default != nil:
		return specf("a default weight goes with weights, not with balance")
	}
	return nil
}

// Make makes a view of a data set. With an empty Spec it has all samples. Where d has a view in
// use, the new one chooses from its samples; without weights in the Spec, it keeps the
// weights, or the classes with theirs, and the draws of the view.
func Make(ctx context.Context, d *reader.Dataset, s Spec) (*viewfile.View, *Report, error) {
	if err := s.check(); err != nil {
		return nil, nil, err
	}
	s.Memory = cmp.Or(s.Memory, 96<<20)
	r := &Report{}
	m := &maker{d: d, spec: &s, report: r}
	chosen, err := m.choose(ctx)
	if err != nil {
		return nil, r, err
	}
	base := d.Selection().View()
	within(chosen, base)
	v := &viewfile.View{Digest: d.Digest(), Samples: d.NumSamples(), Chosen: chosen}
	if s.Weighted() {
		if err := m.weigh(ctx, v); err != nil {
			return nil, r, err
		}
	} else if r.Chosen = count(chosen); base != nil && !base.Subset() {
		v.Chosen, v.Weights, v.Draws, v.Classes = nil, slices.Clone(base.Weights), base.Draws, base.Classes
		for i := range v.Weights {
			if chosen[i/8]>>(i%8)&1 == 0 {
				v.Weights[i] = 0
			}
		}
		if r.Chosen > 0 {
			r.Samples = v.Draws
		}
	} else {
		r.Samples = r.Chosen
	}
	if r.Samples == 0 {
		return nil, r, fmt.Errorf("%w: nothing is chosen of %d: loosen the conditions", ErrEmpty, d.NumSamples())
	}
	return v, r, m.fits(ctx, v)
}

// fits refuses what an order cannot have, and leaves out classes without samples.
func (m *maker) fits(ctx context.Context, v *viewfile.View) error {
	if v.Subset() {
		return nil
	}
	v.Compact()
	t, err := m.d.OrderTable(ctx)
	if err == nil {
		_, err = viewstore.Order(v, t.Samples)
	}
	return err
}

// maker makes one view.
type maker struct {
	d      *reader.Dataset
	spec   *Spec
	report *Report
}

// choose finds the samples that fulfil where, keys and without keys.
func (m *maker) choose(ctx context.Context) ([]byte, error) {
	chosen, err := m.where(ctx)
	if err != nil {
		return nil, err
	}
	for i, list := range []*KeyList{m.spec.Keys, m.spec.WithoutKeys} {
		if list == nil {
			continue
		}
		listed := make([]byte, len(chosen))
		if err := m.match(ctx, list, listed); err != nil {
			return nil, err
		}
		for k, x := range listed {
			if i == 0 {
				chosen[k] &= x
			} else {
				chosen[k] &^= x
			}
		}
	}
	return chosen, nil
}

// within leaves out the samples that a view does not have.
func within(chosen []byte, v *viewfile.View) {
	switch {
	case v == nil:
	case v.Subset():
		for i, x := range v.Chosen {
			chosen[i] &= x
		}
	default:
		for i, u := range v.Weights {
			if u == 0 {
				chosen[i/8] &^= 1 << (i % 8)
			}
		}
	}
}

func count(b []byte) (n uint64) {
	for _, x := range b {
		n += uint64(bits.OnesCount8(x))
	}
	return n
}

// all has a bit for each of n samples.
func all(n uint64) []byte {
	b := slices.Repeat([]byte{0xff}, int((n+7)/8))
	if n%8 != 0 {
		b[n/8] = 1<<(n%8) - 1
	}
	return b
}
