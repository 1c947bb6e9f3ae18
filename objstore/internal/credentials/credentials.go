// Package credentials finds the OAuth 2.0 access tokens that stores send with their requests, and
// keeps the last one.
package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Source finds the credentials at the first request, and again after the server has refused a
// token, because they may have been replaced. Many goroutines may use it. A nil Source has no
// tokens.
type Source struct {
	find    func(ctx context.Context) (oauth2.TokenSource, error) // ctx has client
	client  *http.Client
	secrets *ranged.Secrets
	advice  string // ends the error for no token
	places  string // where credentials are looked for

	mu      sync.Mutex
	source  oauth2.TokenSource
	whose   func() (identity, from string) // nil until the credentials are found; find sets it
	last    string                         // the last token
	renewed time.Time
}

// newSource returns a source without find. secrets remembers the tokens.
func newSource(client *http.Client, secrets *ranged.Secrets) *Source {
	return &Source{client: &http.Client{Transport: client.Transport, Timeout: 20 * time.Second}, secrets: secrets}
}

// found records whose the credentials are, and where they were found. find and the source that it
// returned call it.
func (s *Source) found(identity, from string) {
	s.whose = func() (string, string) { return strings.TrimSpace(identity), from }
}

// Describe returns whose the credentials are and where they were found, or where they were looked
// for.
func (s *Source) Describe() (identity, from string) {
	s.mu.Lock()
	whose := s.whose
	s.mu.Unlock()
	if whose == nil {
		return "", s.places
	}
	return whose()
}

// Send sends a request with a token, if there is a source. An answer that is no success becomes the
// error that refused returns, and is transient if another token may be accepted.
func (s *Source) Send(client ranged.Client, r *http.Request,
	refused func(*http.Response) error) (*http.Response, error) {
	var token string
	if s != nil {
		var err error
		if token, err = s.Token(); err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Send(r)
	if err != nil || answer.StatusCode/100 == 2 {
		return answer, err
	}
	defer answer.Body.Close()
	err = refused(answer)
	if answer.StatusCode == http.StatusUnauthorized && s != nil && s.renew(token) {
		err = &ranged.Transient{Err: err, Answered: true}
	}
	return nil, err
}

// Token returns a token that has not expired. It asks for one if there is none.
func (s *Source) Token() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source == nil {
		source, err := s.find(context.WithValue(context.Background(), oauth2.HTTPClient, s.client))
		if err != nil {
			return "", s.explain(err)
		}
		s.source = oauth2.ReuseTokenSource(nil, source)
	}
	token, err := s.source.Token()
	if err != nil {
		return "", s.explain(err)
	}
	s.last = token.AccessToken
	s.secrets.Remember(s.last)
	return s.last, nil
}

// renew forgets a token that the server refused and reports whether there may be another. All
// requests that are refused at about the same time cause one new token.
func (s *Source) renew(refused string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != refused || time.Since(s.renewed) < 10*time.Second {
		return s.last != refused
	}
	s.source, s.renewed = nil, time.Now()
	return true
}

// explain converts an error of package oauth2. It leaves out the answer's body and the URL.
func (s *Source) explain(err error) error {
	text, _, _ := strings.Cut(s.secrets.Redact(err.Error()), ". See ")
	if _, ok := errors.AsType[*ranged.Transient](err); ok {
		return err
	}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		var reason struct {
			Error       string
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(refused.Body, &reason) // the status is enough
		answer := ranged.Answer{Status: refused.Response.StatusCode, Code: ranged.Clean(reason.Error),
			Message: s.secrets.Redact(reason.Description)}
		if ranged.TransientStatus(answer.Status) {
			return answer.Transient()
		}
		text = "asked for a token, " + answer.Error()
	} else if _, ok := errors.AsType[*url.Error](err); ok {
		return ranged.TransportError(err)
	} else if strings.Contains(text, "cannot fetch token") { // without an answer
		return &ranged.Transient{Err: errors.New(text)}
	}
	return fmt.Errorf("no credentials: %s; %s", text, s.advice)
}
