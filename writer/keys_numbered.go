package writer

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// keysTable puts the keys table of a generation where one is needed, and returns its hash: none is
// where all keys are numbered, nor after a generation that lacks one though its keys are not.
func (w *Writer) keysTable(ctx context.Context, m *metadata.Manifest) (format.Hash, error) {
	base := w.base()
	has := base != nil && base.Keys != (format.Hash{})
	if base != nil && !has && !allNumbered(base.Shards) {
		return format.Hash{}, nil
	}
	if !has && allNumbered(m.Shards) {
		if w.opt.KeepDuplicates {
			return format.Hash{}, nil
		}
		return format.Hash{}, distinct(m)
	}
	if !w.sum.numbered {
		known := func(shard int) bool {
			return has && shard < len(base.Shards) || w.sum.tabled[m.Shards[shard].Name]
		}
		if err := w.sum.numberedKeys(m.Shards, known); err != nil {
			return format.Hash{}, err
		}
		w.sum.numbered = true
	}
	return w.putKeys(ctx, m)
}

// distinct refuses a key that two samples have, where all keys are numbered. The keys of removed
// samples are free.
func distinct(m *metadata.Manifest) error {
	var all samplekey.Ranges
	first := uint64(0)
	for i := range m.Shards {
		s := &m.Shards[i]
		at := first
		for _, r := range s.Numbered {
			all = append(all, without(r, at, metadata.Within(m.Removed, at, at+r.Count))...)
			at += r.Count
		}
		first += s.Samples
	}
	if key, shared := all.Shared(); shared {
		return fmt.Errorf("%w %q: two samples have it: rename one", ErrDuplicateKey, key)
	}
	return nil
}

// without returns the keys of a range without some samples. The range begins with the key of sample
// number first.
func without(r samplekey.Range, first uint64, numbers []uint64) (rs samplekey.Ranges) {
	from := uint64(0)
	cut := func(to uint64) {
		if to > from {
			rs = append(rs, samplekey.Range{Prefix: r.Prefix, First: r.First + from, Digits: r.Digits,
				Count: to - from})
		}
		from = to + 1
	}
	for _, n := range numbers {
		cut(n - first)
	}
	cut(r.Count)
	return rs
}
