package units

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/shardtool/shardtool/reader/order"
)

// Hash returns the hash of all lengths that checkpoints and plans carry: the first 32 hex digits of
// SHA-256 over the lengths as little-endian u32, in storage order.
func (u *Units) Hash() string {
	u.hash.Do(func() {
		h := sha256.New()
		buf := make([]byte, 0, 1<<14)
		for _, n := range u.lengths {
			if buf = binary.LittleEndian.AppendUint32(buf, n); len(buf) == cap(buf) {
				h.Write(buf)
				buf = buf[:0]
			}
		}
		h.Write(buf)
		u.hashed = hex.EncodeToString(h.Sum(nil)[:16])
	})
	return u.hashed
}

// ParamsOf returns the parameters that a checkpoint of units has.
func ParamsOf(m *order.UnitMark) Params {
	if m == nil {
		return Params{}
	}
	return Params{Kind: Kind(m.Kind), Size: m.Size, Long: Long(m.Long), Window: m.Window, By: m.By}
}

// Checkpoint returns the checkpoint of a place, which counts units as a batch does. GlobalBatch,
// Tables and the ledger are left for the caller to fill in.
func (u *Units) Checkpoint(epoch, position uint64) (order.Checkpoint, error) {
	c, err := u.order.Checkpoint(epoch, 0)
	c.Position = position
	p := u.params
	c.Units = &order.UnitMark{Kind: string(p.Kind), Size: p.Size, Long: string(p.Long), Window: p.Window, By: p.By,
		Lengths: u.Hash()}
	return c, err
}

// Fits returns an *order.MismatchError when the checkpoint does not name a place in these units.
func (u *Units) Fits(c *order.Checkpoint) error {
	m := c.Units
	if m == nil {
		return &order.MismatchError{Field: "units", Checkpoint: "none", Given: string(u.params.Kind)}
	}
	samples := *c
	samples.Units = nil
	if err := samples.Fits(u.order); err != nil {
		return err
	}
	if err := ParamsOf(m).Compare(u.params); err != nil {
		return err
	}
	if m.Lengths != u.Hash() {
		return &order.MismatchError{Field: "units: lengths", Checkpoint: m.Lengths, Given: u.Hash()}
	}
	return nil
}
