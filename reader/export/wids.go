package export

import (
	"fmt"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// wids reads only the name field of a member's header, as UTF-8: neither the prefix nor the records
// of longer names. It reads sizes in octal digits.
const (
	widsName = 100
	widsSize = 1<<33 - 1
)

// widsNames rejects samples whose names or sizes wids would read wrong.
func widsNames(ix *metadata.ShardIndex) error {
	at := ix.Cursors([]int{0})[0]
	var fields []format.FieldSize
	for _, key := range ix.Keys.All() {
		fields = at.Fields(fields[:0])
		if key == "" { // removed
			continue
		}
		for _, f := range fields {
			name := format.JoinName(key, f.Name)
			switch {
			case len(name) > widsName:
				return fmt.Errorf("%w: sample %q: the member name %q has %d bytes, and wids reads %d: pack the data set again with shorter keys or fields",
					ErrName, key, name, len(name), widsName)
			case !utf8.ValidString(name):
				return fmt.Errorf("%w: sample %q: the member name %q is not UTF-8, and wids reads nothing else: pack the data set again with other names", ErrName, key, name)
			case f.Size > widsSize:
				return fmt.Errorf("%w: sample %q: field %q has %d bytes, and wids reads sizes below 8 GiB", ErrName,
					key, f.Name, f.Size)
			}
		}
	}
	return nil
}
