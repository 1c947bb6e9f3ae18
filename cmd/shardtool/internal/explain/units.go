package explain

import (
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Units describes what positions of a step hold, if they hold packed sequences or micro-batches.
// The step then lists the samples of each unit, or their pieces, one after another. All samples of
// a unit have the same position.
type Units struct {
	Kind   units.Kind `json:"kind"`
	Size   uint32     `json:"size"`
	Tokens uint64     `json:"tokens"`
	Fill   float64    `json:"fill"` // share of the room that has tokens
	room   uint64
}

// piece is the part of a sample that a unit has. Row counts the units of the rank in the step from
// 0: it is the row of a batch of sequences.
type piece struct {
	// With units: the row of the batch; the piece of the sample.
	Row    *int    `json:"row,omitempty"`
	Offset *uint32 `json:"offset,omitempty"`
	Length *uint32 `json:"length,omitempty"`
}

// cut adds the units of a batch to a step, with the piece of a sample that each reference has. rows
// are the rows of the units.
func (s *Step) cut(refs []order.Ref, b *order.Batch, p units.Params, rows []int) {
	cuts := b.Cuts
	if cuts == nil {
		return
	}
	s.Units = &Units{Kind: p.Kind, Size: p.Size}
	for i := 0; i < len(refs); {
		unit, count, longest := cuts[i].Unit, uint64(0), uint64(0)
		for ; i < len(refs) && cuts[i].Unit == unit; i++ {
			s.Samples[i].Row = new(rows[unit])
			s.Samples[i].Offset, s.Samples[i].Length = new(cuts[i].Offset), new(cuts[i].Length)
			if n := uint64(cuts[i].Length); !refs[i].Padding {
				count, longest, s.Units.Tokens = count+1, max(longest, n), s.Units.Tokens+n
			}
		}
		switch {
		case count == 0:
		case p.Kind == units.Bucket:
			s.Units.room += count * longest
		default:
			s.Units.room += uint64(p.Size)
		}
	}
	s.Units.Fill = mix.Part(s.Units.Tokens, s.Units.room)
}
