package s3

import (
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithymiddleware "github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

var (
	// nvme is CRC-64/NVME. Its polynomial has the reversed form that hash/crc64 takes.
	nvme = crc64.MakeTable(0x9a6c9329ac4bc9b5)

	crc64Sum  = ranged.Checksum{Name: "CRC64NVME", New: func() hash.Hash { return crc64.New(nvme) }}
	crc32Sum  = ranged.Checksum{Name: "CRC32", New: func() hash.Hash { return crc32.NewIEEE() }}
	sha1Sum   = ranged.Checksum{Name: "SHA1", New: sha1.New}
	sha256Sum = ranged.Checksum{Name: "SHA256", New: sha256.New}
	sha512Sum = ranged.Checksum{Name: "SHA512", New: sha512.New}
)

const (
	advice     = "if all of the server's values are wrong, such as ETags that are no MD5s, add unchecked=true to the store's address"
	encryption = "X-Amz-Server-Side-Encryption"
)

// Sum implements ranged.Summer for objects whose ETag is no MD5 of their bytes: it requests a
// checksum of the object or of its parts. It sends one HEAD request, or three if the server keeps a
// checksum of parts.
func (s *store) Sum(ctx context.Context, key string, meta ranged.Meta) (*objstore.Sum, error) {
	if s.opts.Unchecked {
		return nil, nil
	}
	out, err := s.headSum(ctx, key, meta, 0)
	if out == nil {
		return nil, err
	}
	for _, kept := range []struct {
		value *string
		ranged.Checksum
	}{
		{out.ChecksumCRC64NVME, crc64Sum}, {out.ChecksumCRC32C, ranged.CRC32C}, {out.ChecksumCRC32, crc32Sum},
		{out.ChecksumSHA1, sha1Sum}, {out.ChecksumSHA256, sha256Sum}, {out.ChecksumSHA512, sha512Sum}, {out.ChecksumMD5, ranged.MD5},
	} {
		text, parts := cutParts(aws.ToString(kept.value))
		sum := kept.Sum(text)
		switch {
		case sum == nil:
		case parts > 0:
			return s.partsSum(ctx, key, meta, kept.Checksum, sum.Want, parts)
		case out.ChecksumType != types.ChecksumTypeComposite:
			sum.Advice = advice
			return sum, nil
		}
	}
	text, parts := cutParts(meta.ETag)
	value, err := hex.DecodeString(text)
	if err != nil || len(value) != md5.Size || parts == 0 || !s.digests(out.ResultMetadata) {
		return nil, nil
	}
	return s.partsSum(ctx, key, meta, ranged.MD5, value, parts)
}

// headSum requests checksums, or the size of a part. If the server refuses, it returns neither an
// answer nor an error, because the object can be read without a checksum.
func (s *store) headSum(ctx context.Context, key string, meta ranged.Meta,
	part int32) (out *s3.HeadObjectOutput, err error) {
	in := &s3.HeadObjectInput{Bucket: &s.Bucket.Bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled}
	if part > 0 {
		in.PartNumber = &part // no If-Match: some servers compare it with the part's own tag
	} else {
		in.IfMatch = aws.String(quoteTag(meta.ETag))
	}
	err = s.Reader.Do(ctx, func(ctx context.Context) (err error) {
		out, err = s.client.HeadObject(ctx, in)
		if a, ok := s.answerOf(err); ok && (a.Status/100 == 4 || a.Status == http.StatusNotImplemented) &&
			!ranged.TransientStatus(a.Status) && a.Status != http.StatusPreconditionFailed {
			out, err = nil, nil
		}
		return s.explain("get", err)
	})
	return out, err
}

// cutParts splits "value-7", S3's form of a digest of the digests of 7 parts. parts is 0 if there
// is no such suffix.
func cutParts(text string) (value string, parts int64) {
	value, count, ok := strings.Cut(text, "-")
	if !ok {
		return text, 0
	}
	parts, err := strconv.ParseInt(count, 10, 32)
	if err != nil || parts < 1 {
		return "", 0
	}
	return value, parts
}

// partsSum returns a digest of the digests of parts. It can be verified if all parts but the last
// have the same size, as in uploads of the usual programs; the sizes of the first and the last part
// show that.
func (s *store) partsSum(ctx context.Context, key string, meta ranged.Meta, a ranged.Checksum, want []byte,
	parts int64) (*objstore.Sum, error) {
	size := meta.Size // of one part
	if size == 0 {
		return nil, nil
	}
	if parts > 1 {
		first, err := s.headSum(ctx, key, meta, 1)
		if first == nil {
			return nil, err
		}
		last, err := s.headSum(ctx, key, meta, int32(parts))
		if last == nil {
			return nil, err
		}
		size = aws.ToInt64(first.ContentLength)
		if int64(aws.ToInt32(first.PartsCount)) != parts || size <= 0 ||
			aws.ToInt64(last.ContentLength) != meta.Size-(parts-1)*size {
			return nil, nil
		}
	}
	return &objstore.Sum{
		Name:   a.Name + " of parts",
		Want:   want,
		New:    func() hash.Hash { return &partsHash{Hash: a.New(), part: a.New(), size: size, left: size} },
		Advice: advice,
	}, nil
}

// partsHash computes the digest of the digests of parts of one size.
type partsHash struct {
	hash.Hash // of the digests
	part      hash.Hash
	size      int64
	left      int64 // of the part
}

func (h *partsHash) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(int64(len(p)), h.left)
		h.part.Write(p[:k])
		p = p[k:]
		if h.left -= k; h.left == 0 {
			h.end()
		}
	}
	return n, nil
}

func (h *partsHash) end() {
	h.Hash.Write(h.part.Sum(nil))
	h.part.Reset()
	h.left = h.size
}

// Sum ends the last part, so call it only at the end of the object.
func (h *partsHash) Sum(b []byte) []byte {
	if h.left < h.size {
		h.end()
	}
	return h.Hash.Sum(b)
}

// tagSum returns the MD5 in an object's ETag, or nil if the ETag is not an MD5.
func (s *store) tagSum(etag string, answer smithymiddleware.Metadata) *objstore.Sum {
	value, err := hex.DecodeString(etag)
	if err != nil || len(value) != md5.Size || !s.digests(answer) {
		return nil
	}
	return &objstore.Sum{Name: ranged.MD5.Name, Want: value, New: ranged.MD5.New, Advice: advice}
}

// digests reports whether the ETag of an answer is made of MD5s. It is not with SSE-KMS and SSE-C,
// with customer keys at Google, in directory buckets, and for object types that other vendors add,
// such as appendable objects (x-oss-object-type).
func (s *store) digests(answer smithymiddleware.Metadata) bool {
	response, ok := middleware.GetRawResponse(answer).(*smithyhttp.Response)
	if !ok || s.opts.Unchecked || strings.HasSuffix(s.Bucket.Bucket, "--x-s3") {
		return false
	}
	if how := response.Header.Get(encryption); how != "" && how != string(types.ServerSideEncryptionAes256) {
		return false
	}
	for name, values := range response.Header {
		own := strings.HasPrefix(name, encryption+"-") || strings.HasPrefix(name, "X-Goog-Encryption-")
		kind := strings.HasSuffix(name, "-Object-Type") && !strings.HasPrefix(name, "X-Amz-Meta-") &&
			!strings.EqualFold(strings.Join(values, ""), "normal")
		if own || kind {
			return false
		}
	}
	return true
}
