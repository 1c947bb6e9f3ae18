package s3

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	// maxParts is S3's limit on the parts of an upload. They are sent in segments of equal numbers.
	// The parts of a segment are growth times as large as those of the one before: 2,000 x (8 + 32
	// + 128 + 512 + 2,048 MiB) = 5.2 TiB, more than S3's limit on an object.
	maxParts     = 10_000
	segmentParts = 2_000
	growth       = 4
)

// parts is the transfer manager's view of the client. The manager cuts the stream into parts and
// sends them. The requests that publish the object or remove its parts are left to Commit and
// Abort, which know the condition and have contexts of their own. parts also joins the segments:
// several runs of the manager fill one multipart upload.
type parts struct {
	*s3.Client
	store *Store

	mu       sync.Mutex
	uploadID string
	declared bool  // the upload declared CRC-32C; set before the first part
	base     int32 // number of parts in earlier segments
	put      *s3.PutObjectInput
	complete *s3.CompleteMultipartUploadInput // with the parts of all segments so far
}

var errNoUploadID = errors.New("the server begins a multipart upload and gives no id for it; use one that knows them")

var _ transfermanager.S3APIClient = (*parts)(nil)

func (p *parts) id() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uploadID
}

// PutObject is called for a segment shorter than one part: a small object, or the last part of a
// large one.
func (p *parts) PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	id := p.id()
	if id == "" {
		p.put = in
		return &s3.PutObjectOutput{}, nil
	}
	if n, err := in.Body.(io.Seeker).Seek(0, io.SeekEnd); err != nil || n == 0 {
		return &s3.PutObjectOutput{}, err
	}
	if _, err := in.Body.(io.Seeker).Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	out, err := p.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: in.Bucket, Key: in.Key, Body: in.Body, UploadId: &id, PartNumber: aws.Int32(1),
		ChecksumAlgorithm: in.ChecksumAlgorithm,
	}, opts...)
	if err != nil {
		return nil, err
	}
	p.add(firstPart(out))
	return &s3.PutObjectOutput{}, nil
}

// firstPart describes part 1, as it was uploaded.
func firstPart(out *s3.UploadPartOutput) types.CompletedPart {
	return types.CompletedPart{
		PartNumber: aws.Int32(1), ETag: out.ETag,
		ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME,
		ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}
}

// CreateMultipartUpload begins the upload once, for all segments.
func (p *parts) CreateMultipartUpload(ctx context.Context, in *s3.CreateMultipartUploadInput, opts ...func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error) {
	if id := p.id(); id != "" {
		return &s3.CreateMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, UploadId: &id}, nil
	}
	out, err := p.declare(ctx, in, opts)
	if err != nil {
		return nil, err
	}
	if aws.ToString(out.UploadId) == "" {
		return nil, errNoUploadID
	}
	p.mu.Lock()
	p.uploadID = *out.UploadId
	p.mu.Unlock()
	return out, nil
}

// create sends one request. The SDK retries it unless it received an answer. An answer that broke
// off leaves an upload without parts.
func (p *parts) create(ctx context.Context, in *s3.CreateMultipartUploadInput, opts []func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error) {
	out, err := p.Client.CreateMultipartUpload(ctx, in, opts...)
	for again := 0; err != nil && again < 3 && ctx.Err() == nil && p.store.brokeOff(err); again++ {
		out, err = p.Client.CreateMultipartUpload(ctx, in, opts...)
	}
	return out, err
}

// UploadPart sends a part under its number in the entire upload.
func (p *parts) UploadPart(ctx context.Context, in *s3.UploadPartInput, opts ...func(*s3.Options)) (*s3.UploadPartOutput, error) {
	numbered := *in
	numbered.PartNumber = aws.Int32(p.base + aws.ToInt32(in.PartNumber))
	if p.declared {
		return p.uploadChecked(ctx, &numbered, opts)
	}
	return p.Client.UploadPart(ctx, &numbered, opts...)
}

// CompleteMultipartUpload keeps the request for Commit.
func (p *parts) CompleteMultipartUpload(_ context.Context, in *s3.CompleteMultipartUploadInput, _ ...func(*s3.Options)) (*s3.CompleteMultipartUploadOutput, error) {
	own := in.MultipartUpload
	if p.complete == nil {
		first := *in
		first.MultipartUpload = &types.CompletedMultipartUpload{}
		p.complete = &first
	}
	if own != nil {
		for _, part := range own.Parts {
			p.add(part)
		}
	}
	return &s3.CompleteMultipartUploadOutput{}, nil
}

func (p *parts) add(part types.CompletedPart) {
	part.PartNumber = aws.Int32(p.base + aws.ToInt32(part.PartNumber))
	p.complete.MultipartUpload.Parts = append(p.complete.MultipartUpload.Parts, part)
}

// AbortMultipartUpload does nothing, because Commit or Abort removes the parts.
func (p *parts) AbortMultipartUpload(context.Context, *s3.AbortMultipartUploadInput, ...func(*s3.Options)) (*s3.AbortMultipartUploadOutput, error) {
	return &s3.AbortMultipartUploadOutput{}, nil
}

// segment is the section of the stream that one run of the manager reads.
type segment struct {
	r    io.Reader
	left int64
	over bool // the stream is at its end
}

func (s *segment) Read(b []byte) (int, error) {
	if s.left == 0 || s.over {
		return 0, io.EOF
	}
	n, err := s.r.Read(b[:min(int64(len(b)), s.left)])
	s.left -= int64(n)
	s.over = err == io.EOF
	return n, err
}
