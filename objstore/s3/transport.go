package s3

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

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
// and 308 redirects.
func boundRedirects(client aws.HTTPClient) aws.HTTPClient {
	if sdk, ok := client.(*awshttp.BuildableClient); ok {
		client = sdk.Freeze()
	}
	if plain, ok := client.(*http.Client); ok {
		return ranged.BoundRedirects(plain)
	}
	return client
}

// unsignedEncoding removes Accept-Encoding from the signed headers, because proxies may change it,
// and the front ends of Google Cloud Storage do. The guard sets the header after signing.
func unsignedEncoding(stack *middleware.Stack) error {
	const id = "DisableAcceptEncodingGzip"
	if _, there := stack.Finalize.Get(id); !there {
		return nil
	}
	_, err := stack.Finalize.Remove(id)
	return err
}

// guard cancels a request of an upload when no byte moves for idle. Requests of package ranged have
// its watchdogs instead.
type guard struct {
	client interface {
		Do(*http.Request) (*http.Response, error)
	}
	idle time.Duration
}

type unguardedKey struct{}

// unguarded marks the requests of package ranged.
func unguarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, unguardedKey{}, true)
}

// idleError is a timeout, which the SDK retries.
type idleError struct{ waited time.Duration }

func (e *idleError) Error() string   { return fmt.Sprintf("no byte moved for %v", e.waited) }
func (e *idleError) Timeout() bool   { return true }
func (e *idleError) Temporary() bool { return true }

// pageError reports an HTML page as the successful answer to a request, such as a put, that is
// never answered by one. The SDK checks only the status and would accept it.
type pageError struct{}

func (pageError) Error() string        { return ranged.ErrPage.Error() }
func (pageError) RetryableError() bool { return false }

// checkPage refuses HTML pages, except in answers to reads, whose objects may be pages and which
// are checked later. An answer without a body is not a page: some servers label every answer as
// HTML.
func checkPage(r *http.Request, response *http.Response) error {
	read := r.Method == http.MethodHead || r.Method == http.MethodGet && !r.URL.Query().Has("list-type")
	if read || response.StatusCode/100 != 2 || !ranged.IsPage(response.Header.Get("Content-Type")) {
		return nil
	}
	body := bufio.NewReaderSize(response.Body, 16)
	if _, err := body.Peek(1); errors.Is(err, io.EOF) {
		response.Body = &peeked{body, response.Body}
		return nil
	}
	response.Body.Close()
	return pageError{}
}

func (g *guard) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept-Encoding", "identity")
	response, err := g.do(r)
	if err == nil {
		err = checkPage(r, response)
	}
	if err != nil {
		return nil, err
	}
	dropPlain(response)
	return response, nil
}

// dropPlain removes the body of a refusal that is not S3's XML, for example one from a server that
// expects TLS. The SDK would take it for a truncated answer and retry; without a body it uses the
// status.
func dropPlain(response *http.Response) {
	if response.StatusCode/100 != 4 || ranged.TransientStatus(response.StatusCode) {
		return
	}
	const enough = 64 // including spaces before the declaration
	body := bufio.NewReaderSize(response.Body, enough)
	head, _ := body.Peek(enough)
	head = bytes.TrimLeft(head, "\ufeff \t\r\n")
	if bytes.HasPrefix(head, []byte("<?xml")) || bytes.HasPrefix(head, []byte("<Error")) {
		response.Body = &peeked{body, response.Body}
		return
	}
	response.Body.Close()
	response.Body, response.ContentLength = http.NoBody, 0
}

// peeked is a body whose first bytes were read ahead.
type peeked struct {
	io.Reader
	io.Closer
}

func (g *guard) do(r *http.Request) (*http.Response, error) {
	if r.Context().Value(unguardedKey{}) != nil {
		return g.client.Do(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	w := &watch{ctx: ctx, cancel: cancel, idle: g.idle}
	w.timer = time.AfterFunc(g.idle, func() { cancel(&idleError{g.idle}) })
	guarded := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		guarded.Body = &watchedBody{ReadCloser: r.Body, watch: w}
	}
	response, err := g.client.Do(guarded)
	if err != nil {
		err = lasting(w.reason(err))
		w.stop()
		return nil, err
	}
	response.Body = &watchedBody{ReadCloser: response.Body, watch: w, last: true}
	return response, nil
}

// lastingError marks a failure below HTTP that no retry can change. The SDK would retry all of
// them.
type lastingError struct{ error }

func (e *lastingError) Unwrap() error        { return e.error }
func (e *lastingError) RetryableError() bool { return false }

// lasting marks an error that no retry can change, such as an untrusted certificate.
func lasting(err error) error {
	if _, passes := errors.AsType[*ranged.Transient](ranged.TransportError(err)); passes {
		return err
	}
	return &lastingError{err}
}

type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   time.Duration
	timer  *time.Timer
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

func (w *watch) reason(err error) error {
	if idle, ok := errors.AsType[*idleError](context.Cause(w.ctx)); ok && !errors.Is(err, io.EOF) {
		return idle
	}
	return err
}

type watchedBody struct {
	io.ReadCloser
	watch *watch
	last  bool // body of the answer, whose end is the end of the request
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.watch.ctx.Err() == nil {
		b.watch.timer.Reset(b.watch.idle)
	}
	if err != nil {
		err = b.watch.reason(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	if b.last {
		b.watch.stop()
	}
	return err
}
