// Package fake is what the servers for tests share: they record requests, and a hook may answer in
// their place.
package fake

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Hook sees a request before the server and may answer it by returning true.
type Hook func(w http.ResponseWriter, r *http.Request) bool

// Server is a server that ends with its test.
type Server struct {
	*httptest.Server

	// Mu protects what a server stores while requests are answered.
	Mu sync.Mutex

	answer http.HandlerFunc
	hook   Hook
	seen   []string // method, path and query of every request
}

// Unstarted returns a server that the test starts. answer answers what the hook does not.
func Unstarted(t testing.TB, answer http.HandlerFunc) *Server {
	s := &Server{answer: answer}
	s.Server = httptest.NewUnstartedServer(s)
	t.Cleanup(s.Close)
	return s
}

// New starts a server.
func New(t testing.TB, answer http.HandlerFunc) *Server {
	s := Unstarted(t, answer)
	s.Start()
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	hook := s.hook
	s.Mu.Unlock()
	if hook == nil || !hook(w, r) {
		s.answer(w, r)
	}
}

// Answer answers a request without the hook.
func (s *Server) Answer(w http.ResponseWriter, r *http.Request) { s.answer(w, r) }

// Hook returns the hook, which may be nil.
func (s *Server) Hook() Hook {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.hook
}

// SetHook replaces the hook, also while requests are answered.
func (s *Server) SetHook(hook Hook) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.hook = hook
}

// Requests returns method, path and query of the requests that begin with prefix.
func (s *Server) Requests(prefix string) []string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.seen), func(r string) bool { return !strings.HasPrefix(r, prefix) })
}

// Body reads the body of a request. It fails if the client has broken off.
func Body(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}
