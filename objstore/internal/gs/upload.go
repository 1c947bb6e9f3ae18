package gs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// maxSize is Google's limit on an object.
const maxSize = 5 << 40

// upload implements parts.Target.
type upload struct {
	store   *Store
	key     string
	cond    objstore.Condition
	tag     string
	sum     uint32 // CRC-32C of what was sent
	session string // URL of the resumable upload, "" before the first chunk; it is a secret
}

// Create begins an upload. It sends nothing.
func (s *Store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	key, err := s.Key(ctx, name)
	if err == nil && strings.ContainsAny(key, "\r\n") {
		err = fmt.Errorf("%w: it has a line break, which Google Cloud Storage refuses", objstore.ErrName)
	}
	if err != nil {
		return nil, s.fail("put", name, err)
	}
	u := &upload{store: s, key: key, cond: cond, tag: rand.Text()}
	size := s.opts.ChunkSize
	return parts.NewUpload(ctx, s.reader, name, u.tag, cond, parts.Options{
		Size: size, Segment: maxSize, Growth: 1, Most: maxSize / size, InOrder: true,
	}, u), nil
}

// crc returns the CRC-32C of what was sent, as the API has it.
func (u *upload) crc() string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, u.sum))
}

// Publish sends the last chunk, or the object if it has only one.
func (u *upload) Publish(ctx context.Context, size int64, rest []byte) (objstore.Info, error) {
	u.sum = crc32.Update(u.sum, ranged.Castagnoli, rest)
	var done *resource
	var err error
	if u.session == "" {
		done, err = u.put(ctx, rest)
	} else {
		done, err = u.sendFrom(ctx, size-int64(len(rest)), rest, size)
	}
	switch {
	case err != nil:
		return objstore.Info{}, err
	case done.Generation == "":
		return objstore.Info{}, errNoGeneration
	case done.CRC32C != "" && done.CRC32C != u.crc():
		return objstore.Info{}, fmt.Errorf("%w: the object that was put has another CRC32C than what was sent; delete it and run again", objstore.ErrChecksum)
	}
	return done.meta().Info(""), nil
}

// put puts an object by one request. The request is sent again if its bytes do not match their
// checksum.
func (u *upload) put(ctx context.Context, rest []byte) (*resource, error) {
	boundary := rand.Text()
	head := "--" + boundary + "\r\nContent-Type: application/json\r\n\r\n%s\r\n--" + boundary + "\r\nContent-Type: application/octet-stream\r\n\r\n"
	done := new(resource)
	err := u.post(ctx, "multipart", "multipart/related; boundary="+boundary, u.crc(), func(description string) []byte {
		return slices.Concat(fmt.Appendf(nil, head, description), rest, []byte("\r\n--"+boundary+"--\r\n"))
	}, func(answer *http.Response) error { return parse(answer, done) })
	return done, err
}

// begin begins a resumable upload.
func (u *upload) begin(ctx context.Context) error {
	return u.post(ctx, "resumable", "application/json", "", func(description string) []byte { return []byte(description) }, func(answer *http.Response) error {
		answer.Body.Close()
		at, err := answer.Location()
		if err != nil || strings.HasPrefix(u.store.base, "https:") && at.Scheme != "https" {
			return errors.New("the server begins a resumable upload and gives no address for it, or one without TLS; check the endpoint")
		}
		u.session = at.String()
		u.store.shown.Remember(at.Query().Get("upload_id"))
		return nil
	})
}

// post sends the request of an upload that has its condition and its description, with a checksum
// if that is not empty.
func (u *upload) post(ctx context.Context, kind, contentType, crc string, body func(description string) []byte, took func(*http.Response) error) error {
	query := url.Values{"uploadType": {kind}, "fields": {"name,size,generation,updated,crc32c"}}
	if u.cond.IfNoneMatch {
		query.Set("ifGenerationMatch", "0")
	}
	if match := u.cond.IfMatch; match != "" {
		if n, err := strconv.ParseUint(match, 10, 63); err != nil || n == 0 { // 0 would mean that there is no object
			return parts.ErrPrecondition
		}
		query.Set("ifGenerationMatch", match)
	}
	described := map[string]any{"name": u.key, "metadata": map[string]string{parts.TagKey: u.tag}}
	if crc != "" {
		described["crc32c"] = crc
	}
	description, err := json.Marshal(described)
	if err != nil {
		return err
	}
	data := body(string(description))
	return u.store.reader.Send(ctx, nil, func(ctx context.Context) error {
		answer, err := u.store.send(ctx, "put", http.MethodPost, u.store.url("/upload", "", query), http.Header{"Content-Type": {contentType}}, bytes.NewReader(data))
		if a, ok := errors.AsType[ranged.Answer](err); ok && a.Status == http.StatusBadRequest && strings.Contains(strings.ToLower(a.Message), "crc32c") {
			return &ranged.Transient{Err: err, Answered: true} // damaged on the way
		}
		if err != nil {
			return err
		}
		return took(answer)
	})
}

// Send sends one chunk. The first one begins the resumable upload.
func (u *upload) Send(ctx context.Context, number int, data []byte) (err error) {
	if number == 1 {
		err = u.begin(ctx)
	}
	if err == nil {
		u.sum = crc32.Update(u.sum, ranged.Castagnoli, data)
		_, err = u.sendFrom(ctx, int64(number-1)*int64(u.store.opts.ChunkSize), data, 0)
	}
	return err
}

// sendFrom sends data, whose place in the object is off. After a failure it asks how many bytes
// have arrived and sends the others. If size is not 0, it is the object's, and the last bytes
// complete it.
func (u *upload) sendFrom(ctx context.Context, off int64, data []byte, size int64) (done *resource, err error) {
	reached, end, unsure := off, off+int64(len(data)), false
	err = u.store.reader.Send(ctx, nil, func(ctx context.Context) error {
		for done == nil && (unsure || size > 0 || reached < end) {
			asks, before := unsure, reached
			var left []byte
			if !asks {
				left = data[reached-off:]
			}
			unsure = true // until there is an answer
			found, now, err := u.sendSpan(ctx, reached, left, size, asks)
			switch {
			case err != nil:
				return err
			case found == nil && (now < off || now > end):
				return errors.New("the server has lost bytes of the upload; run again")
			case found == nil && !asks && now == before:
				return &ranged.Transient{Err: errors.New("the server keeps no byte of the upload"), Answered: true}
			}
			done, reached, unsure = found, now, false
		}
		return nil
	})
	return done, err
}

// sendSpan sends bytes to the session, or asks what it has. It returns the object if it is
// complete, and otherwise the number of its bytes that the server has.
func (u *upload) sendSpan(ctx context.Context, off int64, data []byte, size int64, asks bool) (done *resource, reached int64, err error) {
	span, total := "*", "*"
	if len(data) > 0 {
		span = fmt.Sprintf("%d-%d", off, off+int64(len(data))-1)
	}
	header := http.Header{
		"Content-Type":       {"application/octet-stream"},
		"X-Guploader-No-308": {"yes"}, // 308 would be a redirect
	}
	if size > 0 && !asks {
		total = strconv.FormatInt(size, 10)
		header.Set("X-Goog-Hash", "crc32c="+u.crc())
	}
	header.Set("Content-Range", "bytes "+span+"/"+total)
	answer, err := u.store.send(ctx, "session", http.MethodPut, u.session, header, bytes.NewReader(data))
	if err != nil {
		return nil, 0, err
	}
	if answer.StatusCode != http.StatusPermanentRedirect && answer.Header.Get("X-Http-Status-Code-Override") != "308" {
		done = new(resource)
		return done, 0, parse(answer, done)
	}
	answer.Body.Close()
	if text := answer.Header.Get("Range"); text != "" {
		if _, err := fmt.Sscanf(text, "bytes=0-%d", &reached); err != nil {
			return nil, 0, errors.New("the server does not report how much of the upload it has; check the endpoint")
		}
		reached++
	}
	return nil, reached, nil
}

// Describe implements parts.Target.
func (u *upload) Describe(ctx context.Context) (info objstore.Info, tag string, err error) {
	r, err := u.store.stat(ctx, u.key)
	return r.meta().Info(""), r.Metadata[parts.TagKey], err
}

// Drop cancels the session. One that stays costs nothing, shows nowhere and ends after a week, so a
// failure is not reported.
func (u *upload) Drop(ctx context.Context) error {
	if u.session != "" {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = u.store.do(ctx, "session", http.MethodDelete, u.session, nil)
	}
	return nil
}
