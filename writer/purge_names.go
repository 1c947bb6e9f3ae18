package writer

import (
	"context"
	"errors"
	"strings"

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore"
)

// NameLeft is a place that a purge does not change and that may name a purged sample, its class or
// one of its labels. Member is the part of the object, and empty for all of it.
type NameLeft struct {
	Object string `json:"object"`
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
	for _, list := range skippedLists(&m.Totals) {
		left = append(left, NameLeft{Object: list})
	}
	err = labels(ctx, store, func(name string, text []byte, err error) error {
		if errors.Is(err, objstore.ErrTooLarge) {
			return nil
		}
		if label, bad := viewfile.DecodeLabel(text); err == nil && bad == nil && label.Made["where"] != "" {
			left = append(left, NameLeft{name, "made.where"})
		}
		return err
	})
	return left, err
}
