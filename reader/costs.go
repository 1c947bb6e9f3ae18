package reader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/cost"
	"github.com/shardtool/shardtool/internal/kept"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

// costs are what the samples of a run cost. They decide which rank gets an entry of a global batch,
// and nothing else (ORDER.md, "Costs").
type costs struct {
	expr  *cost.Expr
	group int        // ranks that share their entries; 0: all
	of    [][]uint64 // by source and number of the sample; nil where the length of a piece is the only value
	has   []bool     // by source: whether its costs are known; a source without weight may have none
	sum   [sha256.Size]byte
}

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
	case s.Cost == "" && s.CostGroup == 0:
		return nil
	case s.Cost == "":
		return optionsError{fmt.Errorf("groups of %d ranks that balance costs, and no cost: give one", s.CostGroup)}
	case s.CostGroup < 0:
		return optionsError{fmt.Errorf("groups of %d ranks: give a number of ranks, or 0 for all", s.CostGroup)}
	}
	expr, err := cost.Parse(s.Cost)
	if err != nil {
		return optionsError{err}
	}
	c := &costs{expr: expr, group: s.CostGroup, of: make([][]uint64, len(r.inputs)), has: make([]bool, len(r.inputs))}
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

// ranks returns how many of some ranks share their entries: 1 without costs.
func (c *costs) ranks(world int) (int, error) {
	switch {
	case c == nil || world == 1:
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
	each := func(first, end uint64, columns []sections.AttrColumn) error {
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
func (d *Dataset) shardCosts(ctx context.Context, expr *cost.Expr, first uint64, columns []sections.AttrColumn,
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

// dealing is the memory of a batch that is dealt out.
type dealing struct {
	dealer cost.Dealer
	spent  []uint64 // by entry
	counts []int
	ranks  []int32 // by entry
}

// deal returns the rank of each entry of a group's part of a batch, counted from the first rank of
// the group.
func (c *costs) deal(d *dealing, refs []order.Ref, b *order.Batch, cuts []order.Cut, world, first,
	group int) ([]int32, error) {
	d.spent, d.counts = d.spent[:0], d.counts[:0]
	real := 0
	for i := range refs {
		r := &refs[i]
		begins := cuts == nil || i == 0 || cuts[i].Unit != cuts[i-1].Unit
		if begins {
			d.spent = append(d.spent, 0)
		}
		if r.Padding { // it is at the end
			continue
		}
		real = len(d.spent)
		spent := &d.spent[real-1]
		if cuts == nil {
			*spent = c.of[r.Source][r.Number]
			continue
		}
		more, err := c.piece(r, &cuts[i])
		if *spent += more; err == nil && *spent >= cost.Limit {
			err = errors.New("its samples cost 2^47 or more together")
		}
		if err != nil {
			return nil, &CostError{c.expr.Text, "", fmt.Errorf("a unit of the batch at epoch %d, position %d: %w",
				b.Epoch,
				b.Position, err)}
		}
	}
	listed := uint64(b.Global)
	for rank := first; rank < first+group; rank++ {
		d.counts = append(d.counts, int(order.Share(listed, rank+1, world)-order.Share(listed, rank, world)))
	}
	d.ranks = d.dealer.Deal(d.ranks[:0], d.spent, real, d.counts)
	return d.ranks, nil
}

// piece returns the cost of a sample in a unit, or of a piece of it.
func (c *costs) piece(r *order.Ref, cut *order.Cut) (uint64, error) {
	if of := c.of[r.Source]; of != nil {
		return of[r.Number], nil
	}
	return c.expr.Cost([]int64{int64(cut.Length)})
}

// dealer is a cursor over one rank's part of batches that are dealt out by costs. It lists the
// entries of all ranks of a group, and keeps those of its rank.
type dealer struct {
	batches
	costs *costs
	slots []slots // by source
	dealing
	list           []order.Ref // of the group
	before         []int32     // references of the rank before each reference of the group
	entries        []uint32
	cuts           []order.Cut
	opened, closed []order.Span
}

// slots are the spans of a source that are open in the group's part, by serial number from first
// on. The rank opens one when it first needs it, and numbers those that it opens.
type slots struct {
	first, last uint64 // last is the serial number that the rank gave last
	open        []slot
}

type slot struct {
	order.Span
	own    uint64 // the rank's serial number; 0 until it needs the span
	closed bool
}

// deals returns a cursor that deals the batches of another one out to ranks, or the other one if
// there is nothing to deal.
func (r *Run) deals(of batches, world int) (batches, error) {
	group, err := r.costs.ranks(world)
	if err != nil || group == 1 {
		return of, err
	}
	d := &dealer{batches: of, costs: r.costs, slots: make([]slots, len(r.inputs))}
	for i := range d.slots {
		d.slots[i].first = 1 // serial numbers count from 1
	}
	return d, nil
}

// NextBatch implements batches.
func (d *dealer) NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error) {
	group, err := d.costs.ranks(s.World)
	if err != nil {
		return dst, order.Batch{}, err
	}
	rank, world := s.Rank, s.World
	first := rank - rank%group
	s.Rank, s.World = s.Rank/group, s.World/group
	list, b, err := d.batches.NextBatch(d.list[:0], s)
	if err != nil {
		return dst, b, err
	}
	d.list = list
	ranks, err := d.costs.deal(&d.dealing, list, &b, b.Cuts, world, first, group)
	if err != nil {
		return dst, b, err
	}
	for i := range b.Opened {
		of := &d.slots[b.Opened[i].Source]
		of.open = append(of.open, slot{Span: b.Opened[i]})
	}
	dst = d.take(dst, &b, ranks, int32(rank-first))
	d.close(&b)
	return dst, b, nil
}

// take appends the references of a rank, of those listed for its group.
func (d *dealer) take(dst []order.Ref, b *order.Batch, ranks []int32, rank int32) []order.Ref {
	from := len(dst)
	d.before, d.entries, d.cuts, d.opened = d.before[:0], d.entries[:0], d.cuts[:0], d.opened[:0]
	entry := -1 // of the group
	for i := range d.list {
		begins := b.Cuts == nil || i == 0 || b.Cuts[i].Unit != b.Cuts[i-1].Unit
		if begins {
			entry++
		}
		d.before = append(d.before, int32(len(dst)-from))
		if ranks[entry] != rank {
			continue
		}
		if begins {
			d.entries = append(d.entries, uint32(b.First+entry))
		}
		if b.Cuts != nil {
			cut := b.Cuts[i]
			cut.Unit = uint32(len(d.entries) - 1)
			d.cuts = append(d.cuts, cut)
		}
		r := d.list[i]
		if !r.Padding {
			r.Slot = d.open(&r, len(dst)-from)
		}
		dst = append(dst, r)
	}
	d.before = append(d.before, int32(len(dst)-from))
	if b.Cuts != nil {
		b.Cuts = d.cuts
	}
	if b.Entries = d.entries; len(d.entries) > 0 {
		b.First = int(d.entries[0])
	}
	return dst
}

// open returns the rank's serial number of the span of a reference, which it opens if need be.
func (d *dealer) open(r *order.Ref, place int) uint64 {
	of := &d.slots[r.Source]
	at := &of.open[r.Slot-of.first]
	if at.own == 0 {
		of.last++
		at.own = of.last
		span := at.Span
		span.Slot, span.Place = at.own, place
		d.opened = append(d.opened, span)
	}
	return at.own
}

// close closes the spans that the group closes, if the rank has opened them.
func (d *dealer) close(b *order.Batch) {
	d.closed = d.closed[:0]
	for i := range b.Closed {
		span := b.Closed[i]
		of := &d.slots[span.Source]
		at := &of.open[span.Slot-of.first]
		if at.closed = true; at.own != 0 {
			place := min(span.Place, len(d.list)) // of units, places count otherwise
			span.Slot, span.Place = at.own, int(d.before[place])
			d.closed = append(d.closed, span)
		}
		for len(of.open) > 0 && of.open[0].closed {
			of.open, of.first = of.open[1:], of.first+1
		}
	}
	b.Opened, b.Closed = d.opened, d.closed
}

// Ranks returns the rank that gets each entry of a global batch: each sample, or unit where
// positions hold units. refs and b are what a cursor over all ranks listed, one with a World of 1.
func (r *Run) Ranks(refs []order.Ref, b *order.Batch, world int) ([]int32, error) {
	var d dealing
	entries := make([]int32, 0, b.Global)
	if r.costs == nil || world == 1 {
		for rank := range world {
			n := order.Share(uint64(b.Global), rank+1, world) - order.Share(uint64(b.Global), rank, world)
			entries = append(entries, slices.Repeat([]int32{int32(rank)}, int(n))...)
		}
		return entries, nil
	}
	group, err := r.costs.ranks(world)
	if err != nil {
		return nil, err
	}
	at := 0 // reference
	for first := 0; first < world; first += group {
		end, to := int(order.Share(uint64(b.Global), first+group, world)), at
		for to < len(refs) && (b.Cuts == nil && to < end || b.Cuts != nil && int(b.Cuts[to].Unit) < end) {
			to++
		}
		var cuts []order.Cut
		if b.Cuts != nil {
			cuts = b.Cuts[at:to]
		}
		ranks, err := r.costs.deal(&d, refs[at:to], b, cuts, world, first, group)
		if err != nil {
			return nil, err
		}
		for _, rank := range ranks {
			entries = append(entries, rank+int32(first))
		}
		at = to
	}
	return entries, nil
}

// Spread is how far the costliest rank of a step is above the mean of its ranks, as their ratio:
// the mean over steps, and the largest.
type Spread struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

func (s *Spread) add(x float64) {
	s.Mean, s.Most = s.Mean+x, max(s.Most, x)
}

// Balance is how the costs of steps are divided among ranks.
type Balance struct {
	Cost  string `json:"cost"` // the expression
	World int    `json:"world_size"`
	Group int    `json:"cost_group"` // ranks that share their entries
	Steps uint64 `json:"steps"`
	// Without is for ranks that get consecutive entries, as they do without costs, and With is for the
	// ranks of the run. No division comes below Bound: the rank that has the costliest entry has at
	// least the cheapest ones beside it.
	Without Spread `json:"without"`
	With    Spread `json:"with"`
	Bound   Spread `json:"bound"`
}

// Balance measures the balance of the steps of an epoch, from where the run begins, or of fewer
// that have about most samples or units. It returns nil without costs.
func (r *Run) Balance(ctx context.Context, globalBatch, world int, most uint64) (*Balance, error) {
	if r.costs == nil {
		return nil, nil
	}
	group, err := r.costs.ranks(world)
	if err != nil {
		return nil, err
	}
	c, err := r.seek(ctx, r.begin)
	if err != nil {
		return nil, optionsError{err}
	}
	epoch, err := r.length(ctx, r.begin.Epoch)
	if err != nil {
		return nil, err
	}
	if r.end > 0 {
		c.Until(r.end)
	}
	out := &Balance{Cost: r.costs.expr.Text, World: world, Group: group}
	var refs []order.Ref
	for done := uint64(0); done < min(most, epoch); done += uint64(globalBatch) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var b order.Batch
		refs, b, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: globalBatch, World: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.weigh(out, refs, &b, world, group)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, s := range []*Spread{&out.Without, &out.With, &out.Bound} {
		s.Mean /= float64(max(out.Steps, 1))
	}
	return out, nil
}

// weigh adds a batch to the balance.
func (r *Run) weigh(out *Balance, refs []order.Ref, b *order.Batch, world, group int) error {
	ranks, err := r.Ranks(refs, b, world)
	if err != nil {
		return err
	}
	var d dealing
	if _, err := r.costs.deal(&d, refs, b, b.Cuts, 1, 0, 1); err != nil { // for the costs of all entries
		return err
	}
	var all cost.Sum
	with, without := make([]cost.Sum, world), make([]cost.Sum, world)
	rank := 0
	for i, x := range d.spent {
		for uint64(i) >= order.Share(uint64(b.Global), rank+1, world) {
			rank++
		}
		all.Add(x)
		with[ranks[i]].Add(x)
		without[rank].Add(x)
	}
	mean := all.Float() / float64(world)
	if mean == 0 {
		return nil
	}
	bound := 1.
	for first := 0; first < world; first += group {
		from, to := order.Share(uint64(b.Global), first, world), order.Share(uint64(b.Global), first+group, world)
		if part := d.spent[from:to]; len(part) > 0 {
			rest := float64((to - from) / uint64(group))
			var sum cost.Sum
			for _, x := range part {
				sum.Add(x)
			}
			least := float64(slices.Max(part)) + max(rest-1, 0)*float64(slices.Min(part))
			bound = max(bound, sum.Float()/float64(group)/mean, least/cost.One/mean)
		}
	}
	out.Steps++
	out.With.add(slices.MaxFunc(with, cost.Sum.Compare).Float() / mean)
	out.Without.add(slices.MaxFunc(without, cost.Sum.Compare).Float() / mean)
	out.Bound.add(bound)
	return nil
}
