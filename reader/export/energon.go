package export

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// energonNames rejects names that Energon would skip or cannot index (megatron-energon 7.4.1,
// megatron/energon/flavors/webdataset). It divides names at the first dot after the last slash, as
// the data set does. That keys differ is for energon prepare to find, which also repairs it.
func energonNames(ix *metadata.ShardIndex) error {
	for s := range members(ix) {
		if err := energonName(s.key, s.fields); err != nil {
			return err
		}
	}
	return nil
}

func energonName(key string, fields []format.FieldSize) error {
	switch {
	case strings.HasPrefix(key, "__") && strings.Contains(strings.SplitAfterN(key, "/", 2)[0], "__/"):
		return fmt.Errorf("%w: key %q begins with a folder that Energon skips: pack the data set again with other keys",
			ErrName, key)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %q is not UTF-8, and Energon reads nothing else: pack the data set again with other keys", ErrName, key)
	}
	for _, f := range fields {
		if !utf8.ValidString(f.Name) {
			return fmt.Errorf("%w: sample %q: field %q is not UTF-8, and Energon reads nothing else: pack the data set again with other names", ErrName, key, f.Name)
		}
	}
	return nil
}
