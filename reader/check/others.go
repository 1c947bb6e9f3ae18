package check

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Names of a pack in parts (SPEC 6.5), whose first element parts and shards share.
var (
	partObject = regexp.MustCompile(`^part-(.+)-[0-9]{4,}-of-[0-9]{4,}\.bin$`)
	partShard  = regexp.MustCompile(`^(.+)-p[0-9]{4,}-[0-9]{6,}\.`)
)

// objects counts objects that belong to no shard.
type objects struct {
	count, size int64
	first       string
}

func (o *objects) add(name string, size int64) {
	if o.count++; o.count == 1 {
		o.first = name
	}
	o.size += size
}

// others notes objects that readers of this generation do not open: no faults, since older
// generations, packs in parts and unfinished packs leave them.
func (v *verifier) others(ctx context.Context) {
	known, packs := v.known(ctx)
	var rest, keys, parts objects
	for info, err := range v.c.Source.Store.List(ctx, "") {
		if err != nil {
			if ctx.Err() == nil {
				v.note("objects that belong to nothing were not looked for: " + err.Error())
			}
			return
		}
		part := partObject.FindStringSubmatch(info.Name)
		switch _, label := names.ParseLabel(info.Name); {
		case known[info.Name] || label || names.IsView(info.Name) || strings.HasPrefix(info.Name, names.LayerFolder):
		case part != nil && packs[part[1]]:
			parts.add(info.Name, info.Size)
		case names.IsKeys(info.Name):
			keys.add(info.Name, info.Size)
		default:
			rest.add(info.Name, info.Size)
		}
	}
	if parts.count > 0 {
		if keys.count <= parts.count { // a part has one, or none
			parts.count, parts.size, keys = parts.count+keys.count, parts.size+keys.size, objects{}
		}
		v.note(fmt.Sprintf("%d objects of %d bytes are records of the parts that this generation was packed in (%s is the first): no "+
			"reader needs them, a part that is packed again finds there that it is complete, and prune deletes them",
			parts.count, parts.size, parts.first))
	}
	if keys.count > 0 {
		rest = objects{rest.count + keys.count, rest.size + keys.size, keys.first}
	}
	if rest.count > 0 {
		v.note(fmt.Sprintf("%d objects of %d bytes belong to no shard of this generation (%s is the first): other generations, or "+
			"what an interrupted pack left", rest.count, rest.size, rest.first))
	}
}

// known returns the objects of this generation, and the names of the packs in parts that its shards
// are of.
func (v *verifier) known(ctx context.Context) (known, packs map[string]bool) {
	known = map[string]bool{format.ManifestName: true, v.c.Name: true, v.c.KeysTable(): true}
	packs = map[string]bool{}
	for _, list := range strings.Fields(v.c.Tables.Meta["skipped_list"]) {
		known[list] = true
	}
	v.eachShard(ctx, func(s *fetch.Shard) bool {
		index, _ := catalog.IndexObject(s.ShardInfo)
		known[s.Name], known[index] = true, true
		if m := partShard.FindStringSubmatch(s.Name); m != nil {
			packs[m[1]] = true
		}
		return true
	})
	return known, packs
}
