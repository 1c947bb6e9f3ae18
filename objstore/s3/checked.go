package s3

import (
	"context"
	"encoding/base64"
	"hash/crc32"
	"io"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Over https the SDK does not hash a part for its signature, because TLS protects it. Over http it
// computes a SHA-256 of every part, which costs the client more than sending it, and the server as
// much again. A server that verifies CRC-32C needs no SHA-256 to find damage: the checksum is in
// the signed headers. Each store asks for that once:
//
//	CreateMultipartUpload   declares CRC-32C; the server's answer confirms it or does not
//	UploadPart              confirmed: an unsigned payload, and its CRC-32C in a signed header. An
//	                        answer without that checksum, or a refusal: the part is sent again with
//	                        a SHA-256, and so are all later parts of the store
//
// AWS is not asked: it is reached through https.

// declares reports whether new uploads declare CRC-32C.
func (s *Store) declares() bool {
	return s.plain && s.custom && s.opts.RequestChecksums == "" && !s.opts.Anonymous && !s.opts.Unchecked && !s.hashParts.Load()
}

// declare begins an upload that declares CRC-32C, or a plain one if the server refuses that.
func (p *parts) declare(ctx context.Context, in *s3.CreateMultipartUploadInput, opts []func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error) {
	if in.ChecksumAlgorithm != "" || !p.store.declares() {
		return p.create(ctx, in, opts)
	}
	declared := *in
	declared.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	out, err := p.create(ctx, &declared, opts)
	if a, ok := p.store.answerOf(err); ok && (a.status == http.StatusBadRequest || a.status == http.StatusNotImplemented) {
		if out, err = p.create(ctx, in, opts); err == nil {
			p.store.hashParts.Store(true)
		}
		return out, err
	}
	if err != nil {
		return nil, err
	}
	p.declared = true
	if out.ChecksumAlgorithm != types.ChecksumAlgorithmCrc32c {
		p.store.hashParts.Store(true)
	}
	return out, nil
}

// uploadChecked sends a part of an upload that declared CRC-32C.
func (p *parts) uploadChecked(ctx context.Context, in *s3.UploadPartInput, opts []func(*s3.Options)) (*s3.UploadPartOutput, error) {
	body := in.Body.(io.ReadSeeker) // the transfer manager's parts are in memory
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, body); err != nil {
		return nil, err
	}
	text := base64.StdEncoding.EncodeToString(sum.Sum(nil))
	in.ChecksumCRC32C = &text
	if !p.store.hashParts.Load() {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		unsigned := s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		out, err := p.Client.UploadPart(ctx, in, append(slices.Clip(opts), unsigned)...)
		if err == nil && aws.ToString(out.ChecksumCRC32C) == text {
			return out, nil
		}
		a, answered := p.store.answerOf(err)
		if err != nil && (!answered || a.status/100 != 4 || ranged.TransientStatus(a.status)) {
			return nil, err
		}
		p.store.hashParts.Store(true)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return p.Client.UploadPart(ctx, in, opts...)
}
