package rows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// Column is a column of rows: what the plan has it become, and its cell in the current row.
type Column struct {
	Name   string
	Base   string // name of its field, without extension
	Field  bool   // it becomes a field
	Wanted bool   // it is read: as a field, as the key, as an attribute, or by a condition
	// Mask, if not empty, is the field that says whether the row has a value. A row that has none has
	// Zero in its place.
	Mask string
	Zero writer.Field

	Cell Cell
	Form
}

// Form makes fields of a column's cells: a format has one for each column.
type Form interface {
	// AddFields adds the fields of the current cell, which is not null.
	AddFields(to *Samples) error
	// Empty returns the name of the field that is empty in a row without values, or "" if there is
	// none.
	Empty() (string, error)
}

// Samples are samples made of rows, in slices that are used again.
type Samples struct {
	Keys   []byte
	Fields []writer.Field
	Attrs  []format.AttrValue
	// Data has the bytes of fields that the file does not have as they are.
	Data []byte
}

// Reset forgets the samples.
func (s *Samples) Reset() {
	s.Keys, s.Fields, s.Attrs, s.Data = s.Keys[:0], s.Fields[:0], s.Attrs[:0], s.Data[:0]
}

// Add adds a field. It returns nil.
func (s *Samples) Add(name string, data []byte) error {
	s.Fields = append(s.Fields, writer.Field{Name: name, Data: data})
	return nil
}

// Since returns the bytes that were added to Data since it had that length.
func (s *Samples) Since(begin int) []byte { return s.Data[begin:len(s.Data):len(s.Data)] }

// Walk makes samples of rows, one after another: Next, then a format adds the columns of the row to
// Has and sets their cells, then Take.
type Walk struct {
	Has []*Column // columns of the current row, in its order
	// At is the column of which Take has an error, if it is one of its fields.
	At *Column
	// Seen, if not nil, is called for each row before the conditions are.
	Seen func()

	plan    *Plan
	find    func(name string) *Column
	key     *Column
	attrs   []*Column // in the order of Plan.Attributes
	chosen  []*Column // in the order of Plan.Columns
	awaited []awaited // columns of options that no row has had yet
	holds   func(condition int) bool
	refused error // of a condition on the current row
	file    *inputs.File
	folders []folder
	text    []byte
}

// folder is a column that a folder of the current file states.
type folder struct {
	*inputs.Constant
	column *Column
	cell   Cell
	given  bool // the rows since Next have the cell
}

// awaited is a column that an option names. met says whether a row of any walk had it.
type awaited struct {
	column *Column
	met    *atomic.Bool
}

// Walk begins a walk. find returns the column of a name, which is the same for good.
func (p *Plan) Walk(find func(name string) *Column) *Walk {
	w := &Walk{plan: p, find: find}
	if p.Key != "" {
		w.key = find(p.Key)
	}
	for _, a := range p.Attributes {
		w.attrs = append(w.attrs, find(a.Column))
	}
	for _, name := range p.Columns {
		w.chosen = append(w.chosen, find(name))
	}
	var of []*Column
	for _, c := range p.Conditions {
		of = append(of, find(c.Column))
	}
	for name, met := range p.met {
		w.awaited = append(w.awaited, awaited{find(name), met})
	}
	w.holds = func(i int) bool {
		holds, err := p.Conditions[i].Of(&of[i].Cell)
		if err != nil && w.refused == nil {
			w.refused = err
		}
		return holds
	}
	return w
}

// Next begins a row of a file, or several which have the same columns.
func (w *Walk) Next(file *inputs.File) {
	for _, c := range w.Has {
		c.Cell.Kind = Absent
	}
	w.Has = w.Has[:0]
	if w.file == file {
		for i := range w.folders {
			w.folders[i].given = false
		}
		return
	}
	w.file, w.folders = file, w.folders[:0]
	for i := range file.Constants {
		k := &file.Constants[i]
		if c := w.find(k.Name); c.Wanted {
			w.folders = append(w.folders, folder{Constant: k, column: c, cell: Stated(k)})
		}
	}
}

// Stated returns the cell that a file's folder states.
func Stated(k *inputs.Constant) Cell {
	switch {
	case k.Null:
		return Cell{Kind: Null}
	case k.Integer:
		return Cell{Kind: Digits, N: uint64(k.N), B: []byte(k.Text)}
	}
	return Cell{Kind: Text, B: []byte(k.Text)}
}

// Take adds the sample of the current row, which has that number in its file. ok is false if a
// condition leaves the row out. After an error, the samples have a key if the row has one.
func (w *Walk) Take(number int64, to *Samples) (ok bool, err error) {
	w.At = nil
	if err := w.state(); err != nil {
		return false, err
	}
	if len(w.awaited) > 0 {
		w.meet()
	}
	if w.Seen != nil {
		w.Seen()
	}
	if w.plan.Expr != nil {
		w.refused = nil
		if holds := w.plan.Expr.Holds(w.holds); w.refused != nil || !holds {
			return false, w.refused
		}
	}
	if err := w.addKey(number, to); err != nil {
		return false, err
	}
	if err := w.addFields(to); err != nil {
		return false, err
	}
	for i, c := range w.attrs {
		out, ok, err := w.plan.Attributes[i].Value(&c.Cell)
		if err != nil {
			return false, err
		}
		if ok {
			to.Attrs = append(to.Attrs, out)
		}
	}
	return true, nil
}

// meet notes which of the columns that are awaited the row has.
func (w *Walk) meet() {
	left := w.awaited[:0]
	for _, a := range w.awaited {
		if a.column.Cell.Kind == Absent {
			left = append(left, a)
		} else if !a.met.Load() {
			a.met.Store(true)
		}
	}
	if w.awaited = left; len(left) > 0 && len(w.Has) > 0 && w.plan.others.Load() == nil {
		var names []string
		for _, c := range w.Has {
			names = append(names, c.Name)
		}
		w.plan.others.CompareAndSwap(nil, &names)
	}
}

// Refused returns the error of a row, which s names.
func (p *Plan) Refused(s writer.Sample, err error) error {
	return &writer.SampleError{Origin: s.Origin, Key: s.Key, Source: s.Source, Row: s.Row, Err: err,
		LeaveOut: p.Nulls == source.NullsSkip && errors.Is(err, source.ErrNulls)}
}

// state gives the row the columns of its file's folders, which a row that has them must not
// contradict.
func (w *Walk) state() error {
	for i := range w.folders {
		f := &w.folders[i]
		c := &f.column.Cell
		switch {
		case f.given: // to an earlier one of rows that have the same columns
		case c.Kind == List || c.Kind == Object || c.Kind == Array:
			return f.Twice("no single value")
		case c.Kind != Absent:
			w.text = c.appendText(w.text[:0])
			if err := f.Check(c.Kind == Null, w.text); err != nil {
				return err
			}
		case f.Folder != "":
			*c, f.given = f.cell, true
			w.Has = append(w.Has, f.column)
		}
	}
	return nil
}

func (w *Walk) addKey(number int64, to *Samples) error {
	if w.key == nil {
		to.Keys = fields.AppendRowKey(to.Keys, w.file.Stem, number)
		return nil
	}
	begin, c := len(to.Keys), &w.key.Cell
	switch c.Kind {
	case Text, Bytes, Word, Digits, Integer, Unsigned:
	case Absent:
		what := fmt.Sprintf("missing: choose another one of %s, or", w.names())
		return fields.NoKey(w.key.Name, what, " is not null")
	case Null:
		return fields.NoKey(w.key.Name, "null:", " is not null")
	default:
		return fmt.Errorf("the key, column %s, is %v: a key is a string or an integer", fields.Quoted(w.key.Name), c.Kind)
	}
	to.Keys = c.appendText(to.Keys)
	err := fields.CheckKey(w.key.Name, string(to.Keys[begin:]))
	if err != nil { // it names no sample
		to.Keys = to.Keys[:begin]
	}
	return err
}

// addFields adds the fields of the columns that have a value.
func (w *Walk) addFields(to *Samples) error {
	first, some := len(to.Fields), false
	for _, c := range w.Has {
		if !c.Field {
			continue
		}
		there := c.Cell.Kind > Null
		if c.Mask != "" {
			to.mask(c, there)
		}
		if !there {
			continue
		}
		some, w.At = true, c
		if err := c.AddFields(to); err != nil {
			return err
		}
	}
	w.At = nil
	if !some || len(to.Fields) == first {
		if err := w.addEmpty(to, first); err != nil {
			return err
		}
	}
	return nil
}

// mask adds the field that says whether a row has the value, and what stands for it if not.
func (s *Samples) mask(c *Column, there bool) {
	begin, bit := len(s.Data), byte(0)
	if there {
		bit = 1
	}
	s.Data = append(npy.AppendHeader[int](s.Data, "|b1"), bit)
	s.Fields = append(s.Fields, writer.Field{Name: c.Mask, Data: s.Since(begin)})
	if !there {
		s.Fields = append(s.Fields, c.Zero)
	}
}

// addEmpty gives a row without values the empty fields that Choice.Nulls asks for: for all chosen
// columns, else for those that the row has.
func (w *Walk) addEmpty(to *Samples, first int) error {
	of := w.Has
	if w.plan.Columns != nil {
		of = w.chosen
	}
	for _, c := range of {
		if w.plan.Nulls != source.NullsEmpty || !c.Field || c.Mask != "" {
			continue
		}
		name, err := c.Empty()
		if err != nil {
			return err
		}
		if name != "" {
			to.Fields = append(to.Fields, writer.Field{Name: name})
		}
	}
	made := to.Fields[first:]
	slices.SortFunc(made, func(a, b writer.Field) int { return strings.Compare(a.Name, b.Name) })
	made = slices.CompactFunc(made, func(a, b writer.Field) bool { return a.Name == b.Name })
	to.Fields = to.Fields[:first+len(made)]
	switch {
	case w.plan.Nulls == source.NullsEmpty && len(made) > 0:
		return nil
	case !w.plan.open || w.plan.Columns == nil || len(w.Has) == 0:
		return source.ErrNulls
	}
	return fmt.Errorf("the row has no value in the columns %s: it has %s%w", strings.Join(w.plan.Columns, ", "),
		w.names(), plain.Silent(source.ErrNulls))
}

// names lists the columns of the current row.
func (w *Walk) names() string {
	var names []string
	for _, c := range w.Has[:min(len(w.Has), 10)] {
		names = append(names, fields.Quoted(c.Name))
	}
	return strings.Join(names, ", ")
}
