package writer

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/shardtool/shardtool/internal/kinds"
	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/internal/viewfile"
	"github.com/shardtool/shardtool/objstore"
)

// NameLeft is a place that a purge does not change and that may name a purged sample, its class or
// one of its labels.
type NameLeft struct {
	Object string `json:"object"`
	// Member is the part of the object; empty for all of it.
	Member string `json:"member,omitempty"`
}

// namesLeft lists the places beside the shards that may name purged samples: the names of classes,
// whose order gives classes their numbers; lists of skipped samples; and how views were made.
func namesLeft(ctx context.Context, store objstore.Store, tables string) (left []NameLeft, err error) {
	m, err := loadManifest(ctx, store, tables)
	if err != nil || len(m.Purged) == 0 {
		return []NameLeft{}, err
	}
	left = []NameLeft{}
	if m.Meta["classes"] != "" {
		left = append(left, NameLeft{tables, "classes"})
	}
	if strings.Contains(m.Meta[kinds.FeaturesKey], "ClassLabel") {
		left = append(left, NameLeft{tables, kinds.FeaturesKey})
	}
	for _, list := range skippedLists(m) {
		left = append(left, NameLeft{Object: list})
	}
	for info, err := range store.List(ctx, names.LabelFolder) {
		if err != nil {
			return nil, err
		}
		if _, ok := names.ParseLabel(info.Name); !ok {
			continue
		}
		text, _, err := objstore.ReadAll(ctx, store, info.Name, viewfile.MaxLabel)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, objstore.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if label, err := viewfile.DecodeLabel(text); err == nil && label.Made["where"] != "" {
			left = append(left, NameLeft{info.Name, "made.where"})
		}
	}
	return left, nil
}
