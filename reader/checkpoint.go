package reader

import (
	"github.com/shardtool/shardtool/reader/ledger"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
)

// Checkpoint returns the place after the last batch that Next returned, whatever has been read
// ahead. Ranks at the same step have the same place. SkipHash and Skipped are those of this rank;
// ledger.Merge unites them. That of a mix is AppendCheckpoint alone.
func (s *Stream) Checkpoint() (order.Checkpoint, error) {
	return s.checkpoint(s.place.epoch, s.place.position, s.skippedMark())
}

// Checkpoint returns the place after this batch: a stream opened with it delivers what follows.
func (b *Batch) Checkpoint() (order.Checkpoint, error) {
	return b.s.checkpoint(b.NextEpoch, b.NextPosition, b.skipped)
}

func (s *Stream) checkpoint(epoch, position uint64, skipped ledger.Mark) (order.Checkpoint, error) {
	if s.mix != nil {
		return order.Checkpoint{}, errMixed
	}
	in := s.inputs[0]
	from := in.plan.Checkpoint
	if in.units != nil {
		from = in.units.Checkpoint
	}
	cp, err := from(epoch, position)
	if err != nil {
		return cp, err
	}
	cp.GlobalBatch, cp.Tables = s.split.GlobalBatch, in.catalog.Name
	cp.SkipHash, cp.Skipped = skipped.Hash, skipped.Samples
	return cp, nil
}

// AppendCheckpoint appends the text of the checkpoint to dst, of a data set or a mix:
// order.DecodeCheckpoint or mix.DecodeCheckpoint decodes it.
func (s *Stream) AppendCheckpoint(dst []byte) ([]byte, error) {
	return s.appendCheckpoint(dst, s.place.epoch, s.place.position, s.skippedMark())
}

// AppendCheckpoint appends the text of the checkpoint after this batch to dst, of a data set or a
// mix.
func (b *Batch) AppendCheckpoint(dst []byte) ([]byte, error) {
	return b.s.appendCheckpoint(dst, b.NextEpoch, b.NextPosition, b.skipped)
}

func (s *Stream) appendCheckpoint(dst []byte, epoch, position uint64, skipped ledger.Mark) ([]byte, error) {
	if s.mix == nil {
		c, err := s.checkpoint(epoch, position, skipped)
		if err != nil {
			return dst, err
		}
		return order.AppendCheckpoint(dst, c)
	}
	c, err := s.mix.checkpoint(position, skipped)
	if err != nil {
		return dst, err
	}
	return mix.AppendCheckpoint(dst, c)
}
