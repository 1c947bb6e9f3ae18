package writer

import (
	"context"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// Leftovers returns the names of the shards that an unfinished pack, or one that is running, put
// for the generation after the current one. name is Options.Name.
func Leftovers(ctx context.Context, store objstore.Store, name string) ([]string, error) {
	var prior current
	if _, err := prior.read(ctx, store); err != nil {
		return nil, err
	}
	prefix := shardPrefix(name, prior.next())
	all, err := listPresent(ctx, store, prefix)
	if err != nil {
		return nil, err
	}
	var named []objstore.Info
	for _, object := range all.names() {
		if m := names.Shards.FindStringSubmatch(object); m != nil && m[1] == strings.TrimSuffix(prefix, "-") {
			named = append(named, all[object])
		}
	}
	var left []string
	err = eachWritten(ctx, store, named, func(info objstore.Info, wrote bool) {
		if wrote {
			left = append(left, info.Name)
		}
	})
	return left, err
}

// discardLeftovers deletes what Leftovers returns, for a pack that overwrites and does not resume.
func discardLeftovers(ctx context.Context, store objstore.Store, p *plan) error {
	if left, err := Leftovers(ctx, store, p.opt.Name); err != nil || len(left) == 0 {
		return err
	}
	if exclude := objstore.TraitsOf(store).Exclude; exclude != nil {
		release, err := exclude(ctx, p.who())
		if err != nil {
			return fmt.Errorf("the shards of another pack cannot be replaced while it runs: %w", err)
		}
		defer release()
	}
	left, err := Leftovers(ctx, store, p.opt.Name) // that pack may have published meanwhile
	if err != nil {
		return err
	}
	refused, err := deleteAll(ctx, store, left, nil)
	if err == nil {
		err = notDeleted(refused)
	}
	if err != nil {
		return fmt.Errorf("what an unfinished pack left cannot be replaced: continue that pack, pack to another place, "+
			"or pack again when these objects may be deleted: %w", err)
	}
	return nil
}
