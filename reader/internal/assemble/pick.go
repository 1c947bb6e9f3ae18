package assemble

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
)

// Pick says which fields of a data set are delivered.
type Pick struct {
	Names []string // ascending
	// Yields are the Names that another data set replaces, ascending: they are delivered of
	// samples that the other one has none for.
	Yields []string
	// None are the numbers of samples of which nothing is delivered, ascending.
	None []uint64
}

// none reports whether nothing is delivered of a sample. Its key is then not the sample's either,
// where it was purged.
func (p *Pick) none(number uint64) bool {
	if p == nil || len(p.None) == 0 {
		return false
	}
	_, none := slices.BinarySearch(p.None, number)
	return none
}

// yields reports whether another data set replaces a field.
func (p *Pick) yields(name []byte) bool {
	return p != nil && slices.ContainsFunc(p.Yields, func(y string) bool { return y == string(name) })
}

// Same returns an error that wraps format.ErrMismatch unless a sample has the same key in two data
// sets, the second of which delivers what p says.
func (p *Pick) Same(key, other []byte, number uint64) error {
	if p.none(number) || bytes.Equal(key, other) {
		return nil
	}
	return otherKey(number, other)
}

func otherKey(number uint64, key []byte) error {
	return fmt.Errorf("%w: sample %d has the key %.1024q here and another one in the other data sets: the layer is not of this data set, make it again",
		format.ErrMismatch, number, key)
}

// fields removes the fields from all[at:] that are not delivered of a sample. They ascend.
func (p *Pick) fields(all []format.FieldView, at int, number uint64) []format.FieldView {
	if p == nil {
		return all
	}
	if p.none(number) {
		return all[:at]
	}
	names, kept := p.Names, at
	for i := at; i < len(all); i++ {
		for len(names) > 0 && names[0] < string(all[i].Name) {
			names = names[1:]
		}
		if len(names) > 0 && names[0] == string(all[i].Name) {
			all[kept] = all[i]
			kept++
		}
	}
	return all[:kept]
}

// Of returns the fields of a sample that are delivered.
func (p *Pick) Of(fields []format.FieldView, number uint64) []format.FieldView {
	return p.fields(fields, 0, number)
}

// Merge adds fields of another data set, of which p says what is delivered, to the fields of a
// sample. Both ascend, and so does the result. Of a field in both the one that p does not yield is
// delivered.
func (p *Pick) Merge(fields, more []format.FieldView) []format.FieldView {
	return p.merge(fields, 0, more, false)
}

// merge merges more into all[at:]. Both ascend. own reports that p says what is delivered of
// all[at:], and not of more.
func (p *Pick) merge(all []format.FieldView, at int, more []format.FieldView, own bool) []format.FieldView {
	i, j := len(all)-1, len(more)-1
	all = append(all, more...)
	k := len(all) - 1
	for ; j >= 0; k-- {
		order := 1
		if i >= at {
			order = bytes.Compare(more[j].Name, all[i].Name)
		}
		switch {
		case order > 0:
			all[k] = more[j]
			j--
		case order < 0:
			all[k] = all[i]
			i--
		default:
			if all[k] = all[i]; p.yields(more[j].Name) == own {
				all[k] = more[j]
			}
			i, j = i-1, j-1
		}
	}
	if k > i { // of fields in both one is left
		all = all[:i+1+copy(all[i+1:], all[k+1:])]
	}
	return all
}
