package ranged

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Tune configures a transport for a number of simultaneous connections. It uses HTTP/1.1 with one
// connection for each request, so that a lost connection costs one request and no request shares
// another's window. There is no timeout for an entire request: the watchdogs time out by bytes.
func Tune(t *http.Transport, connections int) {
	t.Proxy = http.ProxyFromEnvironment
	t.OnProxyConnectResponse = proxyAnswer
	t.MaxIdleConns = 0 // only the limit for each host applies
	t.MaxIdleConnsPerHost = connections
	t.IdleConnTimeout = 90 * time.Second
	t.TLSHandshakeTimeout = 5 * time.Second
	t.ExpectContinueTimeout = time.Second
	t.DisableCompression = true
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	// The transport may be a clone of one that speaks HTTP/2, as the SDK's is. A clone keeps the
	// protocols that its origin offers in the TLS handshake; a server that then selects h2 would
	// wait for frames and be sent HTTP/1.1.
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = new(tls.Config)
	}
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.TLSClientConfig.GetClientCertificate = clientCertificate
	t.TLSNextProto = nil
	t.WriteBufferSize = 64 << 10
}

// clientCertificate returns the certificate of this client, for a server that asks for one: that of
// the file in SHARDTOOL_CLIENT_CERT, with the key in that file or in SHARDTOOL_CLIENT_KEY. The
// files are read at each handshake, so that others may replace them.
func clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	file := os.Getenv("SHARDTOOL_CLIENT_CERT")
	if file == "" {
		return new(tls.Certificate), nil // none
	}
	certificate, err := tls.LoadX509KeyPair(file, cmp.Or(os.Getenv("SHARDTOOL_CLIENT_KEY"), file))
	if err != nil {
		return nil, &certificateError{err}
	}
	return &certificate, nil
}

// certificateError is why the client has no certificate. A file that is there may be half written.
type certificateError struct{ err error }

func (e *certificateError) Error() string {
	return fmt.Sprintf("the server asks for a certificate, and that of SHARDTOOL_CLIENT_CERT and SHARDTOOL_CLIENT_KEY "+
		"cannot be used: %v", e.err)
}

// TuneDialer configures the dialler of such a transport.
func TuneDialer(d *net.Dialer) {
	d.Timeout = 5 * time.Second
	d.KeepAlive = 30 * time.Second
}

// NewClient returns a client for a number of simultaneous requests.
func NewClient(requests int) *http.Client {
	var dialer net.Dialer
	TuneDialer(&dialer)
	transport := &http.Transport{DialContext: dialer.DialContext}
	Tune(transport, requests+Extra(requests))
	return &http.Client{Transport: transport}
}

// maxRedirects is the number of redirects that one request follows, as in browsers and net/http.
const maxRedirects = 10

// redirectError is the reason for which a redirect is not followed. It is final, because the same
// request would be redirected in the same way.
type redirectError struct{ text string }

func (e *redirectError) Error() string { return e.text }

// harmless are the headers that another host may see.
var harmless = []string{"Range", "If-Range", "If-Match", "Accept", "Accept-Encoding", "User-Agent"}

// BoundRedirects returns a copy of client that also refuses redirects that loop, that are too many,
// or that lead from https to http. A request that follows one has no Referer, because the address
// of the request before may have a signature in its query. If it goes to another host or port, it
// has the headers of a range alone: others may be credentials, or keys.
func BoundRedirects(client *http.Client) *http.Client {
	bounded := *client
	bounded.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if client.CheckRedirect != nil {
			if err := client.CheckRedirect(r, via); err != nil {
				return err
			}
		}
		r.Header.Del("Referer")
		if r.URL.Host != via[0].URL.Host { // net/http takes other ports of a host for the host
			maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return !slices.Contains(harmless, name) })
		}
		return CheckRedirect(r, via)
	}
	return &bounded
}

// CheckRedirect returns an error if r, to which the answers to via led, must not be sent: the
// redirects loop, are too many, or lead from https to http.
func CheckRedirect(r *http.Request, via []*http.Request) error {
	to := r.URL.String()
	switch {
	case slices.ContainsFunc(via, func(before *http.Request) bool { return before.URL.String() == to }):
		return &redirectError{fmt.Sprintf("the server redirects in a loop, back to %s; check the address", Scrub(to))}
	case len(via) > maxRedirects:
		return &redirectError{fmt.Sprintf("the server redirects more than %d times, at last to %s; check the address",
			maxRedirects, Scrub(to))}
	case len(via) > 0 && r.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https":
		return &redirectError{fmt.Sprintf("the server redirects from https to %s, and without TLS others could read and change "+
			"what is sent; give the address of a server that stays with https", Scrub(to))}
	}
	return nil
}

// TransientStatus reports whether a retry may succeed after an HTTP status.
func TransientStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Throttling reports whether an HTTP status asks for less load.
func Throttling(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// RetryAfter returns the wait that an answer asks for, in seconds or until a date. It is 0 if there
// is none or it is malformed.
func RetryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// ClockAdvice returns what to do about a refusal of a client whose clock is wrong, as the Date of the
// answer shows, or "".
func ClockAdvice(header http.Header) string {
	date, err := http.ParseTime(header.Get("Date"))
	ahead := time.Since(date).Round(time.Minute)
	const close = 10 * time.Minute // Azure accepts 15 min, Google 10 min
	switch {
	case err != nil || ahead.Abs() < close:
		return ""
	case ahead < 0:
		return fmt.Sprintf("this machine's clock is %v behind the server's: set it", -ahead)
	}
	return fmt.Sprintf("this machine's clock is %v ahead of the server's: set it", ahead)
}

// CheckBody checks the header of an answer to a request for n bytes from off on, and returns the
// object's size. Content-Range must be the requested range, cut at the object's end. An answer
// without it, as with status 200, must be the entire object, and no longer than what was requested.
// contentType distinguishes a page of a proxy from an object.
func CheckBody(off, n int64, contentRange string, length int64, contentType string) (size int64, err error) {
	if contentRange == "" || length == 0 && strings.HasSuffix(contentRange, "/0") { // Azurite: bytes 0--1/0
		switch {
		case IsPage(contentType) && length != 0:
			return 0, ErrPage // even if it has the right length
		case off == 0 && 0 <= length && length <= n, length == 0: // servers ignore Range for an empty object
			return length, nil
		}
		return 0, fmt.Errorf("%w: it answers a request for a part with the whole object; use a server that serves ranges",
			objstore.ErrNoRanges)
	}
	first, last, size, err := parseContentRange(contentRange)
	if err != nil {
		return 0, err
	}
	want := min(n, size-off) // both are positive if first == off, since first < size
	if first != off || last-first+1 != want || length >= 0 && length != want {
		return 0, fmt.Errorf("the server answers another range: asked for %d bytes at %d, got bytes %d-%d of %d (Content-Length %d)",
			n, off, first, last, size, length)
	}
	return size, nil
}

// ErrPage reports an HTML page in place of an object.
var ErrPage = errors.New("the answer is an HTML page with status 200, not the object: something between here and " +
	"the store answers in its place; check the address, and the proxy and its login")

// IsPage reports whether a Content-Type is HTML.
func IsPage(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/html")
}

// parseContentRange parses "bytes first-last/size", where first <= last < size.
func parseContentRange(s string) (first, last, size int64, err error) {
	bad := fmt.Errorf("the answer's Content-Range %q is not one of bytes", cutShort(s))
	span, ok := strings.CutPrefix(s, "bytes ")
	if !ok {
		return 0, 0, 0, bad
	}
	span, total, ok := strings.Cut(span, "/")
	from, to, ok2 := strings.Cut(span, "-")
	if !ok || !ok2 {
		return 0, 0, 0, bad
	}
	var errs [3]error
	first, errs[0] = parseDigits(from)
	last, errs[1] = parseDigits(to)
	size, errs[2] = parseDigits(total)
	if errors.Join(errs[:]...) != nil || first > last || last >= size {
		return 0, 0, 0, bad
	}
	return first, last, size, nil
}

func parseDigits(s string) (int64, error) {
	v, err := strconv.ParseUint(s, 10, 63)
	return int64(v), err
}

// PerhapsTLS is the advice for a status 400 without a reason, with which servers answer a request
// without TLS.
const PerhapsTLS = "if it speaks TLS, https:// is meant: check the address"

// TransportError converts a failure below HTTP. It removes the URL, which may contain a signature.
// Errors that a retry cannot change are final: certificates, servers without TLS, refused
// redirects, a refusal by a proxy. All others are Transient.
func TransportError(err error) error {
	if wrapper, ok := errors.AsType[*url.Error](err); ok {
		err = wrapper.Err
	}
	if refused, ok := errors.AsType[*redirectError](err); ok {
		return refused
	}
	if errors.Is(err, ErrPage) {
		return ErrPage
	}
	if own, ok := errors.AsType[*certificateError](err); ok && errors.Is(own.err, fs.ErrNotExist) {
		return own
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return &Transient{Err: errors.New("the connection was closed before an answer came")}
	}
	_, cert := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	if cert || authority {
		return fmt.Errorf("%s; check the host's name, or give the authority that signed its certificate "+
			"(AWS_CA_BUNDLE for S3, SSL_CERT_FILE else)", Scrub(err.Error()))
	}
	_, record := errors.AsType[tls.RecordHeaderError](err)
	if record || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return errors.New("the server speaks no TLS; check the address: http:// may be meant")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" &&
		!strings.Contains(op.Error(), "internal error") {
		return fmt.Errorf("the server refuses the TLS connection: %s; check the address, and whether the server asks for a certificate (SHARDTOOL_CLIENT_CERT)", Scrub(op.Error()))
	}
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return fmt.Errorf("%s; check the address", Scrub(err.Error()))
	}
	if refused, ok := errors.AsType[*proxyRefusal](err); ok {
		return refused
	}
	dns, ok := errors.AsType[*net.DNSError](err)
	noHost := ok && dns.IsNotFound && !dns.IsTemporary
	dial, ok := errors.AsType[*net.OpError](err)
	refused := ok && dial.Op == "dial" &&
		slices.ContainsFunc([]error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH},
			func(reason error) bool { return errors.Is(err, reason) })
	// The cause is not wrapped: a timeout of the dialler would look like the end of the caller's
	// context.
	return &Transient{Err: errors.New(Scrub(err.Error())), NoHost: noHost, Refused: refused}
}

// proxyRefusal is the final answer of a proxy to the request for a tunnel.
type proxyRefusal struct{ status int }

func (p *proxyRefusal) Error() string {
	advice := "check HTTPS_PROXY, or name the host in NO_PROXY"
	if p.status == http.StatusProxyAuthRequired {
		advice = "give the proxy's user and password in HTTPS_PROXY"
	}
	return fmt.Sprintf("the proxy answers %d %s; %s", p.status, http.StatusText(p.status), advice)
}

// proxyAnswer keeps the status of a proxy's answer, which net/http reduces to a text.
func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode/100 == 4 && !TransientStatus(answer.StatusCode) {
		return &proxyRefusal{answer.StatusCode}
	}
	return nil
}

var query = regexp.MustCompile(`\?[^\s"]*`)

// Scrub is [objstore.Redact] for a text from outside. It also removes queries of URLs that lack a
// scheme, and cuts the text at 500 bytes.
func Scrub(text string) string {
	text = query.ReplaceAllString(objstore.Redact(text), "")
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func cutShort(s string) string {
	if len(s) > 100 {
		return s[:100]
	}
	return s
}
