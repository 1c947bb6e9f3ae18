package writer

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sections"
)

// seal completes a shard whose blocks are written: it numbers the samples, adds their keys to those
// of the keys table, and writes the index. The putter calls it for each shard in order, while the
// emitter writes the blocks of the next one: at 200 bytes a sample it takes as long as a third of
// them. Until the putter has ended, keys, numbers and entries of the totals belong to it; the
// emitter uses them for adopted shards alone, which precede all others.
func (e *emitter) seal(s *openShard) error {
	err := e.index(s)
	if err != nil {
		_ = s.abort() // the first failure is reported
	}
	return err
}

func (e *emitter) index(s *openShard) error {
	before := s.size
	ix := s.index.Finish(nil)
	if l := e.plan.opt.Layout; l == LayoutStacked || l == LayoutAuto || ix.Layout != nil {
		ix.NumberKeys()
	}
	if err := e.sum.shardKeys(&ix.Keys); err != nil {
		return format.InShard(s.name, err)
	}
	s.hasher.AddKeys(ix.Layout, ix.Keys.Ranges())
	hash := s.hasher.Sum()
	ix.Meta = e.plan.shardMeta(hash, s.end)
	ix.Skipped = s.notes
	first, last := ix.Keys.Ends()
	err := s.write(sections.EndOfArchive(e.plan.opt.Plain))
	var tail []byte
	if err == nil {
		tail, err = sections.AppendTail(nil, ix, e.plan.opt.Plain)
	}
	if e.plan.opt.Plain {
		s.sidecar = tail
	} else if err == nil {
		err = s.write(tail)
	}
	if err != nil {
		return format.Place{Shard: s.name, Block: -1, Offset: s.size}.Wrap(err)
	}
	s.rows = ix.Rows
	e.sum.entries = append(e.sum.entries, sections.ShardEntry{
		ShardInfo: sections.ShardInfo{
			Name: s.name, Size: uint64(s.size), Tail: uint64(len(tail)), Samples: s.samples, Blocks: uint64(s.blocks),
			Rows: uint64(len(ix.Rows)), Hash: hash, Index: sections.HashIndex(tail), FirstKey: first, LastKey: last, Layout: ix.Layout, Numbered: ix.Keys.Ranges(),
		},
		Rows: ix.Rows,
	})
	e.indexes.Add(s.size - before + int64(len(s.sidecar)))
	return nil
}
