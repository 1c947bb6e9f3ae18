package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Options configure a proxy. The zero value forwards everything unchanged.
type Options struct {
	// Seed and the number of a request among the matching ones decide its fault: the same sequence
	// meets the same faults.
	Seed uint64
	// Match selects the requests to which faults and delays apply. Nil selects all. It must be safe
	// for concurrent use.
	Match func(*http.Request) bool

	// FirstByte is the time from a request's arrival to the first byte of its answer.
	FirstByte time.Duration
	// PerConn limits the bytes per second of the answers' bodies on one connection, and Total limits
	// them for the entire proxy. 0 means no limit.
	PerConn int64
	Total   int64
	// Up limits the bytes per second of the bodies of all requests. 0 means no limit.
	Up int64

	// Faults are the shares of requests that meet a fault. Each request meets at most one.
	Faults Faults
	// RetryAfter, if not empty, is sent with the answers of Faults.Busy: seconds, or a date.
	RetryAfter string

	// IgnoreRange requests entire objects and answers 200, like a server without ranges.
	IgnoreRange bool
	// IgnoreConditions removes If-Match, If-None-Match and If-Range from all requests, including
	// those that Match does not select.
	IgnoreConditions bool
	// IgnoreAtCompletion removes If-Match and If-None-Match only from the completions of multipart
	// uploads.
	IgnoreAtCompletion bool
	// Signer signs altered requests again. Its keys, like Region, must be the server's. The faults
	// that alter a request require it.
	Signer aws.CredentialsProvider
	// Region is part of a signature.
	Region string

	// Before, if not nil, is called with each request of Match and its number, from 0, before it is
	// forwarded, for example to replace the object that is being read. It must be safe for
	// concurrent use.
	Before func(n int64, r *http.Request)
}

// Faults are shares of requests, between 0 and 1. Their sum is at most 1. Faults of a body do not
// affect answers without a body and failed answers.
type Faults struct {
	// Reset closes the connection (RST) after a random number of bytes of the body.
	Reset float64
	// Lost lets the server execute the request and then closes the connection without an answer.
	Lost float64
	// StallHeaders never answers; StallBody stops after a random number of bytes. Both keep the
	// connection until the client closes it or the proxy is closed.
	StallHeaders float64
	StallBody    float64
	// Busy answers 503 SlowDown without forwarding the request.
	Busy float64
	// Short ends the connection after a random number of bytes, fewer than Content-Length.
	Short float64
	// Cut ends the body early with a matching Content-Length, as for a truncated object, but not a
	// matching Content-Range.
	Cut float64
	// WrongRange requests a range one byte further on. Content-Range and the bytes belong to that
	// range.
	WrongRange float64
	// Flip changes one bit of the body.
	Flip float64
	// HTML answers 200 with a page, like a captive portal.
	HTML float64
}

// fault is the fault of one request.
type fault int

const (
	none fault = iota
	reset
	lost
	stallHeaders
	stallBody
	busy
	short
	cut
	wrongRange
	html
	flip
	faults // number of faults
)

// shares returns the shares in the order of the constants.
func (f Faults) shares() [faults]float64 {
	return [faults]float64{reset: f.Reset, lost: f.Lost, stallHeaders: f.StallHeaders, stallBody: f.StallBody,
		busy:  f.Busy,
		short: f.Short, cut: f.Cut, wrongRange: f.WrongRange, html: f.HTML, flip: f.Flip}
}

// check is called once for each Set.
func (o Options) check() error {
	sum := 0.0
	for _, share := range o.Faults.shares() {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("proxy: a share of %v; give one between 0 and 1", share)
		}
		sum += share
	}
	switch {
	case sum > 1+1e-9:
		return fmt.Errorf("proxy: the shares of faults add up to %v; a request meets one at most", sum)
	case o.FirstByte < 0 || o.PerConn < 0 || o.Total < 0 || o.Up < 0:
		return errors.New("proxy: negative time or rate")
	case o.Signer == nil && (o.IgnoreRange || o.IgnoreConditions || o.IgnoreAtCompletion || o.Faults.WrongRange > 0):
		return errors.New("proxy: altered requests need a new signature; set Signer and Region")
	}
	return nil
}

// draw returns the fault of request n, and where in the body it takes effect, as a share of the
// length.
func (o *Options) draw(n int64) (f fault, at float64) {
	u := unit(o.Seed, uint64(2*n))
	for f, share := range o.Faults.shares() {
		if u -= share; share > 0 && u < 0 {
			return fault(f), unit(o.Seed, uint64(2*n+1))
		}
	}
	return none, 0
}

// unit maps a seed and a number to [0, 1): splitmix64's mixing of their sum.
func unit(seed, n uint64) float64 {
	z := seed*0xd1342543de82ef95 + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}
