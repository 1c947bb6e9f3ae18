package lines

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
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
			if kind.numbers+kind.texts > 0 && !known[i] {
				s.plan.Attributes[i].Kind, known[i] = kind.attr(), true
				if kind.numbers > kind.texts && kind.texts > 0 {
					s.mixed = append(s.mixed, kind.mixed(&s.plan.Attributes[i]))
				}
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
				kinds[i].add(v)
			}
		}
	}
	parser.chunk(&c)
	return kinds, nil
}

// evidence counts the values of an attribute, by what they are.
type evidence struct {
	numbers, texts int
	fractions      bool   // among the numbers
	text           string // the first that is no number
}

func (e *evidence) add(v rows.Cell) {
	if _, ok := v.Integer(); ok {
		e.numbers++
		return
	}
	if _, ok := v.Float(); ok {
		e.numbers++
		e.fractions = true
		return
	}
	if e.texts++; e.texts == 1 {
		e.text = string(v.B[:min(len(v.B), 40)])
	}
}

// attr is the narrowest kind that fits all values.
func (e *evidence) attr() format.AttrKind {
	switch {
	case e.texts > 0:
		return format.AttrLabel
	case e.fractions:
		return format.AttrNumber
	}
	return format.AttrInteger
}

// mixed warns of numbers that are kept as text because of a few values that are none.
func (e *evidence) mixed(a *rows.Attr) *hint.OptionError {
	return &hint.OptionError{Option: "attr", Value: strconv.Quote(a.Name), Err: fmt.Errorf(
		"column %s is a number in %d of the first %d rows and text in others, as %q: it is kept as text, which < and > "+
			"do not compare with numbers; a condition such as %s != '%s' leaves such rows out", a.Column, e.numbers, e.numbers+e.texts,
		e.text, a.Column, strings.ReplaceAll(e.text, "'", "''"))}
}
