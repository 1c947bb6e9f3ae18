package curate

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/where"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// where evaluates the expression, shard by shard and column by column.
func (m *maker) where(ctx context.Context) ([]byte, error) {
	e, err := where.ParseAll(m.spec.Where)
	if err != nil {
		return nil, specf("%w", err)
	}
	if e == nil {
		return all(m.d.NumSamples()), nil
	}
	q := &query{expr: e, known: make([]bool, len(e.Conditions)), labels: map[string]map[string]bool{}}
	if err := q.bind(m.d.Info().Attributes); err != nil {
		return nil, err
	}
	chosen := make([]byte, (m.d.NumSamples()+7)/8)
	err = m.eachShard(ctx, q.names, func(first uint64, columns []metadata.AttrColumn, samples int) error {
		bits := q.eval(columns, samples)
		q.mu.Lock()
		defer q.mu.Unlock()
		put(chosen, bits, first, samples)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return chosen, q.unknown()
}

// eachShard calls f with columns of every shard, on several goroutines.
func (m *maker) eachShard(ctx context.Context, names []string,
	f func(first uint64, columns []metadata.AttrColumn, samples int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range m.d.NumShards() {
		g.Go(func() error {
			info, err := m.d.Shard(ctx, i)
			if err != nil {
				return err
			}
			first, err := m.d.FirstSample(ctx, i)
			if err != nil {
				return err
			}
			columns, err := m.d.Columns(ctx, i, names)
			if err != nil {
				return err
			}
			return f(first, columns, int(info.Samples))
		})
	}
	return g.Wait()
}

// put sets the bits of n samples from number first on.
func put(to []byte, bits []uint64, first uint64, n int) {
	for i := 0; i < n; i += 8 {
		b := byte(bits[i/64] >> (i % 64))
		at := first + uint64(i)
		to[at/8] |= b << (at % 8)
		if rest := b >> (8 - at%8); rest != 0 {
			to[at/8+1] |= rest
		}
	}
}

// query is an expression bound to the attributes of a data set.
type query struct {
	expr  *where.Expr
	names []string // of the attributes in it
	conds []bound

	mu     sync.Mutex
	known  []bool                     // by condition: a sample has the label that it names
	labels map[string]map[string]bool // by attribute: those seen, for errors
}

// bound is a condition on an attribute.
type bound struct {
	*where.Condition
	format.Attribute
	column int // in names
	number where.Number
}

func (q *query) bind(attributes []format.Attribute) error {
	for i := range q.expr.Conditions {
		b := bound{Condition: &q.expr.Conditions[i]}
		at := slices.IndexFunc(attributes, func(a format.Attribute) bool { return a.Name == b.Column })
		if at < 0 {
			return specf("%w", b.Errorf("%s", noAttribute(attributes, b.Column)))
		}
		b.Attribute = attributes[at]
		if b.Kind != format.AttrLabel && !b.Nulls() {
			var ok bool
			if b.number, ok = where.ParseNumber(b.Word); !ok {
				if strings.ContainsAny(b.Word, "&|") {
					return specf("%w", b.WordErrorf("&& and || are no operators: write `and` and `or`"))
				}
				return specf("%w", b.WordErrorf("the attribute %s holds %v values: compare it with a number", b.Name,
					b.Kind))
			}
		}
		if _, number := b.Condition.Number(); b.Kind == format.AttrLabel && b.Orders() && number {
			return specf("%w", b.Letters(fmt.Sprintf("the attribute %s holds text", b.Name)))
		}
		if b.column = slices.Index(q.names, b.Name); b.column < 0 {
			b.column = len(q.names)
			q.names = append(q.names, b.Name)
		}
		q.conds = append(q.conds, b)
	}
	return nil
}

// noAttribute lists the attributes that exist.
func noAttribute(attributes []format.Attribute, name string) string {
	var names []string
	for _, a := range attributes {
		names = append(names, a.Name)
	}
	if names == nil {
		return "the data set has no attributes to choose by: pack it again with --attr NAME=COLUMN (in Python, attrs=), or add them as a layer"
	}
	text := "there is no attribute " + strconv.Quote(name)
	if near := nearest(names, name); near != "" {
		text += ": did you mean " + near + "?"
	} else {
		text += "."
	}
	return text + " There are: " + strings.Join(names, ", ")
}

// eval returns a bit for each of the samples of a shard.
func (q *query) eval(columns []metadata.AttrColumn, samples int) []uint64 {
	return q.expr.Bits((samples+63)/64, func(i int, into []uint64) {
		b := &q.conds[i]
		c := &columns[b.column]
		if c.Name == "" { // the shard does not have the attribute
			if b.Op == "is null" {
				fill(into, samples)
			}
			return
		}
		values, absent := c.Raw()
		switch {
		case b.Nulls():
			if absent == nil {
				if b.Op == "is not null" {
					fill(into, samples)
				}
				return
			}
			for i := range samples {
				if (absent[i/8]>>(i%8)&1 != 0) == (b.Op == "is null") {
					into[i/64] |= 1 << (i % 64)
				}
			}
			return
		case b.Kind == format.AttrLabel:
			q.evalLabel(i, c, values, into)
		default:
			for i, x := range values {
				order, ordered := 0, false
				if b.Kind == format.AttrInteger {
					order, ordered = b.number.CompareInt(int64(x>>1) ^ -int64(x&1))
				} else {
					order, ordered = b.number.CompareFloat(math.Float64frombits(x))
				}
				if b.Holds(false, order, ordered) {
					into[i/64] |= 1 << (i % 64)
				}
			}
		}
		for i, x := range absent { // no comparison holds for null
			into[i/8] &^= uint64(x) << (i % 8 * 8)
		}
	})
}

// evalLabel compares the labels once, and then their numbers.
func (q *query) evalLabel(i int, c *metadata.AttrColumn, values []uint64, into []uint64) {
	b := &q.conds[i]
	labels := c.Labels()
	holds := make([]bool, len(labels)+1)
	for k, label := range labels {
		holds[k] = b.Holds(false, strings.Compare(label, b.Word), true)
	}
	for i, x := range values {
		if holds[min(x, uint64(len(labels)))] { // an absent value has a number beyond them
			into[i/64] |= 1 << (i % 64)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, found := slices.BinarySearch(labels, b.Word); found {
		q.known[i] = true
		return
	}
	seen := q.labels[b.Name]
	if seen == nil {
		seen = map[string]bool{}
		q.labels[b.Name] = seen
	}
	for _, label := range labels {
		if len(seen) < 10_000 {
			seen[label] = true
		}
	}
}

// unknown refuses labels that no sample has: they are mistyped.
func (q *query) unknown() error {
	for i := range q.conds {
		b := &q.conds[i]
		if b.Kind != format.AttrLabel || q.known[i] || b.Op != "=" && b.Op != "!=" {
			continue
		}
		var labels []string
		for label := range q.labels[b.Name] {
			labels = append(labels, label)
		}
		slices.Sort(labels)
		text := "no sample has this " + b.Name
		if near := nearest(labels, b.Word); near != "" {
			text += ": did you mean " + strconv.Quote(near) + "?"
		}
		return specf("%w", b.WordErrorf("%s", text))
	}
	return nil
}

// fill sets the bits of n samples.
func fill(into []uint64, n int) {
	for i := range into {
		into[i] = math.MaxUint64
	}
	if n%64 != 0 {
		into[len(into)-1] = 1<<(n%64) - 1
	}
}

// nearest is the name that is written most like another one; empty if none is.
func nearest(names []string, name string) (best string) {
	least := max(len(name)/2, 1) + 1
	for _, n := range names {
		if len(n) > 100 || len(name) > 100 {
			continue
		}
		if d := distance(bytes.ToLower([]byte(n)), bytes.ToLower([]byte(name))); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance: how many bytes have to be inserted, removed or replaced.
func distance(a, b []byte) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			next := diagonal
			if x != y {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
