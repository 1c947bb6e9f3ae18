package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// send sends a request, for a range if span is not empty, and follows redirects. It returns the answer
// to a request for a file in LFS or Xet without following its redirect, because that describes the
// file. The token goes only to the endpoint's own scheme, host and port.
func (s *store) send(ctx context.Context, method string, u *url.URL, span string) (*http.Response, error) {
	for via := []*http.Request(nil); ; {
		request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
		if err != nil {
			return nil, errors.New("the server redirects to what is not a URL; check HF_ENDPOINT")
		}
		if len(via) > 0 {
			if err := ranged.CheckRedirect(request, via); err != nil {
				return nil, err
			}
		}
		if span != "" {
			request.Header.Set("Range", span)
		}
		answer, err := s.sendOne(request)
		if err != nil {
			return nil, err
		}
		to, err := answer.Location()
		if answer.StatusCode/100 != 3 || err != nil || answer.Header.Get("X-Linked-Etag") != "" && !s.own(to) {
			return answer, nil
		}
		_, _ = io.CopyN(io.Discard, answer.Body, 4<<10) // so that the connection can be used again
		answer.Body.Close()
		via, u = append(via, request), to
	}
}

// sendOne sends one request, if the quota allows it.
func (s *store) sendOne(request *http.Request) (*http.Response, error) {
	var q *quota
	if s.own(request.URL) {
		if token, _ := s.token(); token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		q = &s.apis
		if strings.Contains(request.URL.Path, "/resolve") { // and /api/resolve-cache/
			q = &s.resolvers
		}
		if err := q.take(); err != nil {
			return nil, err
		}
	}
	answer, err := s.client.Do(request)
	if q != nil {
		q.answered(answer)
	}
	switch {
	case err == nil:
		return answer, nil
	case request.Context().Err() != nil:
		return nil, request.Context().Err()
	case errors.Is(err, ranged.ErrPage):
		return nil, err
	}
	return nil, ranged.TransportError(err)
}

// own reports whether a URL has the endpoint's scheme, host and port.
func (s *store) own(u *url.URL) bool {
	return u.Scheme == s.endpoint.Scheme && u.Host == s.endpoint.Host
}

// token returns the token and where it was found, or where it was looked for. It is read for each
// request to the endpoint, because a login may replace it.
func (s *store) token() (token, from string) {
	defer func() { s.secrets.Remember(token) }()
	if token = strings.TrimSpace(os.Getenv("HF_TOKEN")); token != "" {
		return token, "HF_TOKEN"
	}
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			user, _ := os.UserHomeDir()
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	from = filepath.Join(home, "token")
	text, _ := os.ReadFile(from) // usually absent
	return strings.TrimSpace(string(text)), from
}

// quota is what the Hub allows of one kind of requests.
type quota struct {
	mu     sync.Mutex
	left   int       // by the answers of this window
	end    time.Time // of the window
	policy string
	flying int // requests without an answer, which left may not include
}

var (
	limit  = regexp.MustCompile(`;\s*r=(\d+);\s*t=(\d+)`)
	policy = regexp.MustCompile(`;\s*q=(\d+);\s*w=(\d+)`)
)

// take counts a request, or returns an error that tells to wait.
func (q *quota) take() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait := time.Until(q.end); wait > 0 && q.left <= q.flying {
		return q.exhausted(wait)
	}
	q.flying++
	return nil
}

// exhausted is called with the lock.
func (q *quota) exhausted(wait time.Duration) error {
	return &ranged.Transient{Quota: true, After: wait, Answered: true, Err: fmt.Errorf("the Hub accepts no more requests for %v, by its rate limit%s; "+
		"a token in HF_TOKEN, or an account with a higher limit, raises it", wait.Round(time.Second), q.policy)}
}

// answered reads the limit from an answer, which is nil if there was none.
func (q *quota) answered(answer *http.Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flying--
	if answer == nil {
		return
	}
	if found := policy.FindStringSubmatch(answer.Header.Get("RateLimit-Policy")); found != nil {
		q.policy = fmt.Sprintf(" of %s in %s s", found[1], found[2])
	}
	now, left, wait := time.Now(), 0, time.Duration(0)
	if found := limit.FindStringSubmatch(answer.Header.Get("RateLimit")); found != nil {
		left, _ = strconv.Atoi(found[1])
		seconds, _ := strconv.Atoi(found[2])
		wait = time.Duration(seconds)*time.Second + time.Second // t was rounded down
	}
	if answer.StatusCode == http.StatusTooManyRequests {
		left, wait = 0, max(wait, ranged.RetryAfter(answer.Header))
	}
	switch end := now.Add(wait); {
	case wait == 0: // the answer says nothing
	case now.Before(q.end) && end.Sub(q.end).Abs() < 5*time.Second: // the same window
		q.left, q.end = min(q.left, left), end
	default:
		q.left, q.end = left, end
	}
}

// errNoEntry reports a path that the commit does not have.
var errNoEntry = fmt.Errorf("no such file at this commit: %w", fs.ErrNotExist)

// explain returns the error for an answer that is no success. The codes are the ones that
// huggingface_hub knows (hf_raise_for_status).
func (s *store) explain(answer *http.Response) error {
	status, page := answer.StatusCode, s.endpoint.JoinPath("datasets", s.repo).String()
	a := ranged.Answer{
		Status:  status,
		Code:    ranged.Clean(answer.Header.Get("X-Error-Code")),
		Message: s.secrets.Redact(answer.Header.Get("X-Error-Message")),
		Request: ranged.Clean(answer.Header.Get("X-Request-Id")),
		After:   ranged.RetryAfter(answer.Header),
	}
	token, from := s.token()
	access := fmt.Sprintf("the token in %s may not read it: give one that may", from)
	if token == "" {
		access = fmt.Sprintf("no token was found in HF_TOKEN or in %s: set HF_TOKEN to one that may read it", from)
	}
	switch {
	case status == http.StatusTooManyRequests && s.own(answer.Request.URL):
		q := &s.apis
		if strings.Contains(answer.Request.URL.Path, "/resolve") {
			q = &s.resolvers
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if wait := time.Until(q.end); wait > 0 {
			return q.exhausted(wait)
		}
		return a.Transient()
	case ranged.TransientStatus(status):
		return a.Transient()
	case status == http.StatusRequestedRangeNotSatisfiable:
		return io.ErrUnexpectedEOF
	case a.Code == "RevisionNotFound":
		return fmt.Errorf("the data set has no revision %q (%w); its branches and tags are at %s/tree/main", s.revision, a, page)
	case a.Code == "GatedRepo":
		return fmt.Errorf("the data set is gated (%w); accept its conditions at %s, and %s", a, page, access)
	case status == http.StatusUnauthorized && strings.Contains(a.Message, "Invalid credentials"):
		return fmt.Errorf("%w; the token in %s is not valid: give another, or none for a public data set", a, from)
	case a.Code == "RepoNotFound" || status == http.StatusUnauthorized:
		return fmt.Errorf("%w; there is no data set %s, or it is private; %s", a, s.repo, access)
	case status == http.StatusNotFound:
		return errNoEntry
	case status == http.StatusForbidden:
		return fmt.Errorf("%w; %s", a, access)
	}
	return fmt.Errorf("%w; check the address and HF_ENDPOINT", a)
}
