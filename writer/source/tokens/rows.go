package tokens

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	columns "github.com/shardtool/shardtool/writer/source/internal/rows"
)

// maxRow is the maximum size of a row, in bytes.
const maxRow = 1 << 30

// surveyRows reads the header of a .npy file of any type, or the directory of a .npz file.
func (a *array) surveyRows(ctx context.Context, obj objstore.Object) error {
	a.layout = layout{DType: Uint8}
	if strings.EqualFold(a.ending(), ".npz") {
		return a.surveyArchive(ctx)
	}
	h, n, err := a.readHead(ctx, obj)
	if err != nil {
		return err
	}
	if a.form, err = rowsOf(&h, a.Info.Size-n); err != nil {
		return err
	}
	a.data, a.length = n, a.form.size
	a.row, a.rows, a.samples = h.Shape[1:], h.Shape[0], h.Shape[0]
	return nil
}

// ending is the extension by which a file is read.
func (a *array) ending() string {
	for _, name := range []string{a.As, a.Path, a.Name} {
		if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
			return name[dot:]
		}
	}
	return ""
}

// rows are the rows of an array.
type rows struct {
	head []byte // of a row
	size int64  // of a row in bytes, without head
	swap int
}

// rowsOf returns the rows of an array of which have bytes follow the header. Rows are
// little-endian.
func rowsOf(h *npy.Header, have int64) (r rows, err error) {
	holds := ""
	switch h.Kind {
	case 'i', 'u', 'f', 'b', 'c':
	case 'O':
		holds = "Python objects, which are pickled code and never loaded"
	case 'S', 'U', 'a', 'T':
		holds = "text, which is packed from tables or files"
	case 'm', 'M':
		holds = "times: save array.astype(np.int64)"
	case 0:
		holds = "records: save each of their fields as an array of its own, with np.savez"
	default:
		holds = "no numbers"
	}
	switch {
	case holds != "":
		return r, fmt.Errorf("its elements (%.40s) are %s", h.Descr, holds)
	case len(h.Shape) == 0:
		return r, fmt.Errorf("it is a single number: save an array with a row for each sample")
	}
	if err := checkSize(h, int64(h.Size), have); err != nil {
		return r, err
	}
	size, ok := sizeOf(h.Shape[1:], int64(h.Size))
	switch {
	case h.Shape[0] > 0 && size == 0:
		return r, fmt.Errorf("its %d rows are empty: there is nothing to store of an array of shape %s", h.Shape[0],
			shapeText(h.Shape))
	case !ok || size > maxRow:
		return r, fmt.Errorf("%w: rows of shape %s have more than %d bytes", format.ErrTooLarge, shapeText(h.Shape[1:]),
			int64(maxRow))
	}
	descr := h.Descr
	if h.Big && h.Size > 1 {
		descr = "<" + descr[1:]
		if r.swap = h.Size; h.Kind == 'c' {
			r.swap = h.Size / 2
		}
		if r.swap&(r.swap-1) != 0 {
			return r, fmt.Errorf("its elements (%s) are big-endian: save array.astype(array.dtype.newbyteorder('<'))",
				h.Descr)
		}
	}
	r.head, r.size = npy.AppendHeader(nil, descr, h.Shape[1:]...), size
	return r, nil
}

// order makes elements little-endian.
func (a *array) order(p []byte) { swapBytes(p, a.form.swap) }

func swapBytes(p []byte, size int) {
	for at := 0; size > 1 && at+size <= len(p); at += size {
		slices.Reverse(p[at : at+size])
	}
}

// agreeRows names the fields, which are the same in all files.
func (a *arraySource) agreeRows() error {
	o := &a.opt
	name := a.arrays[0].Path[strings.LastIndexByte(a.arrays[0].Path, '/')+1:]
	if strings.EqualFold(a.arrays[0].ending(), ".npz") {
		name = ""
	}
	a.field = name
	first := a.arrays[0]
	for _, f := range a.arrays {
		if f.npz == nil != (first.npz == nil) {
			return writer.Optionf("inputs", "%s holds one array and %s is a .npz file: pack one, then the other",
				f.Path, first.Path)
		}
		if got, want := f.describe(name), first.describe(name); got != want {
			return writer.Optionf("inputs",
				"the rows of %s are %s, those of %s are %s: save them with the same types and shapes", f.Path, got,
				first.Path, want)
		}
	}
	has := a.fields()
	choice, err := o.choice(has)
	if err != nil {
		return err
	}
	plan, err := columns.New(choice, has, false, nil)
	if err != nil {
		return err
	}
	taken := columns.Names{}
	for _, column := range has {
		if plan.Field(column) {
			err = cmp.Or(err, taken.Take(column, named(plan, column)))
		}
	}
	a.field = named(plan, a.field)
	if err != nil {
		return hint.At(first.Path, err)
	}
	for _, f := range a.arrays {
		if f.npz != nil {
			err = cmp.Or(err, f.npz.choose(plan))
		}
	}
	return err
}

// choice is what the options say of columns, which they name with .npy or without.
func (o *Options) choice(has []string) (c columns.Choice, err error) {
	full := func(name string) string {
		if slices.Contains(has, name+".npy") {
			return name + ".npy"
		}
		return name
	}
	for _, name := range o.Columns {
		c.Columns = append(c.Columns, full(name))
	}
	c.Rename = map[string]string{}
	for _, from := range slices.Sorted(maps.Keys(o.Rename)) {
		if _, twice := c.Rename[full(from)]; twice { // a.npy comes after a
			return c, writer.Optionf("rename", "%q and %q are one field: give it one name",
				strings.TrimSuffix(from, ".npy"), from)
		}
		c.Rename[full(from)] = o.Rename[from]
	}
	return c, c.Check()
}

// named returns the name of a column's field.
func named(p *columns.Plan, column string) string {
	to := p.Base(column)
	if to != column && to != "npy" && !strings.HasSuffix(to, ".npy") {
		to += ".npy"
	}
	return to
}

// describe returns the types and shapes of rows.
func (a *array) describe(field string) string {
	list := a.membersOf()
	if a.npz == nil {
		list = []*member{{field: field, rows: rows{head: a.form.head}}}
	}
	var text []string
	for _, m := range list {
		h, err := npy.Parse(m.head)
		if err != nil { // it was written here
			panic("tokens: " + err.Error())
		}
		text = append(text, fmt.Sprintf("%s of %s and shape %s", m.field, h.Descr, shapeText(h.Shape)))
	}
	return strings.Join(text, ", ")
}

// fields returns the names of the fields of samples.
func (a *arraySource) fields() (names []string) {
	if a.arrays[0].npz == nil {
		return []string{a.field}
	}
	for _, m := range a.arrays[0].npz.members {
		names = append(names, m.field)
	}
	return names
}
