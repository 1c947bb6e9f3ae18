package s3

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// accessPoint matches the ARN of an access point, or of one of S3 on Outposts, in place of a
// bucket's name: https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-points-naming.html.
var accessPoint = regexp.MustCompile(`^arn:aws[a-z-]*:s3(-outposts|-object-lambda)?:[a-z0-9-]*:[0-9]*:` +
	`(accesspoint[:/][A-Za-z0-9.-]{1,255}|outpost[:/][A-Za-z0-9-]{1,64}[:/]accesspoint[:/][A-Za-z0-9-]{1,64})`)

// CutBucket splits bucket/prefix. The ARN of an access point, which may contain slashes, is the
// bucket.
func CutBucket(place string) (bucket, prefix string) {
	arn := accessPoint.FindString(place)
	if rest, ok := strings.CutPrefix(place[len(arn):], "/"); arn != "" && (ok || rest == "") {
		return arn, rest
	}
	bucket, prefix, _ = strings.Cut(place, "/")
	return bucket, prefix
}

// Required is what requests carry because the owner of the bucket, or who pays for it, requires
// it. The zero value adds nothing. S3 documents the headers beside each operation.
type Required struct {
	// RequesterPays accepts that the requests and the transfer are charged to these credentials.
	RequesterPays bool
	// Encryption is how the server encrypts what is put: AES256, aws:kms or aws:kms:dsse. The default
	// is the bucket's. KMSKey is the key of the latter two; the default is the account's.
	Encryption, KMSKey string
	// CustomerKey, 32 bytes, encrypts what is put and decrypts what is read (SSE-C). The server does
	// not keep it. It is never logged.
	CustomerKey []byte
	// StorageClass and ACL are of what is put; the defaults are the server's. ACL is a canned one.
	StorageClass, ACL string
}

// check refuses values that no server knows.
func (r *Required) check() error {
	known := func(what, value string, all []string) error {
		if value == "" || slices.Contains(all, value) {
			return nil
		}
		// the value may be a secret
		return fmt.Errorf("the %s is not one of S3; give one of %s", what, strings.Join(all, ", "))
	}
	switch {
	case r.KMSKey != "" && r.Encryption != string(types.ServerSideEncryptionAwsKms) &&
		r.Encryption != string(types.ServerSideEncryptionAwsKmsDsse):
		return errors.New("a key of KMS needs the encryption aws:kms or aws:kms:dsse")
	case len(r.CustomerKey) > 0 && r.Encryption != "":
		return errors.New("a customer key is an encryption of its own: leave the other out")
	case len(r.CustomerKey) != 0 && len(r.CustomerKey) != 32:
		return fmt.Errorf("the customer key has %d bytes; give 32", len(r.CustomerKey))
	}
	return errors.Join(
		known("encryption", r.Encryption, texts(types.ServerSideEncryption("").Values())),
		known("storage class", r.StorageClass, texts(types.StorageClass("").Values())),
		known("ACL", r.ACL, texts(types.ObjectCannedACL("").Values())))
}

func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// headers returns the headers of an operation of the SDK.
func (r *Required) headers(operation string) http.Header {
	h, put, data := http.Header{}, false, false
	switch operation {
	case "PutObject", "CreateMultipartUpload":
		put, data = true, true
	case "GetObject", "HeadObject", "UploadPart":
		data = true
	}
	set := func(when bool, name, value string) {
		if when && value != "" {
			h.Set(name, value)
		}
	}
	set(r.RequesterPays, "x-amz-request-payer", string(types.RequestPayerRequester))
	set(put, encryption, r.Encryption)
	set(put, encryption+"-Aws-Kms-Key-Id", r.KMSKey)
	set(put, "x-amz-storage-class", r.StorageClass)
	set(put, "x-amz-acl", r.ACL)
	if data && len(r.CustomerKey) > 0 {
		sum := md5.Sum(r.CustomerKey)
		h.Set(encryption+"-Customer-Algorithm", string(types.ServerSideEncryptionAes256))
		h.Set(encryption+"-Customer-Key", base64.StdEncoding.EncodeToString(r.CustomerKey))
		h.Set(encryption+"-Customer-Key-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	return h
}

// require adds the headers to each request, before it is signed.
func (r *Required) require(stack *middleware.Stack) error {
	add := func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput,
		middleware.Metadata, error) {
		if request, ok := in.Request.(*smithyhttp.Request); ok {
			for name, values := range r.headers(middleware.GetOperationName(ctx)) {
				request.Header[name] = values
			}
		}
		return next.HandleBuild(ctx, in)
	}
	return stack.Build.Add(middleware.BuildMiddlewareFunc("Required", add), middleware.After)
}
