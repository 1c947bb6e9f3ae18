package mix

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/reader/order"
)

// Difference is one thing in which the mix asked for differs from a checkpoint's.
type Difference struct {
	Source            string // "" where it is about the whole mix
	Field             string // the member of the checkpoint
	Checkpoint, Given string // its value there, and the one asked for
	// Frozen reports that no change of the mix allows the difference. Everything else can be changed
	// on resume.
	Frozen bool
	// LeftOut counts the units of the source's old epoch that are not given, because its data set was
	// replaced within the epoch. For packed sequences and micro-batches it is an estimate by the
	// length of epoch 0, because their epochs differ.
	LeftOut uint64
}

// MismatchError reports a checkpoint that does not belong to the mix asked for. It is an
// order.ErrMismatch.
type MismatchError struct{ Difference }

// Error names the source, the field, both values and what to do.
func (e *MismatchError) Error() string {
	of, advice := "", "continue with the mix of the checkpoint, or allow the mix to change"
	if e.Source != "" {
		of = fmt.Sprintf("source %q: ", e.Source)
	}
	if e.Frozen {
		advice = "leave it to the checkpoint, or start anew without one"
	}
	return fmt.Sprintf("the checkpoint does not fit: %s%s is %s in the checkpoint, %s here: %s", of, e.Field,
		e.Checkpoint, e.Given, advice)
}

// Hints say how to allow the mix to change, where it may.
func (e *MismatchError) Hints() []hint.Hint {
	if e.Frozen {
		return nil
	}
	return []hint.Hint{hint.Set("change-mix", "true", "")}
}

// Is makes errors.Is(err, order.ErrMismatch) true.
func (e *MismatchError) Is(target error) bool { return target == order.ErrMismatch }

// Fits returns a *MismatchError for the first difference between the mix asked for and the
// checkpoint, nil when there is none: then the checkpoint's mix continues. If the checkpoint is
// Steered, weights and segments are not compared: those of the checkpoint hold.
func (c *Checkpoint) Fits(asked Mix) error {
	differences, err := c.differences(asked, !c.Steered)
	if err != nil || len(differences) == 0 {
		return err
	}
	return &MismatchError{differences[0]}
}

// Differences lists how the mix asked for differs from the checkpoint: what a resume with it
// changes. asked is a mix at its first start. An Epoch of 0 stands for the checkpoint's. For a
// parameter that a user leaves open, pass the checkpoint's value. A source that has weight 0 from
// the position on may be missing on either side.
func (c *Checkpoint) Differences(asked Mix) ([]Difference, error) { return c.differences(asked, true) }

// differences is Differences, with or without those of weights and segments.
func (c *Checkpoint) differences(asked Mix, weights bool) ([]Difference, error) {
	if err := asked.validateParts(); err != nil {
		return nil, err
	}
	var d differences
	d.frozen("", "seed", c.Seed, asked.Seed)
	d.frozen("", "shuffle", c.Shuffle, asked.Shuffle)
	d.frozen("", "tail", c.Tail, asked.Tail)
	d.frozen("", "units", c.holds(), asked.holds()) // the positions of a run count one thing
	if asked.Epoch != 0 {
		d.frozen("", "epoch_length", c.Epoch, asked.Epoch)
	}
	counts, err := c.counts()
	if err != nil {
		return nil, err
	}
	now := asked.segment(c.Segments[0].At, c.Position)
	all := union(c.Sources, asked.Sources)
	for _, u := range all {
		switch {
		case u.old < 0:
			if weighs(asked.Segments[now:], u.new) {
				d.add(u.name, "source", "not in the mix", "in the mix")
			}
		case u.new < 0:
			if weighs(c.Segments, u.old) {
				d.add(u.name, "source", "in the mix", "not in the mix")
			}
		default:
			if err := d.source(&c.Sources[u.old], &asked.Sources[u.new], counts[u.old]); err != nil {
				return nil, err
			}
		}
	}
	if !weights {
		return d, nil
	}
	for _, u := range all { // last, because adding or removing a source changes the weights of all
		if u.old >= 0 && u.new >= 0 {
			d.compare(u.name, "weight", weight(c.Segments[0].Weights[u.old]),
				weight(asked.Segments[now].Weights[u.new]))
		}
	}
	d.segments(pending(&c.Mix, 0), pending(&asked, now))
	return d, nil
}

// Change returns the mix that continues from the checkpoint's position with the sources, weights
// and segments asked for. A segment begins there. Nothing is delivered twice; the other sources
// continue where they were. A source that is not asked for stays with weight 0. It continues when a
// later mix has it again. A source whose data set was replaced starts at the first unit of an
// epoch. Frozen differences are refused with a *MismatchError.
func (c *Checkpoint) Change(asked Mix) (Mix, error) {
	differences, err := c.Differences(asked)
	if err != nil {
		return Mix{}, err
	}
	if i := slices.IndexFunc(differences, func(d Difference) bool { return d.Frozen }); i >= 0 {
		return Mix{}, &MismatchError{differences[i]}
	}
	if c.Position >= maxPosition {
		return Mix{}, errors.New("the checkpoint is at the last position there is: start anew without it")
	}
	counts, err := c.counts()
	if err != nil {
		return Mix{}, err
	}
	changed := c.Mix
	changed.From, changed.Sources, changed.Segments, changed.Steered = c.Position, nil, nil, false
	for _, g := range asked.Segments[asked.segment(maxPosition, c.Position):] {
		changed.Segments = append(changed.Segments, Segment{At: g.At})
	}
	for _, u := range union(c.Sources, asked.Sources) {
		s, err := c.resumed(u, &asked, counts)
		if err != nil {
			return Mix{}, err
		}
		changed.Sources = append(changed.Sources, s)
		for i, g := range asked.Segments[len(asked.Segments)-len(changed.Segments):] {
			var w uint64
			if u.new >= 0 {
				w = g.Weights[u.new]
			}
			changed.Segments[i].Weights = append(changed.Segments[i].Weights, w)
		}
	}
	_, err = New(changed)
	return changed, err
}

// Steer returns the mix that continues from a position with other weights, by source number, which
// the training program sets: a change of the weights alone. Segments that were pending are dropped.
// A resume takes these weights from the checkpoint, whatever the mix file has.
func (p *Plan) Steer(position uint64, weights []uint64) (Mix, error) {
	if position >= maxPosition {
		return Mix{}, errors.New("the mix is at the last position there is: start anew")
	}
	w, err := p.walkTo(position)
	if err != nil {
		return Mix{}, err
	}
	m := p.mix
	m.From, m.Segments, m.Steered = position, []Segment{{position, weights}}, true
	m.Sources = make([]Source, len(p.mix.Sources))
	for s, count := range w.counts(nil, position) {
		if m.Sources[s], err = p.mix.Sources[s].at(count); err != nil {
			return Mix{}, err
		}
		m.Sources[s].Base = count
	}
	return m, m.validate()
}

// resumed returns a source from the checkpoint's position on.
func (c *Checkpoint) resumed(u pair, asked *Mix, counts []uint64) (Source, error) {
	if u.old < 0 {
		return asked.Sources[u.new], nil
	}
	count := counts[u.old]
	s, err := c.Sources[u.old].at(count)
	s.Base = count
	if u.new < 0 || err != nil {
		return s, err
	}
	given := asked.Sources[u.new]
	given.Epoch, given.First, given.Base = s.Epoch, s.First, count
	if replaced(&s, &given) {
		if count > s.First {
			given.Epoch++
		}
		given.First = count
	}
	return given, nil
}

// counts returns how many units each source has given before the checkpoint's position.
func (c *Checkpoint) counts() ([]uint64, error) {
	p, err := New(c.Mix)
	if err != nil {
		return nil, err
	}
	return p.Counts(nil, c.Position)
}

// segment returns the number of the segment that begins at position at, or else of the last segment
// that begins at or before position or.
func (m *Mix) segment(at, or uint64) int {
	last := 0
	for i, g := range m.Segments {
		if g.At == at {
			return i
		}
		if g.At <= or {
			last = i
		}
	}
	return last
}

// weighs reports whether source s has weight in a segment.
func weighs(segments []Segment, s int) bool {
	return slices.ContainsFunc(segments, func(g Segment) bool { return g.Weights[s] > 0 })
}

// pending describes the segments after segment now, by their positions.
func pending(m *Mix, now int) map[uint64]string {
	texts := map[uint64]string{}
	for _, g := range m.Segments[now+1:] {
		text := fmt.Sprintf("at %d:", g.At)
		for s, w := range g.Weights {
			if w > 0 {
				text += fmt.Sprintf(" %s=%d", m.Sources[s].Name, w)
			}
		}
		texts[g.At] = text
	}
	return texts
}

func replaced(old, given *Source) bool {
	return old.Digest != given.Digest || old.View != given.View || old.Units != given.Units || !sameUnits(old, given)
}

// pair has the number of a source in a checkpoint and in the mix asked for, or -1 where it is
// missing.
type pair struct {
	name     string
	old, new int
}

// union merges two lists that are in ascending order of names.
func union(old, given []Source) []pair {
	var all []pair
	for i, k := 0, 0; i < len(old) || k < len(given); {
		switch {
		case k == len(given) || i < len(old) && old[i].Name < given[k].Name:
			all = append(all, pair{old[i].Name, i, -1})
			i++
		case i == len(old) || given[k].Name < old[i].Name:
			all = append(all, pair{given[k].Name, -1, k})
			k++
		default:
			all = append(all, pair{old[i].Name, i, k})
			i++
			k++
		}
	}
	return all
}

type differences []Difference

func (d *differences) add(source, field, checkpoint, given string) {
	*d = append(*d, Difference{Source: source, Field: field, Checkpoint: checkpoint, Given: given})
}

func (d *differences) compare(source, field string, checkpoint, given any) {
	if checkpoint != given {
		d.add(source, field, fmt.Sprint(checkpoint), fmt.Sprint(given))
	}
}

// weight is a share of 2^32 samples, printed in percent: ten digits tell any two apart.
type weight uint64

func (w weight) String() string { return fmt.Sprintf("%.10g%%", float64(w)*100/(1<<32)) }

func (d *differences) frozen(source, field string, checkpoint, given any) {
	if checkpoint != given {
		d.compare(source, field, checkpoint, given)
		(*d)[len(*d)-1].Frozen = true
	}
}

// segments compares pending segments, in ascending order of positions.
func (d *differences) segments(checkpoint, given map[uint64]string) {
	all := maps.Clone(checkpoint)
	maps.Copy(all, given)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		none := fmt.Sprintf("none at %d", at)
		d.compare("", "segments", cmp.Or(checkpoint[at], none), cmp.Or(given[at], none))
	}
}

// wholeSet stands for the view of a source that has none.
const wholeSet = "the whole data set"

// source compares a source's data set, view and parameters. A data set that was replaced may have
// another order.
func (d *differences) source(old, given *Source, count uint64) error {
	if replaced(old, given) {
		d.replaced(old, given)
		now, err := old.at(count)
		if err != nil {
			return err
		}
		if given := count - now.First; given > 0 && given < old.Units {
			(*d)[len(*d)-1].LeftOut = old.Units - given
		}
	} else {
		d.frozen(old.Name, "V", old.Lanes, given.Lanes)
		d.frozen(old.Name, "E", old.RunBlocks, given.RunBlocks)
		d.frozen(old.Name, "W", old.Delay, given.Delay)
		d.frozen(old.Name, "H", old.Head, given.Head)
		d.frozen(old.Name, "affinity", old.Affinity, given.Affinity)
	}
	d.compare(old.Name, "max_epochs", old.maxEpochs(), given.maxEpochs())
	return nil
}

// replaced adds the first difference that makes a data set another one, or its units others.
func (d *differences) replaced(old, given *Source) {
	fields := []struct {
		name    string
		was, is any
	}{
		{"digest", old.Digest, given.Digest}, {"view", cmp.Or(old.View, wholeSet), cmp.Or(given.View, wholeSet)},
		{"units", unitsText(old), unitsText(given)}, {"window", old.Unit.Window, given.Unit.Window},
		{"lengths", old.Lengths, given.Lengths}, {"N", old.Units, given.Units},
	}
	for _, f := range fields {
		if f.was != f.is {
			d.compare(old.Name, f.name, f.was, f.is)
			return
		}
	}
}

// unitsText describes what positions of a source hold.
func unitsText(s *Source) string {
	if !s.inUnits() {
		return "samples"
	}
	return fmt.Sprintf("%s of %d, long %s", s.Unit.Kind, s.Unit.Size, s.Unit.Long)
}
