package mix

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/internal/order/members"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/sys/plain"
)

// The most characters of Source.Lengths, and of the name of the attribute with the lengths.
const (
	maxLengths = 32
	maxBy      = 64
)

// SetLine gives a source the units of all its epochs, and the hash of the lengths.
func SetLine(s *Source, line *units.Line) { s.line, s.Lengths = line, line.Units().Hash() }

// LineOf returns what SetLine set, or nil.
func LineOf(s *Source) *units.Line { return s.line }

// errLine is returned for a source whose units are needed but not known.
var errLine = errors.New("its units are needed, and were not given")

// errBefore is returned for a checkpoint that counts more units than epochs have.
var errBefore = members.Bad("first", "before epoch 0")

// inUnits reports whether positions of the source hold units.
func (s *Source) inUnits() bool { return s.Unit.Kind != "" }

// InUnits reports whether positions of the mix hold units. Either all sources with weight have
// units, or none has.
func (m *Mix) InUnits() bool { return m.holds() != "samples" }

// holds names what positions of the mix hold.
func (m *Mix) holds() string {
	for s := range m.Sources {
		if m.Sources[s].inUnits() && weighs(m.Segments, s) {
			return string(m.Sources[s].Unit.Kind)
		}
	}
	return "samples"
}

// oneKind refuses sources with units of several kinds or sizes: a step gets arrays of one shape.
func (m *Mix) oneKind() error {
	first := -1
	for s := range m.Sources {
		if !weighs(m.Segments, s) {
			continue
		}
		if first < 0 {
			first = s
		}
		of, is := m.Sources[first].Unit, m.Sources[s].Unit
		if of.Kind != is.Kind || of.Size != is.Size {
			return &SourceError{m.Sources[s].Name,
				fmt.Errorf("its positions hold %s, and those of source %q %s: give all sources units of one kind and size", described(is), m.Sources[first].Name, described(of))}
		}
	}
	return nil
}

func described(p units.Params) string {
	if p.Kind == "" {
		return "samples"
	}
	return fmt.Sprintf("units of kind %s and size %d", p.Kind, p.Size)
}

func (s *Source) validateUnits() error {
	if !s.inUnits() {
		if s.line != nil || s.Unit != (units.Params{}) || s.Lengths != "" {
			return errors.New("parameters of units without a kind")
		}
		return nil
	}
	if err := s.Unit.Check(); err != nil {
		return err
	}
	switch {
	case !plain.InJSON(s.Unit.By, maxBy):
		return members.Bad("by", s.Unit.By)
	case !plain.InJSON(s.Lengths, maxLengths):
		return members.Bad("lengths", s.Lengths)
	case s.line == nil:
		return nil
	}
	if is := s.line.Units().Params(); is != s.Unit {
		return fmt.Errorf("its units are %+v, and the units of the mix are %+v", is, s.Unit)
	}
	return nil
}

// sameUnits reports whether the units of two sources over one data set are the same. The name of
// the attribute that has the lengths does not matter.
func sameUnits(a, b *Source) bool {
	of, is := a.Unit, b.Unit
	of.By, is.By = "", ""
	return of == is && a.Lengths == b.Lengths
}

// Attach gives each source of a checkpoint of units the Line of the source of the mix asked for
// that has the same units. Call it before Begin, and before the checkpoint's Mix is read.
func (c *Checkpoint) Attach(asked Mix) {
	c.Sources = slices.Clone(c.Sources)
	for _, u := range union(c.Sources, asked.Sources) {
		if u.old >= 0 && u.new >= 0 && !replaced(&c.Sources[u.old], &asked.Sources[u.new]) {
			c.Sources[u.old].line = asked.Sources[u.new].line
		}
	}
}

// placeInLine is Place where positions hold units.
func (s *Source) placeInLine(j uint64) (epoch, place uint64, err error) {
	epoch, first := s.Epoch, s.First
	for j < first {
		if epoch == 0 {
			return 0, 0, &SourceError{s.Name, errBefore}
		}
		epoch--
		n, err := s.units(epoch)
		if err != nil {
			return 0, 0, err
		}
		if n > first {
			return 0, 0, &SourceError{s.Name, errBefore}
		}
		first -= n
	}
	if s.line == nil {
		return epoch, j - first, nil
	}
	for j > first { // the first unit of an epoch needs no plan
		n, err := s.units(epoch)
		if err != nil || j-first < n {
			return epoch, j - first, err
		}
		epoch, first = epoch+1, first+n
	}
	return epoch, 0, nil
}

// units returns how many units an epoch of the source has.
func (s *Source) units(epoch uint64) (uint64, error) {
	if s.line == nil {
		return 0, &SourceError{s.Name, errLine}
	}
	n, err := s.line.Len(epoch)
	if err != nil {
		return 0, &SourceError{s.Name, err}
	}
	if n == 0 {
		return 0, &SourceError{s.Name, units.ErrNoUnits}
	}
	return n, nil
}

// limitInLine is limit where positions hold units. It plans no epoch of a source without a limit.
func (s *Source) limitInLine(j uint64) (uint64, error) {
	if s.maxEpochs() == maxEpochs || s.line == nil {
		return maxPosition, nil
	}
	j = max(j, s.First)
	epoch, place, err := s.placeInLine(j)
	if err != nil || epoch >= s.maxEpochs() {
		return j - place, err
	}
	n, err := s.units(epoch)
	return j - place + n, err
}
