package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// emptyHash is the SHA-256 of no bytes, which signatures of requests without a body contain.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// alter changes the headers of a request according to the options and its fault, and signs a
// changed request again.
func (e *exchange) alter(ctx context.Context, out *http.Request) error {
	changed := false
	drop := func(name string) {
		if out.Header.Get(name) != "" {
			out.Header.Del(name)
			changed = true
		}
	}
	completion := out.Method == http.MethodPost && out.URL.Query().Has("uploadId")
	if e.setup.IgnoreConditions || e.setup.IgnoreAtCompletion && completion {
		drop("If-Match")
		drop("If-None-Match")
		drop("If-Range")
	}
	if e.setup.IgnoreRange && e.matched {
		drop("Range")
	}
	if e.fault == wrongRange {
		var from, to int64
		if n, _ := fmt.Sscanf(out.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 {
			out.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from+1, to+1))
			changed = true
			e.count()
		}
	}
	if !changed {
		return nil
	}
	return e.sign(ctx, out)
}

// sign replaces a request's signature, in the header or in the query.
func (e *exchange) sign(ctx context.Context, out *http.Request) error {
	keys, err := e.setup.Signer.Retrieve(ctx)
	if err != nil {
		return err
	}
	query := out.URL.Query()
	for name := range query {
		if strings.HasPrefix(name, "X-Amz-") {
			query.Del(name)
		}
	}
	out.URL.RawQuery = query.Encode()
	out.Header.Del("Authorization")
	hash := out.Header.Get("X-Amz-Content-Sha256")
	if hash == "" {
		hash = emptyHash
		if out.ContentLength != 0 {
			hash = "UNSIGNED-PAYLOAD"
		}
		out.Header.Set("X-Amz-Content-Sha256", hash)
	}
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).
		SignHTTP(ctx, keys, out, hash, "s3", e.setup.Region, time.Now())
}
