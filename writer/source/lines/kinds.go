package lines

import (
	"context"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// kindFiles is the number of files read to determine the kinds of attributes. There may be many
// files, and they may be remote.
const kindFiles = 32

// chooseKinds sets the kind of each attribute by the first rows of the first file that has values
// for it, or to label.
func (s *lineSource) chooseKinds(ctx context.Context) error {
	left := len(s.plan.Attributes)
	known := make([]bool, left)
	for _, f := range s.files[:min(len(s.files), kindFiles)] {
		if left == 0 {
			break
		}
		kinds, err := s.kindsIn(ctx, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		for i, kind := range kinds {
			if kind >= 0 && !known[i] {
				s.plan.Attributes[i].Kind, known[i] = kind.attr(), true
				left--
			}
		}
	}
	return nil
}

// kindsIn determines kinds by the first chunk of a file.
func (s *lineSource) kindsIn(ctx context.Context, f *textFile) ([]evidence, error) {
	obj, err := f.Reopen(ctx)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	u, done, err := f.cutter(ctx, obj, false, f.first, s.plan.opt.MaxLine, 1<<20)
	if err != nil {
		return nil, err
	}
	defer done()
	c := chunk{of: f}
	kinds := make([]evidence, len(s.plan.Attributes))
	for i := range kinds {
		kinds[i] = -1
	}
	if err := u.next(&c); err != nil {
		if err == io.EOF {
			return kinds, nil
		}
		return nil, err
	}
	parser := newParser(s.plan)
	parser.Seen = func() {
		for i, a := range s.plan.Attributes {
			if v := parser.named[a.Column].Cell; v.Kind > rows.Null {
				kinds[i] = kinds[i].and(v)
			}
		}
	}
	parser.chunk(&c)
	return kinds, nil
}

// evidence is the narrowest kind that fits all values seen, or -1 if there was none.
type evidence int

const (
	onlyIntegers evidence = iota
	onlyNumbers
	anyText
)

func (e evidence) and(v rows.Cell) evidence {
	fits := anyText
	if _, ok := v.Integer(); ok {
		fits = onlyIntegers
	} else if _, ok := v.Float(); ok {
		fits = onlyNumbers
	}
	return max(e, fits)
}

func (e evidence) attr() format.AttrKind {
	return [...]format.AttrKind{format.AttrInteger, format.AttrNumber, format.AttrLabel}[e]
}
