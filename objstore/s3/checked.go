package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"net/http"

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
func (s *store) declares() bool {
	return s.at.plain && s.at.custom && s.opts.RequestChecksums == "" && !s.opts.Anonymous && !s.opts.Unchecked &&
		!s.hashParts.Load()
}

// declare begins an upload that declares CRC-32C, or a plain one if the server refuses that. It
// returns the upload's id.
func (u *upload) declare(ctx context.Context, in *s3.CreateMultipartUploadInput) (id string, err error) {
	s := u.store
	if in.ChecksumAlgorithm != "" || !s.declares() {
		out, err := s.createUpload(ctx, in)
		return idOf(out), err
	}
	declared := *in
	declared.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	out, err := s.createUpload(ctx, &declared)
	if a, ok := errors.AsType[ranged.Answer](err); ok &&
		(a.Status == http.StatusBadRequest || a.Status == http.StatusNotImplemented) {
		if out, err = s.createUpload(ctx, in); err == nil {
			s.hashParts.Store(true)
		}
		return idOf(out), err
	}
	if err != nil {
		return "", err
	}
	u.declared = true
	if out.ChecksumAlgorithm != types.ChecksumAlgorithmCrc32c {
		s.hashParts.Store(true)
	}
	return idOf(out), nil
}

func idOf(out *s3.CreateMultipartUploadOutput) string {
	if out == nil {
		return ""
	}
	return aws.ToString(out.UploadId)
}

// uploadChecked sends a part of an upload that declared CRC-32C.
func (s *store) uploadChecked(ctx context.Context, in *s3.UploadPartInput) (out *s3.UploadPartOutput, err error) {
	body := in.Body.(*bytes.Reader)
	sum := crc32.New(ranged.Castagnoli)
	if _, err := body.WriteTo(sum); err != nil {
		return nil, err
	}
	text := base64.StdEncoding.EncodeToString(sum.Sum(nil))
	in.ChecksumCRC32C = &text
	if !s.hashParts.Load() {
		unsigned := s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		err := s.send(ctx, body, func(ctx context.Context) (err error) {
			out, err = s.client.UploadPart(ctx, in, unsigned)
			return err
		})
		if err == nil && aws.ToString(out.ChecksumCRC32C) == text {
			return out, nil
		}
		a, answered := errors.AsType[ranged.Answer](err)
		if err != nil && (!answered || a.Status/100 != 4 || ranged.TransientStatus(a.Status)) {
			return nil, err
		}
		s.hashParts.Store(true)
	}
	return s.uploadPart(ctx, in)
}
