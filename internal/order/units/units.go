package units

import (
	"errors"
	"fmt"
	"sync"

	"github.com/shardtool/shardtool/reader/order"
)

// Units are the units of an order. It is immutable and safe for concurrent use.
type Units struct {
	order   *order.Plan
	lengths []uint32
	params  Params
	sum     Summary
	hash    sync.Once
	hashed  string
}

// Summary counts what the lengths and the policy for long samples give in an epoch.
type Summary struct {
	Samples uint64 `json:"samples"`
	Tokens  uint64 `json:"tokens"` // of all units: what `--long` leaves
	Longest uint32 `json:"longest"`
	// Samples that are too long, what becomes of them, and the tokens lost. Cut are tokens of those
	// that are Truncated, and Left of those that are Dropped.
	Long      uint64 `json:"long"`
	Split     uint64 `json:"split"`
	Truncated uint64 `json:"truncated"`
	Cut       uint64 `json:"cut"`
	Dropped   uint64 `json:"dropped"`
	Left      uint64 `json:"left_out"`
}

// Lost describes the samples of an epoch that Long cuts off or leaves out; "" where there are none.
func (s Summary) Lost() string {
	text := ""
	if s.Truncated > 0 {
		text = fmt.Sprintf("%d are cut off, which leaves out %d tokens", s.Truncated, s.Cut)
	}
	if s.Dropped > 0 {
		if text != "" {
			text += ", and "
		}
		text += fmt.Sprintf("%d are left out, with %d tokens", s.Dropped, s.Left)
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("of the %d samples of an epoch, %d are longer than a unit: %s", s.Samples, s.Long, text)
}

// Add adds what the samples of another source give.
func (s *Summary) Add(o Summary) {
	s.Samples, s.Tokens, s.Longest, s.Long = s.Samples+o.Samples, s.Tokens+o.Tokens, max(s.Longest, o.Longest),
		s.Long+o.Long
	s.Split, s.Truncated, s.Cut, s.Dropped, s.Left = s.Split+o.Split, s.Truncated+o.Truncated, s.Cut+o.Cut,
		s.Dropped+o.Dropped, s.Left+o.Left
}

// LengthError reports a sample with a length that no unit can have.
type LengthError struct {
	Number uint64 // of the sample in storage order
	Length uint32
	Reason string
}

// Error names the sample and its length.
func (e *LengthError) Error() string {
	return fmt.Sprintf("sample %d has length %d: %s", e.Number, e.Length, e.Reason)
}

// TooLongError is returned with the policy LongError if samples are longer than a unit.
type TooLongError struct {
	Params  Params
	Samples uint64 // that are too long
	Of      uint64 // samples in all
	First   uint64 // number of the first one
	Longest uint32
}

// Error returns how many samples are too long, and what to choose.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("%d of %d samples are longer than the %s of %d, the first is sample %d, the longest has %d: split them, truncate them, drop them, or give a %s of %d",
		e.Samples, e.Of, e.Params.measure(), e.Params.Size, e.First, e.Longest, e.Params.measure(), e.Longest)
}

// ErrNoUnits is returned for a data set of which no sample fits.
var ErrNoUnits = errors.New("every sample is longer than a unit and is dropped: give a larger one")

// New makes the units of an order. lengths are the lengths of its samples by number in storage
// order, each at least 1 and at most MaxSize; the slice is not copied and must not change. New
// returns the errors of Params.Check, a *LengthError, a *TooLongError or ErrNoUnits.
func New(o *order.Plan, lengths []uint32, p Params) (*Units, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if have, want := uint64(len(lengths)), o.Stored(); have != want {
		return nil, fmt.Errorf("%d lengths for %d samples", have, want)
	}
	u := &Units{order: o, lengths: lengths, params: p}
	var all func(yield func(uint64))
	if o.Viewed() {
		all = func(yield func(uint64)) { o.Drawn(0, yield) }
	}
	var err error
	u.sum, err = Summarize(lengths, all, p)
	return u, err
}

// Params returns the frozen parameters.
func (u *Units) Params() Params { return u.params }

// Order returns the order of the samples.
func (u *Units) Order() *order.Plan { return u.order }

// CheckRun checks the split of a stream that begins in an epoch. For an endless stream it also
// refuses a rank that would never get a unit, see order.Split.Reaches. It plans the epoch only if
// the epoch may have so few units.
func (u *Units) CheckRun(s order.Split, endless bool, epoch uint64, plans Plans) error {
	if err := s.Check(); err != nil || !endless || epoch >= order.MaxEpochs {
		return err
	}
	g, tail := uint64(s.GlobalBatch), u.order.Params().Tail
	if err := s.Reaches(g, order.TailWrap); err != nil {
		return err
	}
	if least := u.sum.Tokens / uint64(u.params.Size); least >= max(g, uint64(s.World)) || u.order.Samples() == 0 {
		return nil
	}
	p, err := plans(epoch)
	if err != nil {
		return err
	}
	if tail == order.TailDrop && p.Units() < g {
		return errDropsAll(g, p)
	}
	return s.Reaches(p.Units(), tail)
}

// errDropsAll returns the error of a batch that no epoch fills.
func errDropsAll(g uint64, p *Plan) error {
	return fmt.Errorf("global batch %d with tail drop delivers nothing of the %d units of epoch %d: give a smaller batch or another tail", g, p.Units(), p.Epoch())
}

// Summary returns what the lengths give in an epoch that has each sample once.
func (u *Units) Summary() Summary { return u.sum }

// Summarize checks lengths and counts what their units have in an epoch. drawn yields the numbers
// of the samples of the epoch, with repeats; nil means each sample once. It does not use p.Window.
// It returns the errors that New returns.
func Summarize(lengths []uint32, drawn func(yield func(number uint64)), p Params) (s Summary, err error) {
	size := p.Size
	var all, over, kept uint64 // tokens: in all, in long samples, left of those
	first := uint64(0)
	add := func(i uint64, n uint32) {
		s.Samples++
		all += uint64(n)
		s.Longest = max(s.Longest, n)
		if n <= size {
			return
		}
		if s.Long++; s.Long == 1 {
			first = i
		}
		over += uint64(n)
	}
	for i, n := range lengths {
		if n-1 >= MaxSize { // 0 wraps around
			return s, badLength(i, n)
		}
		if drawn == nil {
			add(uint64(i), n)
		}
	}
	if drawn != nil {
		drawn(func(number uint64) { add(number, lengths[number]) })
	}
	switch p.Long {
	case LongSplit:
		s.Split, kept = s.Long, over
	case LongTruncate:
		kept = s.Long * uint64(size)
		s.Truncated, s.Cut = s.Long, over-kept
	case LongDrop:
		s.Dropped, s.Left = s.Long, over
	default:
		if s.Long > 0 {
			return s, &TooLongError{Params: p, Samples: s.Long, Of: s.Samples, First: first, Longest: s.Longest}
		}
	}
	s.Tokens = all - over + kept
	if s.Samples > 0 && s.Tokens == 0 {
		return s, fmt.Errorf("%s of %d: %w", p.measure(), size, ErrNoUnits)
	}
	return s, nil
}

func badLength(sample int, n uint32) error {
	e := &LengthError{Number: uint64(sample), Length: n, Reason: "lengths are at least 1"}
	if n > 0 {
		e.Reason = fmt.Sprintf("lengths are at most %d", MaxSize)
	}
	return e
}
