package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// oidcMargin is how long before its end a token is replaced, if another identity can be had.
const oidcMargin = 5 * time.Minute

// oidcResource is the repository or the user that HF_OIDC_RESOURCE wants a token for, "" where it
// wants none. It has precedence over all other tokens.
func oidcResource() string { return strings.TrimSpace(os.Getenv("HF_OIDC_RESOURCE")) }

// exchange gets a token of the Hub for a job of a CI service that the Hub trusts ("Trusted
// Publishers"), as huggingface_hub 2.4 gets it (_get_token_from_oidc). A failure is an error: who
// asks for such a token wants no other.
func (s *store) exchange(ctx context.Context, _ bool) (token string, end time.Time, err error) {
	identity, margin, err := s.identity(ctx)
	if err != nil {
		return "", end, err
	}
	s.Secrets.Remember(identity)
	body, err := json.Marshal(map[string]string{
		"grant_type":         "urn:ietf:params:oauth:grant-type:token-exchange",
		"subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
		"subject_token":      identity,
		"resource":           oidcResource(),
	})
	if err != nil {
		return "", end, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint.JoinPath("oauth/token").String(), bytes.NewReader(body))
	if err != nil {
		return "", end, err
	}
	request.Header.Set("Content-Type", "application/json")
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int    `json:"expires_in"`
	}
	began := time.Now()
	if err := s.oidc(request, &answer, "the Hub exchanges no token for HF_OIDC_RESOURCE",
		"check the resource, and that its settings trust this workflow"); err != nil {
		return "", end, err
	}
	if answer.Token == "" {
		return "", end, errors.New("the Hub answers HF_OIDC_RESOURCE without a token")
	}
	s.Secrets.Remember(answer.Token)
	return answer.Token, began.Add(time.Duration(cmp.Or(answer.Seconds, 3600))*time.Second - margin), nil
}

// identity returns the identity of the job: the one given, or one that GitHub makes. Only the latter
// can be had again before the token ends.
func (s *store) identity(ctx context.Context) (identity string, margin time.Duration, err error) {
	if given := strings.TrimSpace(os.Getenv("HF_OIDC_ID_TOKEN")); given != "" {
		return given, 0, nil
	}
	if os.Getenv("GITHUB_ACTIONS") != "true" {
		return "", 0, errors.New("HF_OIDC_RESOURCE is set, and there is no identity to exchange: set HF_OIDC_ID_TOKEN to the id token of your CI service, or unset HF_OIDC_RESOURCE")
	}
	at, err := url.Parse(os.Getenv("ACTIONS_ID_TOKEN_REQUEST_URL"))
	key := os.Getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
	if err != nil || at.Host == "" || key == "" {
		return "", 0, errors.New("HF_OIDC_RESOURCE is set, and GitHub gives this job no identity: give the job `permissions: id-token: write`")
	}
	s.Secrets.Remember(key)
	query := at.Query()
	query.Set("audience", strings.TrimSuffix(s.endpoint.String(), "/"))
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return "", 0, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	var answer struct{ Value string }
	err = s.oidc(request, &answer, "GitHub gives no identity for HF_OIDC_RESOURCE", "give the job `permissions: id-token: write`")
	if err == nil && answer.Value == "" {
		err = errors.New("GitHub answers without an identity for HF_OIDC_RESOURCE")
	}
	return answer.Value, oidcMargin, err
}

// oidc sends a request for a token or an identity and decodes the answer.
func (s *store) oidc(request *http.Request, into any, failed, advice string) error {
	answer, err := s.Client.Send(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		a := ranged.Answer{
			Status: answer.StatusCode, Request: ranged.Clean(answer.Header.Get("X-Request-Id")),
			Message: s.Secrets.Redact(answer.Header.Get("X-Error-Message")), After: ranged.RetryAfter(answer.Header),
		}
		if ranged.TransientStatus(answer.StatusCode) {
			return a.Transient()
		}
		return fmt.Errorf("%s: %w", failed, a.Advise(advice))
	}
	return ranged.Decode(answer, into, json.Unmarshal)
}
