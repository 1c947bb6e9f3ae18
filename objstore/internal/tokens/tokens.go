// Package tokens keeps the OAuth 2.0 access token that a store sends with its requests.
package tokens

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

// Source finds the credentials at the first request, and again after the server has refused a token,
// because they may have been replaced. Many goroutines may use it. Its fields are set before that.
type Source struct {
	// Find returns the source of the tokens, which need not keep them. Its context has Client.
	Find func(ctx context.Context) (oauth2.TokenSource, error)
	// Client sends the requests for tokens, within its timeout.
	Client *http.Client
	// Secrets remembers the tokens.
	Secrets *ranged.Secrets
	// Advice ends the error for no token.
	Advice string

	mu      sync.Mutex
	source  oauth2.TokenSource
	last    string // the last token
	renewed time.Time
}

// Token returns a token that has not expired. It asks for one if there is none.
func (s *Source) Token() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source == nil {
		found, err := s.Find(context.WithValue(context.Background(), oauth2.HTTPClient, s.Client))
		if err != nil {
			return "", s.explain(err)
		}
		s.source = oauth2.ReuseTokenSource(nil, found)
	}
	token, err := s.source.Token()
	if err != nil {
		return "", s.explain(err)
	}
	s.last = token.AccessToken
	s.Secrets.Remember(s.last)
	return s.last, nil
}

// Renew forgets a token that the server refused and reports whether there may be another. All
// requests that are refused at about the same time cause one new token.
func (s *Source) Renew(refused string) bool {
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
	text, _, _ := strings.Cut(s.Secrets.Redact(err.Error()), ". See ")
	if _, ok := errors.AsType[*ranged.Transient](err); ok {
		return err
	}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		var reason struct {
			Error       string
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(refused.Body, &reason) // the status is enough
		answer := ranged.Answer{Status: refused.Response.StatusCode, Code: ranged.Clean(reason.Error), Message: s.Secrets.Redact(reason.Description)}
		if ranged.TransientStatus(answer.Status) {
			return answer.Transient()
		}
		text = "asked for a token, " + answer.Error()
	} else if _, ok := errors.AsType[*url.Error](err); ok {
		return ranged.TransportError(err)
	} else if strings.Contains(text, "cannot fetch token") { // without an answer
		return &ranged.Transient{Err: errors.New(text)}
	}
	return fmt.Errorf("no credentials: %s; %s", text, s.Advice)
}
