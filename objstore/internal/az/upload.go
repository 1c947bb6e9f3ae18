package az

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

const (
	// maxBlocks is Azure's limit on the blocks of a blob. They are sent in segments of equal
	// numbers. The blocks of a segment are growth times as large as the ones of the segment before:
	// 10,000 x (8 + 32 + 128 + 512 + 2,048 MiB) = 26 TiB, and no block has more than 4,000 MiB, the
	// limit.
	maxBlocks     = 50_000
	segmentBlocks = 10_000
	growth        = 4

	// tagHeader is the key of the metadata with the tag of an upload. Azure wants an identifier.
	tagHeader = "X-Ms-Meta-Shardtool_upload"
)

// errBlocksGone reports a list with blocks that the server does not have.
const errBlocksGone = parts.Unsure("the server does not have the blocks of the upload any more: another writer put the same object meanwhile; run again")

// upload implements parts.Target.
type upload struct {
	store  *Store
	key    string
	cond   objstore.Condition
	tag    string
	blocks atomic.Int64 // that were sent
}

// Create begins an upload. It sends nothing.
func (s *Store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	key, err := s.Key(ctx, name)
	if err == nil && strings.ContainsFunc(key, unicode.IsControl) {
		err = fmt.Errorf("%w: it has a control character, which Azure refuses", objstore.ErrName)
	}
	if err == nil && (strings.HasSuffix(key, ".") || strings.Contains(key, "./")) {
		err = fmt.Errorf("%w: an element ends with a dot, which Azure does not keep", objstore.ErrName)
	}
	if err != nil {
		return nil, s.Fail("put", name, err)
	}
	u := &upload{store: s, key: key, cond: cond, tag: rand.Text()}
	return parts.NewUpload(ctx, s.Reader, name, u.tag, cond, parts.Options{
		Size: s.opts.BlockSize, Workers: s.opts.Workers, Segment: segmentBlocks, Growth: growth, Most: maxBlocks,
	}, u), nil
}

// id returns the ID of a block. All IDs of a blob must have one length.
func (u *upload) id(number int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", u.tag, number))
}

// Send sends one block.
func (u *upload) Send(ctx context.Context, number int, data []byte) error {
	u.blocks.Add(1)
	_, err := u.put(ctx, url.Values{"comp": {"block"}, "blockid": {u.id(number)}}, nil, data)
	return err
}

// Publish sends the list of the blocks, or the object if it has none.
func (u *upload) Publish(ctx context.Context, size int64, rest []byte) (info objstore.Info, err error) {
	header := http.Header{tagHeader: {u.tag}}
	if tier := u.store.opts.AccessTier; tier != "" {
		header.Set("X-Ms-Access-Tier", tier)
	}
	if u.cond.IfNoneMatch {
		header.Set("If-None-Match", "*")
	}
	if u.cond.IfMatch != "" {
		header.Set("If-Match", `"`+u.cond.IfMatch+`"`)
	}
	var answer http.Header
	if u.blocks.Load() == 0 {
		single := maps.Clone(header)
		single.Set("X-Ms-Blob-Type", "BlockBlob")
		answer, err = u.put(ctx, nil, single, rest)
	} else {
		answer, err = u.commit(ctx, header)
	}
	if u.blocks.Load() == 0 && u.cond.IfNoneMatch && errors.Is(err, parts.ErrPrecondition) && u.missing(ctx) {
		// Azurite takes the blocks that another upload has left for an object, but not when it
		// commits a list.
		if err = nil; len(rest) > 0 {
			err = u.Send(ctx, 1, rest)
		}
		if err == nil {
			answer, err = u.commit(ctx, header)
		}
	}
	if a, ok := errors.AsType[ranged.Answer](err); ok && u.cond.IfNoneMatch && a.Code == "UnauthorizedBlobOverwrite" {
		err = parts.ErrPrecondition // the SAS may create, and there is an object
	}
	info.ETag = ranged.PlainTag(answer.Get("ETag"))
	if err == nil && info.ETag == "" {
		err = parts.Unsure("the server answers the put without an ETag; check the endpoint")
	}
	info.ModTime, _ = http.ParseTime(answer.Get("Last-Modified"))
	return info, err
}

// commit sends the list of the blocks.
func (u *upload) commit(ctx context.Context, header http.Header) (http.Header, error) {
	list := []byte("<BlockList>")
	for number := range int(u.blocks.Load()) {
		list = append(list, "<Uncommitted>"+u.id(number+1)+"</Uncommitted>"...)
	}
	return u.put(ctx, url.Values{"comp": {"blocklist"}}, header, append(list, "</BlockList>"...))
}

// missing reports whether there is no object of that name.
func (u *upload) missing(ctx context.Context) bool {
	_, err := u.store.Reader.Stat(ctx, "",
		func(ctx context.Context) (ranged.Meta, error) { return u.store.Head(ctx, u.key) })
	return errors.Is(err, fs.ErrNotExist)
}

// put sends a request of the upload. It is sent again if it was damaged on the way.
func (u *upload) put(ctx context.Context, query url.Values, header http.Header,
	data []byte) (answer http.Header, err error) {
	err = u.store.Reader.Send(ctx, nil, func(ctx context.Context) (err error) {
		answer, err = u.store.do(ctx, "put", http.MethodPut, u.key, query, header, data)
		return err
	})
	return answer, err
}

// Describe implements parts.Target.
func (u *upload) Describe(ctx context.Context) (info objstore.Info, tag string, err error) {
	header, meta, err := u.store.head(ctx, u.key)
	return meta.Info(""), header.Get(tagHeader), err
}

// Drop does nothing: blocks without a list cannot be removed, show nowhere and are discarded after
// a week.
func (u *upload) Drop(context.Context) error { return nil }
