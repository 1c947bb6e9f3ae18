package hub

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/credentials"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// send sends a request, for a range if there is a span, and follows redirects. It returns the
// answer to a request for a file in LFS or Xet without following its redirect, because that
// describes the file. The token goes only to the endpoint's own scheme, host and port.
func (s *store) send(ctx context.Context, method string, u *url.URL, span http.Header) (*http.Response, error) {
	for via := []*http.Request(nil); ; {
		request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
		if err == nil {
			err = ranged.CheckRedirect(request, via)
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(request.Header, span)
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
	q := s.quota(request.URL)
	if err := q.Take(); err != nil {
		return nil, err
	}
	if s.own(request.URL) {
		token, err := s.bearer(request.Context())
		if err != nil {
			return nil, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
	}
	answer, err := s.Client.Send(request)
	q.Answered(answer)
	return answer, err
}

// own reports whether a URL has the endpoint's scheme, host and port.
func (s *store) own(u *url.URL) bool {
	return u.Scheme == s.endpoint.Scheme && u.Host == s.endpoint.Host
}

// quota returns the quota of requests for a URL. Other hosts have none.
func (s *store) quota(u *url.URL) *ranged.Quota {
	switch {
	case !s.own(u):
		return new(ranged.Quota)
	case strings.Contains(u.Path, "/resolve"): // and /api/resolve-cache/
		return &s.resolvers
	}
	return &s.apis
}

// token returns the token and where it was found, or where it was looked for: in the places and in
// the order of huggingface_hub (get_token). It is read for each request to the endpoint, because a
// login may replace it. While a file is being replaced, it may be missing or empty: then the last
// token of the file serves.
func (s *store) token() (token, from string) {
	token, from = credentials.Setting("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
	token = oneLine.Replace(token)
	if token == "" {
		from = tokenFile()
		text, _ := os.ReadFile(from) // usually absent
		token = strings.TrimSpace(oneLine.Replace(string(text)))
		token = s.inFile.last(token)
	}
	s.Secrets.Remember(token)
	return token, from
}

// oneLine removes line breaks, which copies of tokens bring along.
var oneLine = strings.NewReplacer("\r", "", "\n", "")

// tokenFile returns the file that hf auth login writes.
func tokenFile() string {
	expanded := func(path string) string {
		home, _ := os.UserHomeDir()
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(home, rest)
		}
		return os.ExpandEnv(path)
	}
	if named := os.Getenv("HF_TOKEN_PATH"); named != "" {
		return expanded(named)
	}
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), "~/.cache")
	return filepath.Join(expanded(cmp.Or(os.Getenv("HF_HOME"), filepath.Join(cache, "huggingface"))), "token")
}

// bearer returns the token of a request, or "".
func (s *store) bearer(ctx context.Context) (string, error) {
	if oidcResource() != "" {
		return s.trusted.Get(ctx)
	}
	token, _ := s.token()
	return token, nil
}

// authorized reports whether requests have a token, and where it is from, or would be.
func (s *store) authorized() (is bool, from string) {
	if oidcResource() != "" {
		return true, "HF_OIDC_RESOURCE"
	}
	token, from := s.token()
	return token != "", from
}

// rotated is the token of a file that others replace.
type rotated struct {
	mu    sync.Mutex
	token string
	since time.Time // when another token replaced one, or zero
}

// last returns the token, or if it is empty the last one that was not.
func (r *rotated) last(token string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token != "" && token != r.token {
		if r.token != "" {
			r.since = time.Now()
		}
		r.token = token
	}
	return r.token
}

// young reports whether the token was replaced not long ago, perhaps by the first half of another.
func (r *rotated) young() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.since.IsZero() && time.Since(r.since) < time.Minute
}

// errNoEntry reports a path that the commit does not have.
var errNoEntry = fmt.Errorf("no such file at this commit: %w", fs.ErrNotExist)

// explain returns the error for an answer that is no success. The codes are the ones that
// huggingface_hub knows (hf_raise_for_status).
func (s *store) explain(answer *http.Response) error {
	status, page := answer.StatusCode, s.endpoint.JoinPath("datasets", s.Bucket.Bucket).String()
	a := ranged.Answer{
		Status:  status,
		Code:    ranged.Clean(answer.Header.Get("X-Error-Code")),
		Message: s.Secrets.Redact(answer.Header.Get("X-Error-Message")),
		Request: ranged.Clean(answer.Header.Get("X-Request-Id")),
		After:   ranged.RetryAfter(answer.Header),
	}
	is, from := s.authorized()
	access := fmt.Sprintf("the token in %s may not read it: give one that may", from)
	if !is {
		access = fmt.Sprintf("no token was found in HF_TOKEN or in %s: set HF_TOKEN to one that may read it", from)
	}
	if q := s.quota(answer.Request.URL); status == http.StatusTooManyRequests {
		if err := q.Take(); err != nil {
			return err
		}
		q.Answered(nil)
	}
	switch {
	case ranged.TransientStatus(status), status == http.StatusUnauthorized && s.inFile.young():
		return a.Transient()
	case status == http.StatusRequestedRangeNotSatisfiable:
		return io.ErrUnexpectedEOF
	case a.Code == "RevisionNotFound":
		return fmt.Errorf("the data set has no revision %q (%w); its branches and tags are at %s/tree/main", s.revision,
			a, page)
	case a.Code == "GatedRepo":
		return fmt.Errorf("the data set is gated (%w); accept its conditions at %s, and %s", a, page, access)
	case status == http.StatusUnauthorized && (strings.Contains(a.Message, "Invalid credentials") ||
		strings.HasSuffix(answer.Request.URL.Path, "/whoami-v2")):
		return fmt.Errorf("%w; the token in %s is not valid: give another, or none for a public data set", a, from)
	case a.Code == "RepoNotFound" || status == http.StatusUnauthorized:
		return fmt.Errorf("%w; there is no data set %s, or it is private; %s", a, s.Bucket.Bucket, access)
	case status == http.StatusNotFound:
		return errNoEntry
	case status == http.StatusForbidden:
		return fmt.Errorf("%w; %s", a, access)
	}
	return fmt.Errorf("%w; check the address and HF_ENDPOINT", a)
}
