package httpstore

import (
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// StatsOf returns the counters of a store that New returned. Stat counts as a request too.
func StatsOf(s objstore.Store) ranged.Stats { return s.(*store).Reader.Stats() }
