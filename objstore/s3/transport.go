package s3

import (
	"bytes"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go/middleware"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// newHTTPClient returns a client of the SDK's kind, which supports AWS_CA_BUNDLE. Its pool holds a
// connection for every request in flight.
func newHTTPClient(o Options, requests int) aws.HTTPClient {
	if o.HTTPClient != nil {
		return o.HTTPClient
	}
	connections := requests + ranged.Extra(requests) + 4*o.UploadConcurrency
	return awshttp.NewBuildableClient().
		WithDialerOptions(ranged.TuneDialer).
		WithTransportOptions(func(t *http.Transport) { ranged.Tune(t, connections) })
}

// boundRedirects adds the limits of package ranged to a client. The SDK's follows any number of 307
// and 308 redirects, and no others unless all is set.
func boundRedirects(client aws.HTTPClient, all bool) ranged.Doer {
	if sdk, ok := client.(*awshttp.BuildableClient); ok {
		client = sdk.Freeze()
	}
	if plain, ok := client.(*http.Client); ok {
		if all {
			followed := *plain
			followed.CheckRedirect = func(r *http.Request, via []*http.Request) error {
				if r.URL.Host != via[0].URL.Host { // net/http keeps it for another port of the same host
					r.Header.Del("Authorization")
				}
				return nil
			}
			plain = &followed
		}
		return ranged.BoundRedirects(plain)
	}
	return client
}

// unsignedEncoding removes Accept-Encoding from the signed headers, because proxies may change it,
// and the front ends of Google Cloud Storage do. Package ranged sets the header after signing.
func unsignedEncoding(stack *middleware.Stack) error {
	const id = "DisableAcceptEncodingGzip"
	if _, there := stack.Finalize.Get(id); !there {
		return nil
	}
	_, err := stack.Finalize.Remove(id)
	return err
}

// client removes the bodies of refusals that the SDK cannot parse.
type client struct{ ranged.Client }

// Do sends a request. It drops the body of a refusal that is not S3's XML, for example one from a
// server that expects TLS. The SDK would take it for a truncated answer; without a body it uses the
// status.
func (c client) Do(r *http.Request) (*http.Response, error) {
	response, err := c.Client.Do(r)
	if err != nil || response.StatusCode/100 != 4 || ranged.TransientStatus(response.StatusCode) {
		return response, err
	}
	head, _ := ranged.Peek(response, 64) // including spaces before the declaration
	head = bytes.TrimLeft(head, "\ufeff \t\r\n")
	if !bytes.HasPrefix(head, []byte("<?xml")) && !bytes.HasPrefix(head, []byte("<Error")) {
		response.Body.Close()
		response.Body, response.ContentLength = http.NoBody, 0
	}
	return response, nil
}
