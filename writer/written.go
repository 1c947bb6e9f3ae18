package writer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/sys/ahead"
	"github.com/shardtool/shardtool/objstore"
)

// maxProof bounds what is read of an object beyond its index to see who put it. Larger objects are
// recognized by their structure alone.
const maxProof = 16 << 20

// written reports whether an object's own content shows that a Writer put it under this name. A
// name alone proves nothing: people keep archives and copies of shards beside a data set.
func written(ctx context.Context, store objstore.Store, info objstore.Info) (bool, error) {
	var ok bool
	var err error
	name := info.Name
	switch archive, _, sidecar := names.ParseSidecar(name); {
	case sidecar:
		ok, err = writtenSidecar(ctx, store, info, archive)
	case names.Parts.MatchString(name):
		ok, err = writtenPart(ctx, store, name)
	case names.IsTables(name):
		if _, err = loadTotals(ctx, store, name); err == nil {
			ok, err = hashed(ctx, store, info, names.Tables)
		}
	case names.IsKeys(name):
		if ok, err = isKeys(ctx, store, info); ok {
			ok, err = hashed(ctx, store, info, names.Keys)
		}
	case names.IsSkipped(name):
		if ok, err = isList(ctx, store, info); ok {
			ok, err = hashed(ctx, store, info, names.Skipped)
		}
	case names.IsView(name):
		ok, err = proven(ctx, store, info, func(data []byte) (bool, error) {
			_, err := viewfile.Head(data)
			return err == nil, err
		})
	default:
		ok, err = writtenShard(ctx, store, info)
	}
	if err != nil && notOurs(err) {
		return false, nil
	}
	return ok && err == nil, err
}

// eachWritten calls f for objects, in their order, with what written says of them. Of a store on a
// network it reads several at once.
func eachWritten(ctx context.Context, store objstore.Store, all []objstore.Info,
	f func(info objstore.Info, wrote bool)) error {
	type found struct {
		objstore.Info
		wrote bool
		err   error
	}
	atOnce := min(objstore.TraitsOf(store).Requests, writtenAtOnce)
	for o := range ahead.Each(ctx, slices.Values(all), atOnce, func(ctx context.Context, info objstore.Info) found {
		wrote, err := written(ctx, store, info)
		return found{info, wrote, err}
	}) {
		if o.err != nil {
			return o.err
		}
		f(o.Info, o.wrote)
	}
	return ctx.Err()
}

// writtenAtOnce is how many objects are looked at at once: each may be an index with many keys, or
// as large as maxProof.
const writtenAtOnce = 8

// notOurs reports whether err means that an object is missing or is not what its name promises.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion)
}

// proven reports whether the bytes of an object prove who put it. It assumes so if the object is
// too large to be read.
func proven(ctx context.Context, store objstore.Store, info objstore.Info,
	proof func(data []byte) (bool, error)) (bool, error) {
	if info.Size > maxProof {
		return true, nil
	}
	data, _, err := objstore.ReadAll(ctx, store, info.Name, maxProof)
	if err != nil {
		return false, err
	}
	return proof(data)
}

// hashed reports whether an object's name is the hash of its bytes.
func hashed(ctx context.Context, store objstore.Store, info objstore.Info,
	nameOf func(hash [32]byte) string) (bool, error) {
	return proven(ctx, store, info,
		func(data []byte) (bool, error) { return nameOf(format.BlockHash(data)) == info.Name, nil })
}

// isKeys reports whether an object has the header of a keys table of its length.
func isKeys(ctx context.Context, store objstore.Store, info objstore.Info) (bool, error) {
	head, err := readFront(ctx, store, info, samplekey.HeaderLen)
	if err != nil {
		return false, err
	}
	table, err := samplekey.ParseHeader(head)
	return err == nil && table.Size() == info.Size, err
}

// isList reports whether the first line of an object is one of a list of skipped samples (SPEC
// 6.4).
func isList(ctx context.Context, store objstore.Store, info objstore.Info) (bool, error) {
	head, err := readFront(ctx, store, info, maxBlockList)
	if err != nil {
		return false, err
	}
	line, _, whole := bytes.Cut(head, []byte("\n"))
	var said struct {
		Reason *string `json:"reason"`
		More   *int64  `json:"more"`
	}
	return whole && json.Unmarshal(line, &said) == nil && (said.Reason != nil || said.More != nil), nil
}

func readFront(ctx context.Context, store objstore.Store, info objstore.Info, most int64) ([]byte, error) {
	obj, err := store.Open(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	head := make([]byte, min(most, info.Size))
	return head, obj.ReadAt(ctx, head, 0)
}

// provenance is what the options in metadata contain of the names of shards and parts.
type provenance struct {
	Name  string `json:"name"`
	Parts int    `json:"parts"`
}

func provenanceOf(meta format.Metadata) (p provenance, ok bool) {
	return p, json.Unmarshal([]byte(meta["options"]), &p) == nil && p.Name != ""
}

// writtenPart compares the name of a part's manifest with its content.
func writtenPart(ctx context.Context, store objstore.Store, name string) (bool, error) {
	t, err := loadTotals(ctx, store, name)
	if err != nil {
		return false, err
	}
	from, ok := provenanceOf(t.Meta)
	part, err := strconv.Atoi(t.Meta["part"])
	return ok && err == nil && partObject(from.Name, t.Generation, part, from.Parts) == name, nil
}

// writtenSidecar reads the sidecar of a foreign archive, which names the archive and has its own
// hash in its name.
func writtenSidecar(ctx context.Context, store objstore.Store, info objstore.Info, archive string) (bool, error) {
	ix, tail, err := loadIndex(ctx, store, info.Name)
	if err != nil || !tail.Foreign || ix.Meta[metaArchive] != archive {
		return false, err
	}
	return hashed(ctx, store, info, func(h [32]byte) string { return names.Sidecar(archive, [8]byte(h[:8])) })
}

// shardNumber matches what follows the name of a data set in the names of its shards.
var shardNumber = regexp.MustCompile(`^(-v[0-9]{4,})?(-p[0-9]{4,})?-[0-9]{6,}(-x[0-9a-f]{16})?\.tar(\.zst|\.shidx)?$`)

// writtenShard reads the index of a shard or of its sidecar. A plain archive is the one that the
// index describes if its length and its first frame match.
func writtenShard(ctx context.Context, store objstore.Store, info objstore.Info) (bool, error) {
	index := info.Name
	if !strings.HasSuffix(index, format.SidecarSuffix) {
		index = (&metadata.ShardInfo{Name: index}).IndexObject()
	}
	ix, tail, err := loadIndex(ctx, store, index)
	if err != nil {
		return false, err
	}
	from, ok := provenanceOf(ix.Meta)
	rest, named := strings.CutPrefix(info.Name, from.Name)
	if !ok || !named || !shardNumber.MatchString(rest) || tail.Foreign || ix.Meta["content"] == "" {
		return false, nil
	}
	if index == info.Name {
		return true, nil
	}
	if uint64(info.Size) != tail.DataSize || len(ix.Rows) == 0 {
		return false, nil
	}
	first, err := readFront(ctx, store, info, int64(ix.Rows[0].Stored))
	return err == nil && codec.Checksum(first) == ix.Rows[0].CRC, err
}

// metaArchive is the key in a sidecar's metadata of the archive's name in the data set. A prune
// relies on it: data sets may lie in each other's folders and index the same archives.
const metaArchive = "archive"
