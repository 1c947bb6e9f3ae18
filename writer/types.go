package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// MetaTypes is the key of META that has the types of fields: a JSON object from names to the words
// by which the Python package decodes payloads (SPEC 4.6).
const MetaTypes = "types"

// learner is a Source that knows more of the data set's metadata once all samples were read. What
// it returns takes precedence over Meta.
type learner interface{ Learned() format.Metadata }

// learn takes the metadata that the samples have brought.
func (w *Writer) learn(src Source) {
	if l, ok := src.(learner); ok {
		meta := maps.Clone(w.meta)
		if meta == nil {
			meta = format.Metadata{}
		}
		maps.Copy(meta, l.Learned())
		w.meta = meta
	}
}

// Types returns the types of fields that the current generation of a data set records, nil for
// none, and its number of samples. Where there is no data set it returns nil and 0.
func Types(ctx context.Context, store objstore.Store) (types map[string]string, samples int64, err error) {
	meta, sum, err := currentMeta(ctx, store)
	if err != nil {
		return nil, 0, err
	}
	types, err = typesOf(meta, sum.Tables)
	return types, int64(sum.Samples), err
}

// Stacked reports whether the current generation of a data set has stacked shards, so that its
// readers read them. Where there is no data set or no sample it does not know: known is false.
func Stacked(ctx context.Context, store objstore.Store) (stacked, known bool, err error) {
	sum, _, err := loadSummary(ctx, store)
	if errors.Is(err, fs.ErrNotExist) || err == nil && sum.Samples == 0 {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	t, closeTables, err := loadTables(ctx, store, sum.Tables)
	if err != nil {
		return false, false, err
	}
	defer closeTables()
	return t.Minor() > 0, true, nil
}

// typesOf parses the types of META of an object.
func typesOf(meta format.Metadata, object string) (map[string]string, error) {
	text, ok := meta[MetaTypes]
	if !ok {
		return nil, nil
	}
	var types map[string]string
	if err := json.Unmarshal([]byte(text), &types); err != nil {
		return nil, fmt.Errorf("%w: metadata %s of %s: %w", format.ErrCorrupt, MetaTypes, object, err)
	}
	return types, nil
}
