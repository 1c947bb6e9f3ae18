package reader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"slices"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/view"
)

// ErrViewGeneration: a view is of other content than the data set, mostly of an earlier generation.
var ErrViewGeneration = errors.New("the view is of another generation")

// maxView bounds the bytes of a view file: weights of 2^32 samples.
const maxView = 16 << 30

// chosenView is the view of a data set.
type chosenView struct {
	file *format.View // nil: the whole data set
	id   string

	once sync.Once
	made order.View
	err  error

	listed sync.Once
	chosen *chosenList
}

func (c *chosenView) list() *chosenList {
	c.listed.Do(func() { c.chosen = newChosenList(c.file) })
	return c.chosen
}

// LoadView reads a view of the data set by its name or ID. The error wraps fs.ErrNotExist where
// there is none, and ErrViewGeneration where the view is of other content.
func (d *Dataset) LoadView(ctx context.Context, name string) (*format.View, error) {
	object := format.ViewName(name)
	if !format.IsViewID(name) {
		label, err := d.ViewLabel(ctx, name)
		if err != nil {
			return nil, err
		}
		object = label.View
	}
	file, _, err := objstore.ReadAll(ctx, d.Store(), object, maxView)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && object != format.ViewName(name) {
			err = fmt.Errorf("%w: the name %s leads to a view that is missing: make it again", err, name)
		}
		return nil, fmt.Errorf("reader: view %s: %w", name, err)
	}
	head, err := format.ViewHead(file)
	if err != nil {
		return nil, format.InShard(object, err)
	}
	if err := d.sameContent(head); err != nil {
		return nil, fmt.Errorf("reader: view %s of %v: %w", name, d.Store(), err)
	}
	v, err := format.DecodeView(file, d.Digest(), d.NumSamples())
	if err == nil && format.ViewName(v.ID()) != object {
		err = fmt.Errorf("%w: its content has the ID %s", format.ErrCorrupt, v.ID())
	}
	return v, format.InShard(object, err)
}

// ViewLabel reads the object that names a view.
func (d *Dataset) ViewLabel(ctx context.Context, name string) (*format.ViewLabel, error) {
	if err := format.CheckViewLabel(name); err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	object := format.ViewLabelObject(name)
	text, _, err := objstore.ReadAll(ctx, d.Store(), object, format.MaxViewLabel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reader: no view %s in %v: %w%s", name, d.Store(), fs.ErrNotExist, d.viewNames(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("reader: view %s: %w", name, err)
	}
	label, err := format.DecodeViewLabel(text)
	return label, format.InShard(object, err)
}

// viewNames lists some names for an error.
func (d *Dataset) viewNames(ctx context.Context) string {
	const most = 8
	text, n := "", 0
	for name, err := range d.Views(ctx) {
		if err != nil {
			return ""
		}
		if n++; n > most {
			return ": there are" + text + " and more"
		}
		text += " " + name
	}
	if n == 0 {
		return ": there is none"
	}
	return ": there are" + text
}

// Views yields the names of the views in the store, in ascending order.
func (d *Dataset) Views(ctx context.Context) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for info, err := range d.Store().List(ctx, format.ViewFolder) {
			if err != nil {
				yield("", fmt.Errorf("reader: %w", err))
				return
			}
			if name, ok := format.ViewLabelOf(info.Name); ok && !yield(name, nil) {
				return
			}
		}
	}
}

// UseView makes d a view: its orders and streams have the samples of the view alone, as often as it
// says. Everything else, such as Samples and Get, still reads the whole data set. Call it right
// after Open. The view must be of the content of d.
func (d *Dataset) UseView(v *format.View) error {
	if err := d.sameContent(v); err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	d.view = &chosenView{file: v, id: v.ID()}
	return nil
}

// sameContent refuses a view of other content.
func (d *Dataset) sameContent(v *format.View) error {
	if v.Digest == d.Digest() && v.Samples == d.NumSamples() {
		return nil
	}
	return fmt.Errorf("%w: it is of %d samples with the digest %s, this one has %d and %s: carry it over to this generation", ErrViewGeneration,
		v.Samples, format.DigestString(v.Digest), d.NumSamples(), format.DigestString(d.Digest()))
}

// View returns the view in use, nil for the whole data set.
func (d *Dataset) View() *format.View { return d.view.file }

// ViewID is the ID of the view in use; empty for the whole data set.
func (d *Dataset) ViewID() string { return d.view.id }

// NotChosen returns the numbers of the samples that the view in use leaves out, ascending; nil
// without a view. Opened again with them in Options.Removed, the data set has the samples of a
// subset alone.
func (d *Dataset) NotChosen() (numbers []uint64) {
	if d.view.file == nil {
		return nil
	}
	for n := range d.NumSamples() {
		if !d.IsChosen(n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// EpochSamples is the number of samples of an epoch: those of the view in use, or all.
func (d *Dataset) EpochSamples() uint64 {
	v := d.view.file
	switch {
	case v == nil:
		return d.NumSamples()
	case !v.Subset():
		return v.Draws
	}
	n := 0
	for _, b := range v.Chosen {
		n += bits.OnesCount8(b)
	}
	return uint64(n)
}

// OrderDigest is what checkpoints identify the samples by: the digest, and the ID of the view in
// use.
func (d *Dataset) OrderDigest() string {
	digest := format.DigestString(d.Digest())
	if d.view.id != "" {
		digest += "#" + d.view.id
	}
	return digest
}

// OrderTable reads what an order needs: the number of samples of every block, and the view in use.
func (d *Dataset) OrderTable(ctx context.Context) (order.Table, error) {
	t, err := d.catalog.OrderTable(ctx)
	if err != nil || d.view.file == nil {
		return t, err
	}
	c := d.view
	c.once.Do(func() {
		if c.file.Subset() {
			c.made, c.err = view.Subset(t.Samples, c.file.Chosen)
		} else {
			c.made, c.err = view.Weights(t.Samples, c.file.Weights, c.file.Draws)
		}
	})
	t.View = c.made
	return t, c.err
}

// pieces returns how many blocks a piece of a view may have, of at most n, and which blocks of a
// piece are read; nil means all. A block without samples is read only as far as the draws of an
// epoch cannot be foreseen: never, because pieces are then single blocks.
func (in *input) pieces(n int) (blocks int, wanted func(block int) bool) {
	v := in.table.View
	if v == nil || n == 1 {
		return n, nil
	}
	counts := v.Chosen(in.plan.Params().Seed, 0).Counts()
	if !v.Fixed() {
		if slices.Min(counts) < 2 { // the draws in a block differ by at most one from epoch to epoch
			return 1, nil
		}
		return n, nil
	}
	for i, first := range in.table.ShardFirst {
		end := len(counts)
		if i+1 < len(in.table.ShardFirst) {
			end = in.table.ShardFirst[i+1]
		}
		for ; first < end; first += n {
			if gap(counts[first:min(first+n, end)]) {
				return 1, nil
			}
		}
	}
	return n, func(block int) bool { return counts[block] > 0 }
}

// gap reports whether a block without samples lies between two that have some.
func gap(counts []uint32) bool {
	runs := 0
	for i, n := range counts {
		if n > 0 && (i == 0 || counts[i-1] == 0) {
			runs++
		}
	}
	return runs > 1
}
