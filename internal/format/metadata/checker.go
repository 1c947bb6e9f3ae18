package metadata

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// BlockChecker compares the decoded bytes of a block with the index of its shard. It is for one
// goroutine.
type BlockChecker interface {
	// Write takes the next bytes of the block.
	Write(p []byte) error
	// End reports whether the block was complete.
	End() error
}

// NewBlockChecker returns a checker for the block that begins at a cursor and has that many
// samples. It compares headers and padding to the last bit; payloads are not compared. Of a foreign
// archive it compares names, sizes and where payloads lie. The cursor does not move.
func NewBlockChecker(at FieldCursor, samples int) BlockChecker {
	if at.ix.Layout != nil {
		return &rowChecker{ix: at.ix, first: at.Sample, n: samples}
	}
	at.at = slices.Clone(at.at)
	if !at.ix.Foreign {
		return &contentChecker{cur: at, end: at.Sample + samples}
	}
	c := &foreignChecker{ix: at.ix, cur: at, end: at.Sample + samples, left: map[string]int{}}
	for _, n := range at.at {
		c.member += n
	}
	return c
}

// contentChecker is the BlockChecker of a shard of ours.
type contentChecker struct {
	cur     FieldCursor
	end     int    // sample after the block's last
	field   int    // of the current sample
	header  []byte // of the current member: what is left to compare
	buf     []byte // memory of header
	payload int64  // bytes of payload left
	pad     int64  // bytes of padding left
	off     int64
}

func (c *contentChecker) Write(p []byte) error {
	for len(p) > 0 {
		if len(c.header) == 0 && c.payload == 0 && c.pad == 0 && !c.begin() {
			return c.fail(damage.Errorf("%d bytes after the block's last sample", len(p)))
		}
		n := min(len(p), len(c.header))
		if !bytes.Equal(p[:n], c.header[:n]) {
			return c.fail(damage.Errorf("tar header differs from the index"))
		}
		c.header = c.header[n:]
		p = c.skip(p, n)
		n = int(min(int64(len(p)), c.payload))
		c.payload -= int64(n)
		p = c.skip(p, n)
		if c.payload > 0 {
			continue
		}
		n = int(min(int64(len(p)), c.pad))
		if len(c.header) == 0 {
			if !damage.AllZero(p[:n]) {
				return c.fail(damage.Errorf("padding is not zero"))
			}
			c.pad -= int64(n)
			p = c.skip(p, n)
		}
	}
	return nil
}

func (c *contentChecker) skip(p []byte, n int) []byte {
	c.off += int64(n)
	return p[n:]
}

// begin begins the next member, or returns false at the end of the block.
func (c *contentChecker) begin() bool {
	if c.cur.Sample < c.end && c.field == len(c.cur.ix.Shape(c.cur.Sample)) {
		c.cur.next()
		c.field = 0
	}
	if c.cur.Sample >= c.end {
		return false
	}
	ix := c.cur.ix
	f := ix.Shape(c.cur.Sample)[c.field]
	size := int64(ix.Sizes[f].At(c.cur.at[f]))
	c.buf = tarblock.AppendHeader(c.buf[:0], format.JoinName(ix.Keys.At(c.cur.Sample), ix.Fields[f]), size)
	c.header = c.buf
	c.payload, c.pad = size, tarblock.Padding(size)
	c.field++
	return true
}

func (c *contentChecker) End() error {
	if len(c.header) > 0 || c.payload > 0 || c.pad > 0 || c.begin() {
		return c.fail(damage.Errorf("block ends before its last sample"))
	}
	return nil
}

func (c *contentChecker) fail(err error) error { return c.cur.ix.fail(c.cur.Sample, c.off, err) }

// fail is the error of a block at an offset, in a sample.
func (ix *ShardIndex) fail(sample int, off int64, err error) error {
	key := ""
	if sample < ix.Keys.Len() {
		key = ix.Keys.At(sample)
	}
	return damage.InSample(key, fmt.Errorf("%w (offset %d in the decoded block)", err, off))
}

// foreignChecker is the BlockChecker of a foreign archive.
type foreignChecker struct {
	ix     *ShardIndex
	cur    FieldCursor
	end    int            // sample after the block's last
	member int            // first member of the sample, in the index
	left   map[string]int // fields of the sample not met yet: their place among its members
	sizes  []format.FieldSize
	head   []byte
	skip   int64 // payload and padding left
	off    int64
}

func (c *foreignChecker) Write(p []byte) error {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, int64(len(p)))
			c.skip, c.off, p = c.skip-n, c.off+n, p[n:]
			continue
		}
		e, need, err := tarblock.ReadForeignEntry(c.head)
		if err != nil {
			return c.fail(err)
		}
		if need > 0 {
			n := min(need-len(c.head), len(p))
			c.head, p = append(c.head, p[:n]...), p[n:]
			if e, need, err = tarblock.ReadForeignEntry(c.head); err != nil {
				return c.fail(err)
			}
		}
		if need > 0 {
			continue
		}
		if err := c.entry(&e); err != nil {
			return c.fail(err)
		}
	}
	return nil
}

// entry compares an entry whose headers are complete.
func (c *foreignChecker) entry(e *tarblock.ForeignEntry) error {
	payload := c.off + e.Payload
	c.off, c.skip = payload, e.Size+tarblock.Padding(e.Size)
	defer func() { c.head = c.head[:0] }()
	if e.Type != '0' {
		if e.Type == 0 {
			return damage.Errorf("the archive ends inside the block")
		}
		return nil
	}
	key, field := format.SplitName(e.Name)
	if len(c.left) == 0 {
		if c.cur.Sample >= c.end {
			return damage.Errorf("a member after the block's last sample")
		}
		c.member += len(c.sizes)
		if string(key) != c.ix.Keys.At(c.cur.Sample) {
			return damage.Errorf("sample %q, the index says %q", key, c.ix.Keys.At(c.cur.Sample))
		}
		c.sizes = c.cur.Fields(c.sizes[:0])
		for i, f := range c.sizes {
			c.left[f.Name] = i
		}
	} else if string(key) != c.ix.Keys.At(c.cur.Sample-1) {
		return damage.Errorf("sample %q ends before all of its members", c.ix.Keys.At(c.cur.Sample-1))
	}
	i, ok := c.left[string(field)]
	if !ok || c.sizes[i].Size != e.Size || c.ix.Gaps == nil || c.ix.Gaps[c.member+i] != uint64(payload) {
		return damage.Errorf("field %q of %d bytes at %d is not what the index says", field, e.Size, payload)
	}
	delete(c.left, string(field))
	return nil
}

func (c *foreignChecker) End() error {
	if c.skip > 0 || len(c.head) > 0 || len(c.left) > 0 || c.cur.Sample < c.end {
		return c.fail(damage.Errorf("block ends before its last sample"))
	}
	return nil
}

func (c *foreignChecker) fail(err error) error { return c.ix.fail(max(c.cur.Sample-1, 0), c.off, err) }

// rowChecker is the BlockChecker of a stacked shard.
type rowChecker struct {
	ix    *ShardIndex
	first int
	n     int
	buf   []byte
}

func (c *rowChecker) Write(p []byte) error {
	if len(c.buf)+len(p) > format.MaxFrame {
		return damage.Errorf("a stacked block of more than %d bytes", int64(format.MaxFrame))
	}
	c.buf = append(c.buf, p...)
	return nil
}

func (c *rowChecker) End() error {
	var b stacked.Block
	numbered := c.ix.Keys.Ranges() != nil
	if err := stacked.OpenBlock(&b, c.buf, c.ix.Layout, uint64(c.first), c.n, numbered); err != nil || numbered {
		return err
	}
	for k := range c.n {
		if want := c.ix.Keys.At(c.first + k); string(b.Key(k)) != want {
			return damage.InSample(want, damage.Errorf("sample %d of the block has the key %q", k, b.Key(k)))
		}
	}
	return nil
}
