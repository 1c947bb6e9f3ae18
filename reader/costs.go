package reader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/order/cost"
	"github.com/shardtool/shardtool/internal/order/kept"
	"github.com/shardtool/shardtool/internal/order/units"
)

// costs are what the samples of a run cost. They decide which rank gets an entry of a global batch,
// and nothing else (ORDER.md, "Costs").
type costs struct {
	expr  *cost.Expr
	group int        // ranks that share their entries; 0: all
	micro int        // micro-batches of a rank, at least 1
	of    [][]uint64 // by source and number of the sample; nil where the length of a piece is the only value
	has   []bool     // by source: whether its costs are known; a source without weight may have none
	sum   [sha256.Size]byte
}

// maxMicroBatches is the most micro-batches of a rank.
const maxMicroBatches = 1 << 12

// CostError reports samples without a cost: their data set has not all attributes of the
// expression, or their values make a cost below 0, or one of 2^47 or more.
type CostError struct {
	Cost      string // the expression
	Attribute string // that is missing; "" if none is
	Err       error
}

// Error names the expression and the reason.
func (e *CostError) Error() string { return fmt.Sprintf("cost %q: %v", e.Cost, e.Err) }

// Unwrap returns Err.
func (e *CostError) Unwrap() error { return e.Err }

// Is reports that a CostError is an ErrOptions.
func (e *CostError) Is(target error) bool { return target == ErrOptions }

// useCosts reads the costs that the spec asks for.
func (r *Run) useCosts(ctx context.Context, s *Spec, p Planning) error {
	switch {
	case s.Cost == "" && s.CostGroup == 0 && s.MicroBatches == 0:
		return nil
	case s.MicroBatches < 0 || s.MicroBatches > maxMicroBatches:
		return optionsError{fmt.Errorf("%d micro-batches: give 1 to %d, or 0 for one", s.MicroBatches, maxMicroBatches)}
	case s.Cost == "" && s.MicroBatches == 1:
		return nil
	case s.Cost == "" && s.MicroBatches > 0:
		return optionsError{fmt.Errorf("%d micro-batches whose costs are balanced, and no cost: give one", s.MicroBatches)}
	case s.Cost == "":
		return optionsError{fmt.Errorf("groups of %d ranks that balance costs, and no cost: give one", s.CostGroup)}
	case s.CostGroup < 0:
		return optionsError{fmt.Errorf("groups of %d ranks: give a number of ranks, or 0 for all", s.CostGroup)}
	}
	expr, err := cost.Parse(s.Cost)
	if err != nil {
		return optionsError{err}
	}
	c := &costs{expr: expr, group: s.CostGroup, micro: max(s.MicroBatches, 1),
		of: make([][]uint64, len(r.inputs)), has: make([]bool, len(r.inputs))}
	sum := sha256.New()
	for i, in := range r.inputs {
		if in.Dataset == nil || in.share == 0 && r.info().Units.Kind != "" {
			continue
		}
		c.of[i], err = c.read(ctx, in, &p)
		if _, none := errors.AsType[*CostError](err); none && in.share == 0 {
			continue // it gives nothing, unless weights are set later
		}
		if err != nil {
			return in.failed(err)
		}
		c.has[i] = true
		fmt.Fprintf(sum, "%d %d %s\n", i, len(c.of[i]), expr.Text)
		hashCosts(sum, c.of[i])
	}
	sum.Sum(c.sum[:0])
	r.costs = c
	return nil
}

// read returns the costs of a source's samples, or nil where the length of a piece is the only
// value.
func (c *costs) read(ctx context.Context, in *input, p *Planning) ([]uint64, error) {
	u := in.unit.params
	switch {
	case slices.Equal(c.expr.Names, []string{u.By}):
		return nil, nil
	case u.Long == units.LongSplit || u.Long == units.LongTruncate:
		return nil, &CostError{c.expr.Text, "", fmt.Errorf("long samples are cut, and a piece has no %q of its own: "+
			"name %q alone, or leave long samples out", c.expr.Names, u.By)}
	}
	return in.costs(ctx, c.expr, p)
}

func hashCosts(h hash.Hash, costs []uint64) {
	buf := make([]byte, 0, 1<<14)
	for part := range slices.Chunk(costs, cap(buf)/8) {
		buf = buf[:0]
		for _, x := range part {
			buf = binary.LittleEndian.AppendUint64(buf, x)
		}
		h.Write(buf)
	}
}

// bytes is the memory of the costs.
func (c *costs) bytes() (n int64) {
	if c != nil {
		for _, of := range c.of {
			n += 8 * int64(len(of))
		}
	}
	return n
}

// ranks returns how many of some ranks share their entries: 1 without costs. global is the size of
// their batches, or 0 for any.
func (c *costs) ranks(world, global int) (int, error) {
	switch {
	case c == nil:
		return 1, nil
	case global > 0 && c.micro > 1 && global/c.micro < world:
		return 0, optionsError{fmt.Errorf("%d micro-batches of each of %d ranks, of a batch of %d: some would be empty: "+
			"give fewer, or a larger batch", c.micro, world, global)}
	case world == 1:
		return 1, nil
	case c.group == 0:
		return world, nil
	case world%c.group != 0:
		return 0, optionsError{fmt.Errorf("groups of %d ranks that balance costs: %d ranks are no whole number of them",
			c.group, world)}
	}
	return c.group, nil
}

// costs returns the cost of every sample, by number in storage order, from a folder if the costs
// are kept there.
func (d *Dataset) costs(ctx context.Context, expr *cost.Expr, p *Planning) ([]uint64, error) {
	have := d.integers()
	for _, name := range expr.Names {
		if !slices.Contains(have, name) {
			return nil, &CostError{expr.Text, name,
				fmt.Errorf("%v has no integer attribute %q, it has %q: pack it with this "+
					"attribute, or add a layer that has it", d.Store(), name, have)}
		}
	}
	from := kept.Keeper{Folder: kept.Folder(p.Folder), Log: p.Log}
	names := []string{"shardtool costs", expr.Text, d.catalog.Name, d.selection.ID()}
	for _, name := range expr.Names {
		of := d.owner(name)
		names = append(names, format.DigestString(of.Digest()), of.catalog.Name)
	}
	key, size := kept.KeyOf(names...), 8*int64(d.tables.Samples)
	if text := from.Folder.Get("costs", key, size); int64(len(text)) == size && size > 0 {
		out := make([]uint64, d.tables.Samples)
		for i := range out {
			out[i] = binary.LittleEndian.Uint64(text[8*i:])
		}
		return out, nil
	}
	out := make([]uint64, d.tables.Samples)
	const indexes = 8 // an index is one request
	each := func(first, end uint64, columns []metadata.AttrColumn) error {
		return d.shardCosts(ctx, expr, first, columns, out[first:end])
	}
	err := d.eachColumns(ctx, expr.Names, max(d.opts.Workers, indexes), each)
	if err != nil || from.Folder == "" {
		return out, err
	}
	text := make([]byte, 0, size)
	for _, x := range out {
		text = binary.LittleEndian.AppendUint64(text, x)
	}
	from.Put("costs", key, text)
	return out, nil
}

// shardCosts is costs of one shard. A sample that is outside the view in use, or was removed, may
// lack a value: it then costs nothing. A removed sample that has all values keeps its cost.
func (d *Dataset) shardCosts(ctx context.Context, expr *cost.Expr, first uint64, columns []metadata.AttrColumn,
	out []uint64) error {
	values := make([]int64, len(columns))
	for i := range out {
		var err error
		missing := ""
		for k := range columns {
			c := &columns[k]
			var v format.AttrValue
			has := false
			if c.Name != "" && c.Kind == format.AttrInteger {
				v, has = c.At(i)
			}
			if values[k] = v.Integer; !has && missing == "" {
				missing = expr.Names[k]
			}
		}
		number := first + uint64(i)
		if missing == "" {
			if out[i], err = expr.Cost(values); err == nil {
				continue
			}
		}
		if d.Removed(number) || !d.selection.Has(number) {
			continue
		}
		if missing != "" {
			err := fmt.Errorf("sample %d has no value of attribute %q: make a layer with one, or leave such samples out",
				number, missing)
			return &CostError{expr.Text, missing, d.placed(ctx, number, err)}
		}
		text := ""
		for k, name := range expr.Names {
			text += fmt.Sprintf("%s %q is %d", []string{" where", ","}[min(k, 1)], name, values[k])
		}
		err = fmt.Errorf("sample %d has no cost: %w%s", number, err, text)
		return &CostError{expr.Text, "", d.placed(ctx, number, err)}
	}
	return nil
}
