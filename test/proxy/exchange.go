package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	busyPage = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		`<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>0</RequestId></Error>`
	htmlPage = `<!DOCTYPE html><html><head><title>Sign in to the network</title></head><body><form>Sign in</form></body></html>`
)

// exchange is one request in progress.
type exchange struct {
	proxy    *Proxy
	setup    *setup
	counters *counters
	traffic  *traffic
	w        http.ResponseWriter
	r        *http.Request
	begin    time.Time
	matched  bool
	fault    fault
	at       float64 // where in the body it takes effect, as a share of its length
}

func (e *exchange) run() {
	if match := e.setup.Match; match == nil || match(e.r) {
		n := e.setup.next.Add(1) - 1
		e.matched = true
		e.fault, e.at = e.setup.draw(n)
		if e.setup.Before != nil {
			e.setup.Before(n, e.r)
		}
	}
	switch e.fault {
	case stallHeaders:
		e.drain()
		e.count()
		e.stall()
	case busy:
		e.drain()
		e.count()
		e.waitFirstByte()
		if e.setup.RetryAfter != "" {
			e.w.Header().Set("Retry-After", e.setup.RetryAfter)
		}
		e.page(http.StatusServiceUnavailable, "application/xml", busyPage)
	case html:
		e.drain()
		e.count()
		e.waitFirstByte()
		e.page(http.StatusOK, "text/html; charset=utf-8", htmlPage)
	default:
		e.forward()
	}
}

func (e *exchange) forward() {
	// The request to the server ends with the client's connection, or with the proxy.
	ctx, cancel := context.WithCancel(e.r.Context())
	defer cancel()
	out, err := e.outgoing(ctx)
	if err != nil {
		e.page(http.StatusBadGateway, "text/plain", "proxy: "+err.Error())
		return
	}
	res, err := e.proxy.transport.RoundTrip(out)
	if err != nil {
		if e.r.Context().Err() == nil {
			e.page(http.StatusBadGateway, "text/plain", "proxy: "+err.Error())
		}
		return
	}
	defer res.Body.Close()
	if e.fault == lost {
		_, _ = io.Copy(io.Discard, res.Body)
		e.count()
		e.cutConnection(true)
		return
	}
	header := e.w.Header()
	for name, values := range res.Header {
		header[name] = values
	}
	for _, name := range hop {
		header.Del(name)
	}
	if res.ContentLength >= 0 {
		header.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	e.waitFirstByte()
	e.body(res)
}

// body sends headers and body, up to the byte at which the fault takes effect.
func (e *exchange) body(res *http.Response) {
	limit := res.ContentLength
	strikes, flipAt := false, int64(-1)
	if hasBody := limit > 0 && e.r.Method != http.MethodHead && res.StatusCode < 300; hasBody {
		switch e.fault {
		case reset, stallBody, short, cut:
			strikes = true
			limit = int64(e.at * float64(limit)) // less than all of it
			e.count()
		case flip:
			flipAt = int64(e.at * float64(limit))
			e.count()
		}
	}
	if strikes && e.fault == cut {
		e.w.Header().Set("Content-Length", strconv.FormatInt(limit, 10))
	}
	e.w.WriteHeader(res.StatusCode)
	if e.r.Method == http.MethodHead {
		return
	}
	src := io.Reader(res.Body)
	if strikes {
		src = io.LimitReader(res.Body, limit)
	}
	if flipAt >= 0 {
		src = &flipped{src, flipAt}
	}
	if err := e.copy(src); err != nil {
		if !strikes {
			panic(http.ErrAbortHandler) // the server or the client broke off: so does the proxy
		}
		return
	}
	if !strikes || e.fault == cut {
		return
	}
	// Copied bytes may still be in the server's buffer: send them before the fault.
	if http.NewResponseController(e.w).Flush() != nil {
		return
	}
	if e.fault == stallBody {
		e.stall()
		return
	}
	e.cutConnection(e.fault == reset)
}

// flipped flips one bit of what is read, at an offset.
type flipped struct {
	io.Reader
	left int64 // bytes before it; negative after it
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if f.left >= 0 && f.left < int64(n) {
		p[f.left] ^= 1
	}
	f.left -= int64(n)
	return n, err
}

// count records that the request has met its fault.
func (e *exchange) count() { e.counters.faults[e.fault].Add(1) }

// drain reads the request's body: a connection with unread bytes would not notice that the client
// has gone.
func (e *exchange) drain() {
	n, _ := io.Copy(io.Discard, e.r.Body)
	e.traffic.up.Add(n)
}

// stall waits until the client closes the connection or the proxy is closed, and closes the
// connection.
func (e *exchange) stall() {
	select {
	case <-e.r.Context().Done():
	case <-e.proxy.done:
	}
	panic(http.ErrAbortHandler)
}

// waitFirstByte waits until the answer may begin.
func (e *exchange) waitFirstByte() {
	if e.setup.FirstByte == 0 || !e.matched {
		return
	}
	timer := time.NewTimer(e.setup.FirstByte - time.Since(e.begin))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.r.Context().Done():
	case <-e.proxy.done:
	}
}

func (e *exchange) page(status int, kind, text string) {
	e.w.Header().Set("Content-Type", kind)
	e.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	e.w.WriteHeader(status)
	n, _ := io.WriteString(e.w, text)
	e.traffic.down.Add(int64(n))
}

// cutConnection closes the client's connection in the middle of an answer, by a reset or normally.
func (e *exchange) cutConnection(withReset bool) {
	conn, _, err := http.NewResponseController(e.w).Hijack()
	if err != nil {
		panic(errors.Join(errors.New("proxy: the server's connections cannot be cut"), err))
	}
	if tcp, ok := conn.(*net.TCPConn); ok && withReset {
		_ = tcp.SetLinger(0) // else it is closed in peace, which the client takes for a fault too
	}
	_ = conn.Close()
}
