package s3

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Options configure a store. The zero value is right for AWS: the SDK's default chain finds
// credentials, region and endpoint in the environment (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL
// and so on), the shared files, or the role of the machine.
type Options struct {
	// Region is the bucket's region. The default is the chain's, or else us-east-1.
	Region string
	// Endpoint is the URL of a server other than AWS, without a path. The default is the chain's.
	Endpoint string
	// Gateway, if not empty, is the address of a store that Endpoint is a gateway to. It replaces
	// s3://bucket/prefix in errors and in String. Reads follow the gateway's redirects (301 and 302)
	// to other hosts, which are sent neither the signature nor a token.
	Gateway string
	// PathStyle puts the bucket into the path of URLs instead of the host. Nil means true for
	// endpoints other than AWS.
	PathStyle *bool
	// Anonymous sends unsigned requests, for public buckets.
	Anonymous bool
	// Profile is a profile of the shared configuration files.
	Profile string
	// Required is what the bucket or who pays for it requires.
	Required Required
	// Unchecked disables objstore.SumOf, for servers whose checksums are wrong, or whose ETags look
	// like MD5s of the content and are not.
	Unchecked bool
	// SingleWriter says that no other program writes below the prefix while this one does. Conditions
	// of commits are then compared with what a HEAD finds before them, and the server need not know
	// them. Writers at the same time would replace each other's data unseen.
	SingleWriter bool
	// RequestChecksums is when_supported or when_required: whether uploads send checksums that the
	// operation does not require. The default is when_required for endpoints other than AWS,
	// because not all servers support them, and the chain's setting otherwise. By default, parts of
	// uploads to such an endpoint over http have a CRC-32C instead of a SHA-256 where the server
	// confirms that it verifies it; the signature covers either.
	RequestChecksums string

	// ReadOptions tune reads.
	ReadOptions objstore.ReadOptions

	// UploadPartSize is the size of the first 2,000 parts of an upload, 5 to 16 MiB, by default 8
	// MiB. Objects of at most that size are put by one request. Each further 2,000 parts are four
	// times as large, so that 10,000 parts hold 5 TiB.
	UploadPartSize int64
	// UploadConcurrency is the number of parts of one upload that are sent at once, by default 8.
	// An upload of several parts holds one part more than that in memory, up to 2,000 parts. Later
	// parts are larger, and fewer are sent at once.
	UploadConcurrency int

	// WriteTimeout is the longest time in which a request of an upload moves no byte in either
	// direction, by default 60 s.
	WriteTimeout time.Duration

	// HTTPClient sends the requests, for tests. Nil means a client of the store's own.
	HTTPClient *http.Client
	// Logger receives warnings that are not errors. Nil means none. Secrets are never logged.
	Logger *slog.Logger
}

const (
	minPart         = 5 << 20 // S3's limit for every part but the last
	maxPart         = 16 << 20
	defaultPart     = 8 << 20
	defaultPartsOut = 8
)

func (o Options) withDefaults() (Options, error) {
	if o.UploadPartSize == 0 {
		o.UploadPartSize = defaultPart
	}
	// 256 times the first size must stay below the 5 GiB limit of a part.
	if o.UploadPartSize < minPart || o.UploadPartSize > maxPart {
		return o, fmt.Errorf("the upload part size is %d bytes; give %d to %d", o.UploadPartSize, minPart, maxPart)
	}
	if o.UploadConcurrency <= 0 {
		o.UploadConcurrency = defaultPartsOut
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch o.RequestChecksums {
	case "", "when_supported", "when_required":
	default:
		return o, errors.New("request checksums are when_supported or when_required")
	}
	if err := o.Required.check(); err != nil {
		return o, err
	}
	return o, ranged.CheckEndpoint(o.Endpoint)
}

// inDomain reports whether an endpoint's host is one of the domains or below one.
func inDomain(endpoint string, domains ...string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return slices.ContainsFunc(domains,
		func(domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) })
}

func (o Options) checksums(custom bool, chain aws.RequestChecksumCalculation) aws.RequestChecksumCalculation {
	switch {
	case o.RequestChecksums == "when_supported":
		return aws.RequestChecksumCalculationWhenSupported
	case o.RequestChecksums == "when_required" || custom:
		return aws.RequestChecksumCalculationWhenRequired
	}
	return chain
}
