package reshard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/curate/where"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// filter selects samples. It is safe for concurrent use.
type filter struct {
	opt   Options
	views bool        // a data set is a view
	where *where.Expr // nil: all samples
	conds []condition // the conditions of where
}

// condition is a where.Condition whose word is parsed for every kind of attribute.
type condition struct {
	where.Condition
	number   where.Number
	isNumber bool
}

func newFilter(sets []*set, opt Options) (*filter, error) {
	f := &filter{opt: opt}
	for name, globs := range map[string][]string{"include": opt.Include, "exclude": opt.Exclude} {
		for _, g := range globs {
			if !doublestar.ValidatePattern(g) {
				return nil, &hint.OptionError{Option: name, Value: strconv.Quote(g), Err: errors.New("not a glob")}
			}
		}
	}
	if err := opt.Share.check(); err != nil {
		return nil, err
	}
	for _, of := range sets {
		switch v := of.Selection().View(); {
		case v == nil:
		case !v.Subset():
			return nil, optionf("inputs",
				"%s: a view with weights says how often samples are read: pack a view that chooses some", of.path)
		default:
			f.views = true
		}
	}
	var err error
	if f.where, err = where.ParseAll(opt.Where); err != nil {
		return nil, err
	}
	if f.where == nil {
		return f, nil
	}
	for _, parsed := range f.where.Conditions {
		c := condition{Condition: parsed}
		c.number, c.isNumber = where.ParseNumber(c.Word)
		if err := c.bind(sets); err != nil {
			return nil, err
		}
		f.conds = append(f.conds, c)
	}
	return f, nil
}

// bind checks that the attribute exists and can be compared with the word.
func (c *condition) bind(sets []*set) error {
	found := false
	var names []string
	for _, of := range sets {
		for _, a := range of.Info().Attributes {
			if !slices.Contains(names, a.Name) {
				names = append(names, a.Name)
			}
			if a.Name != c.Column {
				continue
			}
			found = true
			if a.Kind != format.AttrLabel && !c.Nulls() && !c.isNumber {
				return c.WordErrorf("attribute %s holds %v values: compare it with a number", a.Name, a.Kind)
			}
			if _, number := c.Number(); a.Kind == format.AttrLabel && c.Orders() && number {
				return c.Letters(fmt.Sprintf("attribute %s holds text", a.Name))
			}
		}
	}
	switch {
	case found:
		return nil
	case names == nil:
		return c.Errorf("the data set has no attributes; name them when the rows are packed")
	}
	return c.Errorf("there is no attribute %q, there are %q", c.Column, names)
}

// holds reports whether a value fulfils the condition.
func (c *condition) holds(v format.AttrValue, there bool) bool {
	order, ordered := 0, true
	switch {
	case !there || c.Nulls():
	case v.Kind == format.AttrLabel:
		order = strings.Compare(v.Label, c.Word)
	case v.Kind == format.AttrInteger:
		order, ordered = c.number.CompareInt(v.Integer)
	default:
		order, ordered = c.number.CompareFloat(v.Number)
	}
	return c.Holds(!there, order, ordered)
}

// selective reports whether the number of samples can be neither known nor estimated beforehand.
func (f *filter) selective() bool {
	return f.views || len(f.conds)+len(f.opt.Include)+len(f.opt.Exclude) > 0
}

// key reports whether a key is selected.
func (f *filter) key(key []byte) bool {
	if !f.opt.Share.all() && !f.opt.Share.holds(key) {
		return false
	}
	if len(f.opt.Include)+len(f.opt.Exclude) == 0 {
		return true
	}
	return globs.Choice{Include: f.opt.Include, Exclude: f.opt.Exclude}.Takes(string(key))
}

// noAttributes reports whether a sample without attributes fulfils the conditions.
func (f *filter) noAttributes() bool { return f.attributes(nil, 0) }

// attributes reports whether sample i of a shard fulfils the conditions.
func (f *filter) attributes(ix *metadata.ShardIndex, i int) bool {
	return f.where == nil || f.where.Holds(func(c int) bool {
		v, there := attribute(ix, f.conds[c].Column, i)
		return f.conds[c].holds(v, there)
	})
}

// attribute returns the value of a sample's attribute.
func attribute(ix *metadata.ShardIndex, name string, i int) (format.AttrValue, bool) {
	if ix == nil {
		return format.AttrValue{}, false
	}
	at, ok := slices.BinarySearchFunc(ix.Attributes, name,
		func(a format.Attribute, name string) int { return cmp.Compare(a.Name, name) })
	if !ok {
		return format.AttrValue{}, false
	}
	return ix.Attrs[at].At(i)
}

// passed counts the samples of blocks that are not read, from one number to another.
type passed struct {
	from, to uint64
	mu       sync.Mutex
	blocks   []passedBlock // in order
}

type passedBlock struct {
	first uint64
	left  writer.RowsLeft
}

// before returns the counts of the blocks before a sample, once.
func (p *passed) before(number uint64) (left writer.RowsLeft) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.blocks) > 0 && p.blocks[0].first < number {
		left, p.blocks = left.Plus(p.blocks[0].left), p.blocks[1:]
	}
	return left
}

// take leaves out blocks whose index shows that no sample is selected, and counts them; nil if that
// does not pay.
func (f *filter) take(of *set, passed *passed) func(context.Context, *reader.Block) (bool, error) {
	if !f.selective() {
		return nil
	}
	return func(ctx context.Context, b *reader.Block) (bool, error) {
		ix, err := of.Index(ctx, b.Shard)
		if reader.Damaged(err) {
			return true, nil // reading the block gives the error of each sample
		}
		if err != nil {
			return false, err
		}
		first, err := of.FirstSample(ctx, b.Shard)
		if err != nil {
			return false, err
		}
		var left writer.RowsLeft
		for i := int(b.First - first); i < int(b.First-first)+b.Samples; i++ {
			number, by := first+uint64(i), &left.Where
			switch key := ix.Keys.At(i); {
			case key == "":
				continue
			case !f.key([]byte(key)) || !of.Selection().Has(number):
				by = &left.Filtered
			case f.attributes(ix, i):
				return true, nil
			}
			if number >= passed.from && number < passed.to {
				*by++
			}
		}
		passed.mu.Lock()
		defer passed.mu.Unlock()
		passed.blocks = append(passed.blocks, passedBlock{b.First, left})
		return false, nil
	}
}
