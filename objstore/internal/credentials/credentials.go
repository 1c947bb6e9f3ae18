// Package credentials finds the OAuth 2.0 access tokens that stores send with their requests, and
// keeps the last one. The libraries of Google and Microsoft ask for them. It is patient with every
// source of credentials: see [Kept].
package credentials

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// ask asks for a token, which serves until end, or until it is refused if that is zero.
type ask func(ctx context.Context) (token string, end time.Time, err error)

// Source finds the credentials at the first request, and again after the server has refused a
// token, because they may have been replaced. Many goroutines may use it. A nil Source has no
// tokens.
type Source struct {
	find    func(again bool) (ask, error) // again: the server has refused a token
	client  *http.Client
	secrets *ranged.Secrets
	advice  string // ends the error for no token
	places  string // where credentials are looked for

	kept Kept[string]
	ask  ask // nil until the credentials are found; kept alone uses it

	mu    sync.Mutex
	whose func() (identity, from string) // nil until the credentials are found; find sets it
}

// newSource returns a source without find. secrets remembers the tokens.
func newSource(client *http.Client, secrets *ranged.Secrets) *Source {
	s := &Source{client: &http.Client{Transport: notes{client.Transport}, Timeout: 20 * time.Second}, secrets: secrets}
	// The libraries keep tokens themselves until 5 min (Microsoft's) and 225 s (Google's) before
	// their end.
	s.kept = Kept[string]{Ask: s.fetch, Early: 210 * time.Second}
	return s
}

// found records whose the credentials are, and where they were found. find and what it returns call
// it.
func (s *Source) found(identity, from string) {
	s.is(func() (string, string) { return strings.TrimSpace(identity), from })
}

func (s *Source) is(whose func() (identity, from string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whose = whose
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
		if token, err = s.Token(r.Context()); err != nil {
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
	if answer.StatusCode == http.StatusUnauthorized && s != nil &&
		s.kept.Refuse(func(last string) bool { return last == token }) {
		err = &ranged.Transient{Err: err, Answered: true}
	}
	return nil, err
}

// Token returns a token that has not expired. It asks for one if there is none.
func (s *Source) Token(ctx context.Context) (string, error) { return s.kept.Get(ctx) }

// fetch asks the credentials for a token, after it has found them.
func (s *Source) fetch(ctx context.Context, again bool) (token string, end time.Time, err error) {
	note := new(note)
	ctx = context.WithValue(ctx, noteKey{}, note)
	if s.ask == nil || again {
		s.ask, err = s.find(again)
	}
	if err == nil {
		token, end, err = s.ask(ctx)
	}
	if err == nil && token == "" {
		err = errors.New("the answer has no token")
	}
	if err != nil {
		return "", end, s.explain(err, note)
	}
	s.secrets.Remember(token)
	return token, end, nil
}

// note is what became of the last request for a token. The errors of libraries have it in many
// forms, and with texts of servers.
type note struct {
	answer *ranged.Answer // a refusal
	clock  string         // what to do about this machine's clock, if that is why
	err    error          // without an answer
	agent  bool           // of this machine, which is known to restart
}

type noteKey struct{}

// notes takes the note of the context.
type notes struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. It keeps the start of a refusal's body.
func (n notes) RoundTrip(r *http.Request) (*http.Response, error) {
	through := cmp.Or(n.RoundTripper, http.DefaultTransport)
	r = atOtherHost(r)
	agent := r.URL.Scheme == "http" // the services of machines and clusters; all others have TLS
	if t, ok := through.(*http.Transport); ok && agent {
		direct := t.Clone()
		direct.Proxy, direct.DisableKeepAlives = nil, true // no proxy knows this machine
		through = direct
	}
	answer, err := through.RoundTrip(r)
	note, ok := r.Context().Value(noteKey{}).(*note)
	if !ok {
		return answer, err
	}
	note.answer, note.clock, note.err, note.agent = nil, "", err, agent
	if err == nil && answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 16<<10)) // what arrives is enough
		answer.Body.Close()
		answer.Body = io.NopCloser(bytes.NewReader(text))
		var reason struct {
			Error       string
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(text, &reason) // the status is enough
		note.answer = &ranged.Answer{Status: answer.StatusCode, Code: ranged.Clean(reason.Error),
			Message: reason.Description, After: ranged.RetryAfter(answer.Header)}
		note.clock = ranged.ClockAdvice(answer.Header)
	}
	return answer, err
}

// explain returns the error for no token. It leaves out bodies of answers, and URLs.
func (s *Source) explain(err error, n *note) error {
	if _, ok := errors.AsType[*ranged.Transient](err); ok {
		return err
	}
	text, _, _ := strings.Cut(s.secrets.Redact(err.Error()), ". See ")
	advice := s.advice
	_, none := errors.AsType[noMachine](err)
	switch sent, _ := errors.AsType[*url.Error](err); {
	case none:
	case n.answer != nil:
		n.answer.Message = s.secrets.Redact(n.answer.Message)
		if ranged.TransientStatus(n.answer.Status) || n.agent && restarting(n.answer.Status) {
			return n.answer.Transient()
		}
		text, advice = "asked for a token, "+n.answer.Error(), cmp.Or(n.clock, advice)
	case n.err != nil:
		return ranged.TransportError(n.err)
	case sent != nil:
		return ranged.TransportError(sent)
	}
	return fmt.Errorf("no credentials: %s; %s", text, advice)
}

// restarting reports whether a service of a machine answers so while it is being restarted or
// upgraded, or before it knows the machine's identity
// (https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token).
func restarting(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status == http.StatusTooManyRequests ||
		status/100 == 5
}
