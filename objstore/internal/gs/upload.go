package gs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

const (
	// The parts of a segment are growth times as large as the parts of the segment before: 2,000 x (8
	// + 32 + 128 + 512 + 2,048 MiB) = 5.2 TiB, more than Google's limit on an object.
	maxParts     = 10_000
	segmentParts = 2_000
	growth       = 4
	// maxSources is Google's limit on the objects that one request composes.
	maxSources = 32
	// partLife is the age from which on parts belong to an upload whose process died.
	partLife = 24 * time.Hour
)

// upload implements parts.Target.
type upload struct {
	*parts.Upload
	store *Store
	key   string
	cond  objstore.Condition
	tag   string
	sum   uint32 // CRC-32C of what was written

	mu   sync.Mutex
	sent map[string]string // the generations of parts, by key; "" while a part is sent
}

// Create begins an upload. It sends nothing.
func (s *Store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	key, err := s.Key(ctx, name)
	if err == nil && strings.ContainsAny(key, "\r\n") {
		err = fmt.Errorf("%w: it has a line break, which Google Cloud Storage refuses", objstore.ErrName)
	}
	if err != nil {
		return nil, s.Fail("put", name, err)
	}
	u := &upload{store: s, key: key, cond: cond, tag: rand.Text(), sent: map[string]string{}}
	u.Upload = parts.NewUpload(ctx, s.Reader, name, u.tag, cond, parts.Options{
		Size: s.opts.PartSize, Workers: s.opts.UploadConcurrency, Segment: segmentParts, Growth: growth, Most: maxParts,
	}, u)
	return u, nil
}

// Write returns when p is copied. It waits while all parts in memory are being sent.
func (u *upload) Write(p []byte) (int, error) {
	n, err := u.Upload.Write(p)
	u.sum = crc32.Update(u.sum, ranged.Castagnoli, p[:n])
	return n, err
}

// encoded returns a CRC-32C as the API has it.
func encoded(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// part returns the key of a part. Keys ascend with the level of composition and the number.
func (u *upload) part(level, number int) string {
	return u.store.Prefix + objstore.PartName(u.tag, level, number)
}

// Send puts one part.
func (u *upload) Send(ctx context.Context, number int, data []byte) error {
	key := u.part(0, number)
	return u.keep(key, func() (*resource, error) {
		return u.store.put(ctx, url.Values{}, u.store.described(key, false), data,
			crc32.Checksum(data, ranged.Castagnoli))
	})
}

// keep makes a part, and records it before, so that Drop deletes it in any case.
func (u *upload) keep(key string, make func() (*resource, error)) error {
	record := func(generation string) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.sent[key] = generation
	}
	record("")
	r, err := make()
	if err == nil {
		record(r.Generation)
	}
	return err
}

// Publish composes the object of its parts, or puts it if it has none.
func (u *upload) Publish(ctx context.Context, _ int64, rest []byte) (objstore.Info, error) {
	query := url.Values{}
	if u.cond.IfNoneMatch {
		query.Set("ifGenerationMatch", "0")
	}
	if match := u.cond.IfMatch; match != "" {
		if n, err := strconv.ParseUint(match, 10, 63); err != nil || n == 0 { // 0 would mean that there is no object
			return objstore.Info{}, parts.ErrPrecondition
		}
		query.Set("ifGenerationMatch", match)
	}
	described := u.store.described(u.key, true)
	described["metadata"] = map[string]string{parts.TagKey: u.tag}
	var done *resource
	var err error
	if len(u.sent) == 0 {
		done, err = u.store.put(ctx, query, described, rest, u.sum)
	} else {
		defer func() { _ = u.Drop(ctx) }()
		done, err = u.composeAll(ctx, query, described)
	}
	switch {
	case err != nil:
		return objstore.Info{}, err
	case done.Generation == "":
		return objstore.Info{}, errNoGeneration
	case done.CRC32C != "" && done.CRC32C != encoded(u.sum):
		return objstore.Info{}, fmt.Errorf("%w: the object that was put has another CRC32C than what was sent; delete it and run again", objstore.ErrChecksum)
	}
	return done.meta().Info(""), nil
}

// composeAll composes the parts, in several levels if there are more than one request may name.
func (u *upload) composeAll(ctx context.Context, query url.Values, described map[string]any) (*resource, error) {
	sources := slices.Sorted(maps.Keys(u.sent))
	for level := 1; len(sources) > maxSources; level++ {
		var group errgroup.Group
		group.SetLimit(u.store.opts.UploadConcurrency)
		var next []string
		for some := range slices.Chunk(sources, maxSources) {
			key := u.part(level, len(next))
			next = append(next, key)
			group.Go(func() error {
				return u.keep(key, func() (*resource, error) {
					return u.compose(ctx, key, url.Values{}, u.store.described(key, false), some)
				})
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		sources = next
	}
	return u.compose(ctx, u.key, query, described, sources)
}

// compose makes an object of others, which stay.
func (u *upload) compose(ctx context.Context, key string, query url.Values, described map[string]any,
	sources []string) (*resource, error) {
	var from []map[string]string
	u.mu.Lock()
	for _, source := range sources {
		from = append(from, map[string]string{"name": source, "generation": u.sent[source]})
	}
	u.mu.Unlock()
	body, err := json.Marshal(map[string]any{"sourceObjects": from, "destination": described})
	if err != nil {
		return nil, err
	}
	return u.store.post(ctx, u.store.url("/compose", key, query), "application/json", body)
}

// described returns the description of what is put under a key: an object, or a part of one.
func (s *Store) described(key string, object bool) map[string]any {
	d := map[string]any{"name": key}
	switch {
	case s.opts.StorageClass == "":
	case object:
		d["storageClass"] = s.opts.StorageClass
	default:
		d["storageClass"] = "STANDARD"
	}
	return d
}

// put puts an object by one request. The request is sent again if its bytes do not match their
// checksum.
func (s *Store) put(ctx context.Context, query url.Values, described map[string]any, data []byte,
	sum uint32) (*resource, error) {
	query.Set("uploadType", "multipart")
	query.Set("fields", "name,size,generation,updated,crc32c")
	described["crc32c"] = encoded(sum)
	description, err := json.Marshal(described)
	if err != nil {
		return nil, err
	}
	boundary := rand.Text()
	head := fmt.Appendf(nil,
		"--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%[1]s\r\nContent-Type: application/octet-stream\r\n\r\n",
		boundary, description)
	tail := []byte("\r\n--" + boundary + "--\r\n")
	return s.post(ctx, s.url("/upload", "", query), "multipart/related; boundary="+boundary, head, data, tail)
}

// post sends a request that makes an object, and returns its description.
func (s *Store) post(ctx context.Context, url, kind string, pieces ...[]byte) (*resource, error) {
	done := new(resource)
	err := s.Reader.Send(ctx, nil, func(ctx context.Context) error {
		answer, err := s.send(ctx, "put", http.MethodPost, url, http.Header{"Content-Type": {kind}}, pieces...)
		if err != nil {
			return err
		}
		return ranged.Decode(answer, done, json.Unmarshal)
	})
	return done, err
}

// content returns the pieces of a body as a reader, and their length.
func content(pieces [][]byte) (body io.Reader, length int64) {
	readers := make([]io.Reader, len(pieces))
	for i, p := range pieces {
		readers[i] = bytes.NewReader(p)
		length += int64(len(p))
	}
	if length == 0 {
		return nil, 0
	}
	return io.MultiReader(readers...), length
}

// Describe implements parts.Target.
func (u *upload) Describe(ctx context.Context) (info objstore.Info, tag string, err error) {
	r, err := u.store.stat(ctx, u.key)
	return r.meta().Info(""), r.Metadata[parts.TagKey], err
}

// Drop deletes the parts. Sweep deletes those that stay, so a failure is not reported.
func (u *upload) Drop(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(maxSources)
	for key := range u.sent {
		group.Go(func() error { return u.store.Erase(ctx, key) })
	}
	_ = group.Wait()
	clear(u.sent)
	return nil
}

// listed leaves parts out of lists.
func listed(name string) error { return cmp.Or(isPart(name), ranged.CheckName(name)) }

func isPart(name string) error {
	if objstore.IsPart(name) {
		return objstore.ErrName
	}
	return nil
}

// sweep deletes the parts below the store's prefix that are older than a day and than olderThan.
func (s *Store) sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	oldest := time.Now().Add(-max(olderThan, partLife))
	for info, err := range s.Reader.List(ctx, s.Prefix, objstore.PartPrefix, ranged.CheckName, s.page) {
		if err == nil && info.ModTime.Before(oldest) {
			if err = s.Erase(ctx, s.Prefix+info.Name); err == nil {
				removed++
			} else if errors.Is(err, objstore.ErrKept) { // listVersions lists it
				err = nil
			}
		}
		if err != nil {
			return removed, s.Fail("sweep", "", err)
		}
	}
	return removed, nil
}
