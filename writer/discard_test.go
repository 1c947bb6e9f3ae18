package writer_test

import (
	"strings"

	"github.com/shardtool/shardtool/objstore/storetest"
)

// discard keeps the sizes of shards, and the bytes of everything else.
type discard = storetest.Discard

func newDiscard() *discard {
	return storetest.NewDiscard(func(name string) bool { return strings.Contains(name, ".tar") })
}
