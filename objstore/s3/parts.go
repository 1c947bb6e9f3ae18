package s3

import (
	"bytes"
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
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

var errNoUploadID = errors.New("the server begins a multipart upload and gives no id for it; use one that knows them")

// sendPart sends one part. The first one begins the multipart upload.
func (u *upload) sendPart(ctx context.Context, number int, data []byte) error {
	u.once.Do(func() { u.id, u.idErr = u.begin() })
	if u.idErr != nil {
		return u.idErr
	}
	in := &s3.UploadPartInput{
		Bucket: &u.store.bucket, Key: &u.key, UploadId: &u.id, PartNumber: aws.Int32(int32(number)),
		Body: bytes.NewReader(data), ChecksumAlgorithm: u.algorithm,
	}
	send := u.store.uploadPart
	if u.declared {
		send = u.store.uploadChecked
	}
	out, err := send(ctx, in)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = append(u.done, completed(in, out))
	return nil
}

func (s *Store) uploadPart(ctx context.Context, in *s3.UploadPartInput) (out *s3.UploadPartOutput, err error) {
	err = s.send(ctx, in.Body.(*bytes.Reader), func(ctx context.Context) (err error) {
		out, err = s.client.UploadPart(ctx, in)
		return err
	})
	return out, err
}

// completed describes a part that was uploaded.
func completed(in *s3.UploadPartInput, out *s3.UploadPartOutput) types.CompletedPart {
	return types.CompletedPart{
		PartNumber: in.PartNumber, ETag: out.ETag,
		ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME,
		ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}
}

// begin begins the multipart upload.
func (u *upload) begin() (id string, err error) {
	return u.declare(u.ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.store.bucket, Key: &u.key, Metadata: map[string]string{tagKey: u.tag}, ChecksumAlgorithm: u.algorithm,
	})
}

// createUpload sends one request. An answer that broke off leaves an upload without parts.
func (s *Store) createUpload(ctx context.Context, in *s3.CreateMultipartUploadInput) (out *s3.CreateMultipartUploadOutput, err error) {
	err = s.send(ctx, nil, func(ctx context.Context) (err error) {
		out, err = s.client.CreateMultipartUpload(ctx, in)
		return err
	})
	if err == nil && aws.ToString(out.UploadId) == "" {
		err = errNoUploadID
	}
	return out, err
}
