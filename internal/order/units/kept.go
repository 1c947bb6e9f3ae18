package units

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/shardtool/shardtool/reader/order"
)

// Key returns the key by which the plan of an epoch is kept. It is a hash of everything that the
// plan depends on: the lengths, the table of blocks, and the parameters of the order and the units.
func (u *Units) Key(epoch uint64) [sha256.Size]byte {
	p := u.order.Params()
	h := sha256.New()
	fmt.Fprintf(h, "shardtool plan %s\x00%s\x00%s\x00", order.Algorithm, order.UnitsAlgorithm, u.Hash())
	u.order.HashTable(h)
	fmt.Fprintf(h, "%d %v %d %d %d %d %s\x00", p.Seed, p.Shuffle, p.Lanes, p.RunBlocks, p.Delay, p.Head, p.Affinity)
	fmt.Fprintf(h, "%s %d %s %d\x00%d", u.params.Kind, u.params.Size, u.params.Long, u.params.Window, epoch)
	return [sha256.Size]byte(h.Sum(nil))
}

// AppendPlan appends a plan to dst in the form that DecodePlan reads: the units of each window as
// varints, lane by lane.
func AppendPlan(dst []byte, p *Plan) []byte {
	for i := range p.Windows() {
		dst = binary.AppendUvarint(dst, p.before[i+1]-p.before[i])
	}
	return dst
}

// DecodePlan reads the plan of an epoch that AppendPlan has written. Text of another plan is
// refused, unless it has as many windows; the caller compares the Key.
func (u *Units) DecodePlan(epoch uint64, src []byte) (*Plan, error) {
	if epoch >= order.MaxEpochs {
		return nil, errPlan
	}
	p, err := u.emptyPlan(uint32(epoch))
	if err != nil {
		return nil, err
	}
	if uint64(len(src)) < p.first[len(p.first)-1] { // a byte for each window at least
		return nil, errPlan
	}
	p.before = make([]uint64, p.first[len(p.first)-1]+1)
	for i := range p.Windows() {
		units, n := binary.Uvarint(src)
		if n <= 0 || units > maxItems {
			return nil, errPlan
		}
		p.before[i], src = units, src[n:]
	}
	if len(src) > 0 {
		return nil, errPlan
	}
	return p, p.accumulate()
}

// MaxPlan bounds the bytes of a plan that DecodePlan reads.
func (u *Units) MaxPlan() int64 {
	p, err := u.emptyPlan(0)
	if err != nil {
		return 0
	}
	return int64(p.first[len(p.first)-1]) * binary.MaxVarintLen32
}
