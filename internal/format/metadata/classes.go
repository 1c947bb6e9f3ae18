package metadata

import (
	"encoding/json"
	"fmt"

	"github.com/shardtool/shardtool/format"
)

// Classes returns the names of the classes that the metadata of a data set or of a source has, in the
// order of their numbers; nil where it has none.
func Classes(meta format.Metadata) (classes []string, err error) {
	if text := meta["classes"]; text != "" {
		if err := json.Unmarshal([]byte(text), &classes); err != nil {
			return nil, fmt.Errorf("%w: metadata classes: %w", format.ErrCorrupt, err)
		}
	}
	return classes, nil
}
