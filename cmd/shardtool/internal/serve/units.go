package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/sequences"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
)

// UnitRequest asks for units, see package units.
type UnitRequest struct {
	Kind   units.Kind `json:"kind"`
	Size   uint32     `json:"size"`
	By     string     `json:"by"`
	Long   units.Long `json:"long"`
	Window uint32     `json:"window"`
	// Plans is the folder of plans; "" is the default of the command line, "none" keeps none.
	Plans string `json:"plans"`
	// Fields are the fields of sequences, which are delivered as rows of tokens instead of columns of
	// samples.
	Fields []sequences.Field `json:"fields"`
}

// Packs reports whether sequences are asked for.
func (q *UnitRequest) Packs() bool { return q.kind() == units.Pack }

// kind is the kind that is asked for; "" for samples.
func (q *UnitRequest) kind() units.Kind {
	if q == nil {
		return ""
	}
	return q.Kind
}

// unitColumns are the columns of a batch of units that no sample has. They follow the columns of
// START.
type unitColumns struct {
	sequences *sequences.Layout // nil for micro-batches
	tokens    int               // fields of sequences
	made      []column
	length    int
}

// newUnitColumns returns nil if positions hold samples: then there are no such columns. columns is
// the number of columns that START asks for.
func newUnitColumns(q *UnitRequest, columns int, s *reader.Stream) (*unitColumns, error) {
	p := s.Info().Units
	if q.kind() != p.Kind {
		return nil, configf("the stream has units of kind %s: ask for them, as the run did that made the checkpoint",
			p.Kind)
	}
	if q == nil {
		return nil, nil
	}
	u := &unitColumns{length: int(p.Size)}
	if p.Kind == units.Bucket {
		return u, nil
	}
	if columns > 0 {
		return nil, configf("packed sequences have their own fields, and no columns of samples")
	}
	var err error
	u.sequences, err = sequences.New(u.length, q.Fields)
	u.tokens = len(q.Fields)
	return u, err
}

// gather finds what the columns of a batch hold, and checks it.
func (p *parcel) gather(ctx context.Context, s *reader.Stream, b *reader.Batch) error {
	p.columns.made = p.columns.made[:len(p.columns.wanted)] // without those that no sample has
	if p.columns.inRows {
		p.columns.gatherRows(b)
	} else if err := p.columns.gather(b.Samples); err != nil {
		return err
	}
	if p.micro > 1 {
		p.columns.made = append(p.columns.made, p.beginnings(b))
	}
	more, err := p.units.gather(ctx, s, b)
	p.columns.made = append(p.columns.made, more...)
	return err
}

// beginnings makes the column of where each micro-batch of a rank begins and ends in the samples of
// a batch, or in its units.
func (p *parcel) beginnings(b *reader.Batch) column {
	return wholeColumn("<i4", []int{p.micro + 1}, 4*(p.micro+1), func(dst []byte) {
		for i := range p.micro + 1 {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(b.MicroBatch(i)))
		}
	})
}

// started tells the length of the epoch, and where a mix ends.
func (u *unitColumns) started(ctx context.Context, s *reader.Stream, out *Started) (err error) {
	if u != nil {
		out.Units, out.End, err = s.Extent(ctx, nil)
	}
	return err
}

// gather makes the columns.
func (u *unitColumns) gather(ctx context.Context, s *reader.Stream, b *reader.Batch) ([]column, error) {
	if u == nil {
		return nil, nil
	}
	u.made = u.made[:0]
	if u.sequences != nil {
		if err := u.rows(b); err != nil {
			return nil, err
		}
	} else {
		u.samples(b)
	}
	next, err := b.Of, error(nil)
	if b.NextEpoch != b.Epoch {
		next, _, err = s.Extent(ctx, b)
	}
	u.add("<i8", []int{2}, func(dst []byte) {
		binary.LittleEndian.PutUint64(dst, b.Of)
		binary.LittleEndian.PutUint64(dst[8:], next)
	})
	return u.made, err
}

// rows makes the columns of packed sequences: the fields, position_ids, document, cu_seqlens,
// max_seqlen and fill.
func (u *unitColumns) rows(b *reader.Batch) error {
	q := u.sequences
	if err := q.Set(b); err != nil {
		if of, ok := errors.AsType[*sequences.FieldError](err); ok {
			return &decodeError{0, of.Number, of.Key, of.Field, of.Err}
		}
		return err
	}
	shape := []int{q.Rows(), u.length}
	for i := range u.tokens {
		u.addSized(q.Descr(i), shape, q.Size(i), func(dst []byte) { q.Tokens(i, dst) })
	}
	u.add("<i4", shape, q.Positions)
	u.add("<i4", shape, q.Documents)
	u.add("<i4", []int{len(q.Boundaries())}, func(dst []byte) {
		for i, v := range q.Boundaries() {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(v))
		}
	})
	u.add("<i8", []int{}, func(dst []byte) { binary.LittleEndian.PutUint64(dst, uint64(q.Longest())) })
	u.add("<f8", []int{}, func(dst []byte) { binary.LittleEndian.PutUint64(dst, math.Float64bits(q.Fill())) })
	return nil
}

// samples makes the columns of micro-batches: the length of each sample, and where each micro-batch
// begins and ends in the samples.
func (u *unitColumns) samples(b *reader.Batch) {
	u.add("<i4", []int{len(b.Samples)}, func(dst []byte) {
		for i := range b.Samples {
			binary.LittleEndian.PutUint32(dst[4*i:], b.Cut(i).Length)
		}
	})
	u.add("<i4", []int{b.Units + 1}, func(dst []byte) {
		unit := 0
		for i := range b.Samples {
			for ; unit <= int(b.Cut(i).Unit); unit++ {
				binary.LittleEndian.PutUint32(dst[4*unit:], uint32(i))
			}
		}
		for ; unit <= b.Units; unit++ {
			binary.LittleEndian.PutUint32(dst[4*unit:], uint32(len(b.Samples)))
		}
	})
}

// add adds a column of items of 4 or 8 bytes.
func (u *unitColumns) add(descr string, shape []int, fill func([]byte)) {
	size := int(descr[2] - '0')
	for _, n := range shape {
		size *= n
	}
	u.addSized(descr, shape, size, fill)
}

func (u *unitColumns) addSized(descr string, shape []int, size int, fill func([]byte)) {
	u.made = append(u.made, wholeColumn(descr, shape, size, fill))
}

func wholeColumn(descr string, shape []int, size int, fill func([]byte)) column {
	return column{kind: columnWhole, typ: arrayType{Dtype: descr, Shape: shape}.json(), whole: size, fill: fill}
}
