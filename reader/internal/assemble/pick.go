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
	// None are the numbers of samples of which nothing is delivered, ascending.
	None []uint64
}

// fields removes the fields from all[at:] that are not delivered of a sample. They ascend.
func (p *Pick) fields(all []format.FieldView, at int, number uint64) []format.FieldView {
	if p == nil {
		return all
	}
	if len(p.None) > 0 {
		if _, none := slices.BinarySearch(p.None, number); none {
			return all[:at]
		}
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

// Merge adds fields of another data set to the fields of a sample. Both ascend, and so does the
// result. A field of one name in both is an error that wraps format.ErrDuplicate.
func Merge(fields, more []format.FieldView) ([]format.FieldView, error) {
	return merge(fields, 0, more)
}

// merge merges more into all[at:]. Both ascend.
func merge(all []format.FieldView, at int, more []format.FieldView) ([]format.FieldView, error) {
	i, j := len(all)-1, len(more)-1
	all = append(all, more...)
	for k := len(all) - 1; j >= 0; k-- {
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
			return all, fmt.Errorf("%w: two data sets have the field %q of the sample", format.ErrDuplicate, more[j].Name)
		}
	}
	return all, nil
}
