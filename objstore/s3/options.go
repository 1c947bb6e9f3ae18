package s3

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/shardtool/shardtool/objstore"
)

// Options say how a store is reached. The zero value is right for AWS: the SDK's default chain gives credentials, region
// and endpoint from the environment (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL and so on), the shared files, or the role
// of the machine.
type Options struct {
	// Region of the bucket. Empty: as the chain says, else us-east-1.
	Region string
	// Endpoint is the URL of a server that is not AWS, without a path. Empty: as the chain says.
	Endpoint string
	// PathStyle puts the bucket into the path of URLs and not into the host. Nil: when the endpoint is not of AWS.
	PathStyle *bool
	// Anonymous sends unsigned requests, for public buckets.
	Anonymous bool
	// Profile of the shared configuration files.
	Profile string
	// Unchecked gives no checksums (objstore.Summed): for servers whose ETags look like MD5s of the
	// content and are not, or whose checksums are wrong.
	Unchecked bool
	// RequestChecksums is when_supported or when_required: whether uploads carry checksums that the operation does not
	// ask for. Empty: when_required where the endpoint is not of AWS, since not all servers understand them; else as the
	// chain says.
	RequestChecksums string

	objstore.ReadOptions

	// UploadPartSize is that of the first 2,000 parts of an upload, at least 5 MiB, default 8 MiB; objects up to it are
	// put by one request. Every further 2,000 parts are four times as large, so that 10,000 hold 5 TiB.
	UploadPartSize int64
	// UploadConcurrency is how many parts of one upload are sent at once, default 4. An upload of more than one part
	// holds one part more than that in memory, up to 2,000 parts; beyond, parts are larger and fewer are sent at once.
	UploadConcurrency int

	// WriteTimeout is how long a request of an upload may go without a byte in either direction, default 60 s.
	WriteTimeout time.Duration

	// HTTPClient sends the requests, for tests; nil for the store's own.
	HTTPClient *http.Client
	// Logger takes what is odd and yet no error, nil for none. No secret is logged.
	Logger *slog.Logger
}

const (
	minPart         = 5 << 20 // S3's limit for all parts but the last
	maxPart         = 16 << 20
	defaultPart     = 8 << 20
	defaultPartsOut = 4
)

func (o Options) withDefaults() (Options, error) {
	if o.UploadPartSize == 0 {
		o.UploadPartSize = defaultPart
	}
	// 256 times the first size has to stay below the 5 GiB of a part.
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
	return o, checkEndpoint(o.Endpoint)
}

// checkEndpoint refuses what an endpoint cannot have, without repeating it: there may be a password in it.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the endpoint is no URL; give one like https://host:port")
	case u.User != nil:
		return errors.New("the endpoint has a user or password in it; give credentials by the environment or a profile")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the endpoint has a query or fragment; give scheme, host and port")
	}
	return nil
}

// ofAWS reports whether an endpoint is one of AWS itself; an empty one is.
func ofAWS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if endpoint == "" || err != nil {
		return endpoint == ""
	}
	host := strings.ToLower(u.Hostname())
	if net.ParseIP(host) != nil {
		return false
	}
	for _, domain := range []string{"amazonaws.com", "amazonaws.com.cn", "api.aws", "amazonaws.eu"} {
		if host == domain || strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
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

// retryer is for the requests of an upload. It retries for about a minute, as long as reads do:
// delays drawn from 0 to 1, 2, 4 and then BackoffMax. The SDK's budget would end that sooner, for
// all uploads together.
func (o Options) retryer() aws.Retryer {
	return retry.NewStandard(func(r *retry.StandardOptions) {
		r.MaxAttempts = 26
		r.MaxBackoff = cmp.Or(o.BackoffMax, 5*time.Second)
		r.RateLimiter = ratelimit.None
	})
}
