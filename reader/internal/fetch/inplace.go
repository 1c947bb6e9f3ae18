package fetch

import (
	"context"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/mapped"
)

// InPlace are blocks that are used where the page cache has them.
type InPlace struct {
	mapped.Blocks
	objects *objects
	handle  *handle
}

// Release ends the use of the blocks. Release of nil does nothing.
func (p *InPlace) Release() {
	if p != nil {
		p.objects.unpin(p.handle)
	}
}

// InPlace runs open on the bytes of a job's blocks where the page cache has them, once they were
// checked, and returns the blocks, which are to be released. It returns nil where they have to be
// read: the store is not local, a block is compressed or damaged, or too many objects are in use.
func (w *Worker) InPlace(ctx context.Context, j *Job, open func(decoded []byte) error) *InPlace {
	s := j.Shard
	if s.Source.Remote() || s.Unchecked {
		return nil
	}
	for _, r := range s.Rows[j.From:j.To] {
		if r.Codec != format.CodecBytes || r.Decoded != r.Stored {
			return nil
		}
	}
	w.Account.At(account.Reading)
	h, err := s.Source.open(ctx, s)
	if err != nil {
		return nil
	}
	o := s.Source.objects
	file := o.pin(h, s.Rows)
	if file == nil {
		o.release(h)
		return nil
	}
	w.Account.At(account.Decoding)
	p := &InPlace{mapped.Blocks{File: file, Rows: s.Rows[j.From:j.To], From: j.From, Block: j.Block, Offset: j.Offset}, o, h}
	if !p.Usable(open) {
		p.Release()
		return nil
	}
	return p
}

// pin maps the object of a handle that the caller uses, for a shard with these rows. It keeps the
// use until unpin; without a result the caller keeps it.
func (o *objects) pin(h *handle, rows []format.Row) *mapped.File {
	object, ok := h.Object.(objstore.Mapper)
	if !ok {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.pins == 0 && o.pinned >= min(o.most/2, maxPinned()) {
		return nil
	}
	if h.mapped == nil || !h.mapped.Has(rows) || h.mapped.Changed() {
		file, err := mapped.Open(h.Name, object, rows)
		if err != nil {
			return nil
		}
		h.mapped = file
	}
	if h.pins++; h.pins == 1 {
		o.pinned++
	}
	return h.mapped
}

// unpin ends a use that pin kept.
func (o *objects) unpin(h *handle) {
	o.mu.Lock()
	if h.pins--; h.pins == 0 {
		o.pinned--
	}
	o.mu.Unlock()
	o.release(h)
}
