// Package proxy is a reverse proxy that gives an S3 server the faults of networks, gateways and
// busy servers: delays, throttled connections, resets, stalls, 503s, wrong ranges, short bodies. A
// seed and the number of a request decide its fault.
//
// Requests keep their Host, which their signature covers: a client signs for the proxy's address,
// and a server that verifies signatures against the Host it receives accepts them.
package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Proxy is an http.Handler in front of one server. Its methods may be called from many goroutines.
type Proxy struct {
	// URL is the address of a proxy made by Start.
	URL string

	target    *url.URL
	transport *http.Transport
	setup     atomic.Pointer[setup]
	counters  atomic.Pointer[counters]
	done      chan struct{} // closed by Close: ends all stalls
	close     sync.Once
	server    *http.Server
	served    chan struct{}
}

// setup is the current Options, with the state that belongs to them.
type setup struct {
	Options
	total *rate.Limiter
	up    *rate.Limiter
	next  atomic.Int64 // number of the next request that Match selects
}

// New returns a proxy to target, a URL without a path. Close frees its connections.
func New(target string, opt Options) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("proxy: %q is no server's URL", target)
	}
	p := &Proxy{
		target: u,
		transport: &http.Transport{
			MaxIdleConnsPerHost: 1024,
			DisableCompression:  true,
			ReadBufferSize:      bufferSize,
			WriteBufferSize:     bufferSize,
		},
		done: make(chan struct{}),
	}
	p.ResetCounts()
	return p, p.Set(opt)
}

// Start returns a proxy that listens on a free port of the loopback interface, at URL.
func Start(target string, opt Options) (*Proxy, error) {
	p, err := New(target, opt)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p.URL = "http://" + l.Addr().String()
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	p.served = make(chan struct{})
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // it ends by Close, and says so
	}()
	return p, nil
}

// Set replaces the options for requests that arrive from now on. Their numbers begin at 0 again.
func (p *Proxy) Set(opt Options) error {
	if err := opt.check(); err != nil {
		return err
	}
	p.setup.Store(&setup{Options: opt, total: limiter(opt.Total), up: limiter(opt.Up)})
	return nil
}

// Close ends stalled requests. For a proxy made by Start it also closes the listener and all
// connections.
func (p *Proxy) Close() {
	p.close.Do(func() {
		close(p.done)
		if p.server != nil {
			_ = p.server.Close() // connections are cut, by intention
			<-p.served
		}
		p.transport.CloseIdleConnections()
	})
}

// ServeHTTP forwards one request, or applies its fault.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	c := p.counters.Load()
	c.enter()
	defer c.leave()
	e := &exchange{proxy: p, setup: p.setup.Load(), counters: c, traffic: c.method(r.Method), w: w, r: r, begin: begin}
	e.traffic.requests.Add(1)
	e.run()
}

// hop are the headers of a single connection, which a proxy does not forward.
var hop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Expect"}

// outgoing returns the request that the server receives.
func (e *exchange) outgoing(ctx context.Context) (*http.Request, error) {
	out := e.r.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = e.proxy.target.Scheme, e.proxy.target.Host
	out.Host = e.r.Host
	out.Close = false
	for _, name := range hop {
		out.Header.Del(name)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // else net/http adds its own
	}
	if e.r.ContentLength == 0 {
		out.Body = http.NoBody
	} else {
		out.Body = &countingBody{e.r.Body, &e.traffic.up}
		if e.setup.up != nil && e.matched {
			out.Body = &paced{out.Body, ctx, e.setup.up}
		}
	}
	return out, e.alter(ctx, out)
}

type countingBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}
