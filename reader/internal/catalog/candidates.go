package catalog

import (
	"context"

	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// Candidates returns the shards whose range of keys has room for a key. known is false where that
// takes more than one part of the tables and all is false.
func (c *Catalog) Candidates(ctx context.Context, key string, all bool) (shards []int, known bool, err error) {
	for part, p := range c.Tables.Parts {
		info, ok := c.infos.peek(part)
		if !ok && len(c.Tables.Parts) > 1 && !all {
			return nil, false, nil
		}
		if !ok {
			if info, err = c.Part(ctx, part); err != nil {
				return nil, false, err
			}
		}
		for i := range info.Shards {
			if s := &info.Shards[i]; s.Samples > 0 && s.FirstKey <= key && key <= s.LastKey {
				shards = append(shards, int(p.FirstShard)+i)
			}
		}
	}
	return shards, true, nil
}

// SearchTable reads the entries of the keys table around a hash: the groups that Guess names, and
// their neighbours for as long as the hash could be there too.
func (c *Catalog) SearchTable(ctx context.Context, hash uint64) (entries []samplekey.Entry, err error) {
	table := samplekey.Table{Entries: c.Tables.Samples}
	from, to := table.Guess(hash)
	step := max(to-from, 1)
	for {
		if entries, err = c.KeyGroups(ctx, nil, from, to); err != nil {
			return nil, err
		}
		below := from > 0 && (len(entries) == 0 || entries[0].Hash >= hash)
		above := to < table.Groups() && (len(entries) == 0 || entries[len(entries)-1].Hash <= hash)
		if !below && !above {
			return entries, nil
		}
		if below {
			from = max(0, from-step)
		}
		if above {
			to = min(table.Groups(), to+step)
		}
		step *= 2
	}
}
