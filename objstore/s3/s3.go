// Package s3 is the store in a bucket of S3, or of a server that speaks its protocol.
//
// # Reading
//
// Ranges are read by package ranged: requests sent again from the byte reached, stalls cut, late answers hedged, all
// bounded. Every answer is held to the ETag of the first (If-Match), so a replaced object is [objstore.ErrChanged].
// [Store.Open] sends nothing; the first read brings size and ETag along.
//
// # Writing
//
//	Create   nothing is sent
//	Write    parts of a multipart upload, in parallel, as they fill; less than one part stays in memory
//	Commit   one PutObject or CompleteMultipartUpload, with If-None-Match or If-Match where asked
//
// An upload carries a random tag in its metadata. Where the answer to a commit is lost, or a
// repeated one is told that the object exists, the tag says whose it is. A server that ignores the
// conditions would overwrite, and some ignore them at the completion of an upload in parts alone;
// on endpoints that are not of AWS [Store.CheckConditional] finds out before the first conditional
// commit of either kind.
//
// A process that dies leaves at most parts that no List shows; a lifecycle rule of the bucket
// (AbortIncompleteMultipartUpload) removes them.
//
// # Tags
//
// An ETag is S3's: for most objects a digest of their bytes. Two puts of the same bytes may have the same one, which
// then are the same version for all that reads.
package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Stats counts what a store's reads did.
type Stats = ranged.Stats

// Store is an [objstore.Store] in a bucket, and an [objstore.Remote]. Use [New]; it may be used from many goroutines and
// needs no closing.
type Store struct {
	client  *s3.Client
	bucket  string
	prefix  string // "" or ends in /
	address string
	region  string
	opts    Options
	custom  bool // the endpoint is not of AWS
	plain   bool // the endpoint has no TLS
	secrets *secrets
	reader  *ranged.Reader

	segmentParts int // parts.go's, but for tests

	probe, partsProbe probe

	found atomic.Bool // the bucket is there: it has answered for a key
}

var _ objstore.Store = (*Store)(nil)

// New returns the store of the objects in bucket whose keys begin with prefix and a slash; of all where prefix is empty.
// It reads the configuration of the environment and sends no request to the bucket: whether that is there and may be used
// is what the first call says.
func New(ctx context.Context, bucket, prefix string, opts Options) (*Store, error) {
	s := &Store{bucket: bucket, address: "s3://" + bucket, segmentParts: segmentParts}
	prefix = strings.TrimSuffix(prefix, "/")
	if err := checkBucket(bucket); err != nil {
		return nil, objstore.NewError("open", s.address, "", err)
	}
	if prefix != "" {
		s.address += "/" + prefix
		s.prefix = prefix + "/"
		if err := checkName(prefix); err != nil {
			return nil, objstore.NewError("open", s.address, "", err)
		}
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, objstore.NewError("open", s.address, "", err)
	}
	s.opts = opts
	s.reader = ranged.New(s.address, opts.ReadOptions, opts.Logger)
	if err := s.connect(ctx); err != nil {
		return nil, objstore.NewError("open", s.address, "", err)
	}
	return s, nil
}

// connect makes the SDK's client. It retries uploads itself; what the engine retries switches that off per call.
func (s *Store) connect(ctx context.Context) error {
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(newHTTPClient(s.opts, s.reader.Traits().MostRequests)),
		config.WithLogger(logging.Nop{}),
		config.WithRetryer(s.opts.retryer),
		config.WithDefaultRegion("us-east-1"),
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
		return fmt.Errorf("configuration: %s; check the AWS_ variables and the files in ~/.aws", ranged.Scrub(err.Error()))
	}
	if !s.opts.Anonymous && cfg.Credentials != nil {
		s.secrets = &secrets{provider: cfg.Credentials}
		cfg.Credentials = s.secrets
	}
	var endpoint string
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		if s.opts.Endpoint != "" {
			o.BaseEndpoint = &s.opts.Endpoint
		}
		endpoint = aws.ToString(o.BaseEndpoint)
		s.custom, s.plain = !ofAWS(endpoint), strings.HasPrefix(endpoint, "http://")
		o.UsePathStyle = s.custom
		if s.opts.PathStyle != nil {
			o.UsePathStyle = *s.opts.PathStyle
		}
		o.RequestChecksumCalculation = s.opts.checksums(s.custom, o.RequestChecksumCalculation)
		// What is read is checked by those who read it, in units they choose; S3's sums are of whole objects.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.APIOptions = append(o.APIOptions, unsignedEncoding)
		o.HTTPClient = &guard{client: boundRedirects(o.HTTPClient), idle: s.opts.WriteTimeout}
		s.region = o.Region
	})
	return checkEndpoint(endpoint)
}

// once are the options of calls that the engine retries.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

// String is s3://bucket/prefix.
func (s *Store) String() string { return s.address }

// Traits returns the Concurrency and MostConcurrency of the Options, and Reserve.
func (s *Store) Traits() objstore.Traits { return s.reader.Traits() }

// Stats returns the counters of all reads so far; Stat, List and Delete count as requests too.
func (s *Store) Stats() Stats { return s.reader.Stats() }

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(ctx, name)
	if err != nil {
		return s.fail("delete", name, err)
	}
	err = s.reader.Do(ctx, func(ctx context.Context) error {
		_, err := s.client.DeleteObject(unguarded(ctx), &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key}, once)
		return s.explain("delete", err)
	})
	if isMissing(err) {
		return nil // some servers say so, and that is what was wanted
	}
	return s.fail("delete", name, err)
}

// key checks a name and its context, and gives the key.
func (s *Store) key(ctx context.Context, name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if key := s.prefix + name; len(key) <= objstore.MaxNameLen {
		return key, ctx.Err()
	}
	return "", fmt.Errorf("%w: with the prefix it has %d bytes, the limit of a key is %d",
		objstore.ErrName, len(s.prefix)+len(name), objstore.MaxNameLen)
}

func (s *Store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}

// checkName adds to the rules of every store that of S3.
func checkName(name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: it is not UTF-8, which S3 requires", objstore.ErrName)
	}
	return nil
}

// checkBucket refuses what would end up in another place of the URL. Whether the name is one S3 allows, S3 says.
func checkBucket(bucket string) error {
	if bucket == "" {
		return errors.New("the bucket is empty; give s3://bucket/prefix")
	}
	for _, c := range []byte(bucket) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '.' && c != '-' && c != '_' {
			return errors.New("the bucket's name has other characters than letters, digits, dots and dashes")
		}
	}
	if len(bucket) > 255 || bucket == "." || bucket == ".." {
		return errors.New("the bucket's name is not one")
	}
	return nil
}
