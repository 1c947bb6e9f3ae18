// Package s3 stores objects in a bucket of S3 or of a compatible server.
//
// # Reading
//
// Package ranged reads the ranges: it retries from the byte reached, cancels stalled requests and
// hedges late ones, all within bounds. Every request after the first asks for the ETag of the first
// answer (If-Match), so a replaced object is [objstore.ErrChanged]. Open sends no request;
// the first read returns size and ETag too.
//
// # Writing
//
//	Create   sends nothing
//	Write    sends the parts of a multipart upload in parallel, as they fill; keeps the last bytes
//	         in memory
//	Commit   sends one PutObject or CompleteMultipartUpload, with If-None-Match or If-Match if
//	         requested
//
// An upload has a random tag in its metadata. If the answer to a commit is lost, or a retry is
// refused because the object exists, the tag shows whose object it is. A server that ignores the
// conditions would overwrite objects, and some ignore them only when a multipart upload is
// completed. On servers other than AWS, the store tests this before the first conditional
// commit of either kind.
//
// A process that dies leaves at most parts that no List shows. A lifecycle rule of the bucket
// (AbortIncompleteMultipartUpload) removes them.
//
// # Tags
//
// An ETag is the object's ETag in S3, for most objects a digest of their bytes. Two puts of the
// same bytes may have the same ETag; for every reader they are the same version.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// store is an [objstore.Store] in a bucket.
type store struct {
	ranged.Objects
	client  *s3.Client
	region  string
	at      endpoint
	opts    Options
	secrets *secrets // nil for an anonymous store

	segmentParts int // the constant, except in tests

	directory bool // the bucket is a directory bucket

	probe, partsProbe probe

	// hashParts: parts are sent with a SHA-256, because the server does not verify CRC-32C.
	hashParts atomic.Bool

	found  atomic.Bool // the bucket exists: it has answered for a key
	skewed atomic.Bool // the server has refused a time, and the SDK learned the server's
}

// endpoint is the server of a store.
type endpoint struct {
	url    string // "" for AWS
	custom bool   // it is not one of AWS
	plain  bool   // it has no TLS
	google bool   // it is the one of Google Cloud Storage
}

// New returns the store of the objects in bucket, or below the access point with that ARN, whose
// keys begin with prefix and a slash, or of all objects if prefix is empty. Many goroutines may use
// it, and it needs no closing. New reads the configuration of the environment and sends no request
// to the bucket: a missing or forbidden bucket is an error of the first use.
func New(ctx context.Context, bucket, prefix string, opts Options) (objstore.Store, error) {
	s := &store{segmentParts: segmentParts}
	var err error
	base, name := "s3://", bucket
	if at := strings.LastIndexAny(bucket, ":/"); accessPoint.FindString(bucket) == bucket && at >= 0 {
		base, name = base+bucket[:at+1], bucket[at+1:]
	}
	if s.Bucket, err = ranged.NewBucket(base, "bucket", name, prefix); err != nil {
		return nil, s.Fail("open", "", err)
	}
	s.Bucket.Bucket, s.directory = bucket, strings.HasSuffix(name, directoryBucket)
	s.Address = cmp.Or(opts.Gateway, s.Address)
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, s.Fail("open", "", err)
	}
	s.opts = opts
	s.Attach(ranged.Connection{ReadOptions: opts.ReadOptions, WriteTimeout: opts.WriteTimeout, Logger: opts.Logger}, s)
	if err := s.connect(ctx); err != nil {
		return nil, s.Fail("open", "", err)
	}
	return s, nil
}

// connect creates the SDK's client. Package ranged retries its requests; the SDK retries those that
// find credentials.
func (s *store) connect(ctx context.Context) error {
	const attempts = 8 // about half a minute
	sends := newHTTPClient(s.opts, s.Reader.Traits().MostRequests)
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(sends),
		config.WithLogger(logging.Nop{}),
		config.WithRetryMaxAttempts(attempts),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { // which the two before do not reach
			o.HTTPClient, o.Retryer = sends, retry.AddWithMaxAttempts(retry.NewStandard(), attempts)
		}),
		config.WithDefaultRegion("us-east-1"),
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = early }),
	}
	if s.opts.Region != "" {
		load = append(load, config.WithRegion(s.opts.Region))
	}
	if s.opts.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(s.opts.Profile))
	}
	if s.opts.Anonymous {
		load = append(load, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return fmt.Errorf("configuration: %s; check the AWS_ variables and the files in ~/.aws",
			ranged.Scrub(err.Error()))
	}
	if !s.opts.Anonymous && cfg.Credentials != nil {
		s.secrets = newSecrets(&s.Secrets, cfg.Credentials, func(ctx context.Context) (aws.CredentialsProvider, error) {
			again, err := config.LoadDefaultConfig(ctx, load...)
			return again.Credentials, err
		})
		cfg.Credentials = s.secrets
	}
	var endpoint string
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		if s.opts.Endpoint != "" {
			o.BaseEndpoint = &s.opts.Endpoint
		}
		endpoint = aws.ToString(o.BaseEndpoint)
		s.at.custom, s.at.plain = !inDomain(endpoint, "amazonaws.com", "amazonaws.com.cn", "api.aws", "amazonaws.eu"),
			strings.HasPrefix(endpoint, "http://")
		s.at.custom, s.at.google = s.at.custom && endpoint != "", inDomain(endpoint, "googleapis.com")
		o.UsePathStyle = s.at.custom
		if s.opts.PathStyle != nil {
			o.UsePathStyle = *s.opts.PathStyle
		}
		o.RequestChecksumCalculation = s.opts.checksums(s.at.custom, o.RequestChecksumCalculation)
		// Readers verify what they read in blocks of their own; S3's checksums cover entire
		// objects.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.UseARNRegion = true
		o.APIOptions = append(o.APIOptions, unsignedEncoding, s.renewExpired, s.opts.Required.require)
		o.HTTPClient = client{ranged.Client{Doer: boundRedirects(o.HTTPClient, s.opts.Gateway != "")}}
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		s.region, s.at.url = o.Region, endpoint
	})
	if u, err := url.Parse(endpoint); len(s.opts.Required.CustomerKey) > 0 && err == nil && u.Host != "" &&
		!ranged.Private(u) {
		return errors.New("the endpoint has no TLS, so that others could read the customer key: give one with https")
	}
	return ranged.CheckEndpoint(endpoint)
}

// Describe finds the credentials, which may ask a server for them.
func (s *store) Describe(ctx context.Context) (objstore.Description, error) {
	d := objstore.Description{Identity: "anonymous", From: "the options of the store",
		Endpoint: cmp.Or(s.at.url, "AWS"), Region: s.region}
	if s.secrets == nil {
		return d, nil
	}
	d.Identity, d.From = "", "the AWS_ variables, the files in ~/.aws, the role of the machine"
	found, err := s.secrets.Retrieve(ctx)
	if err != nil {
		return d, s.Fail("open", "", s.explain("get", fmt.Errorf("get credentials: %w", err)))
	}
	key := found.AccessKeyID
	d.Identity, d.From = "access key ending in "+key[max(len(key)/2, len(key)-4):], found.Source
	if d.From == config.CredentialsSourceName {
		d.From = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	}
	return d, nil
}

// Remove implements ranged.Backend.
func (s *store) Remove(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.Bucket.Bucket, Key: &key})
	return s.explain("delete", err)
}

// send sends a request of an upload.
func (s *store) send(ctx context.Context, body io.Seeker, request func(ctx context.Context) error) error {
	return s.Reader.Send(ctx, body, func(ctx context.Context) error { return s.explain("put", request(ctx)) })
}
