package ranged_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// doer answers requests by a function.
type doer func(r *http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// TestSend sends a body over connections that fail in several ways, each attempt from its
// beginning. A connection on which bytes move may take longer than every limit.
func TestSend(t *testing.T) {
	const idle = 400 * time.Millisecond
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		fail     func(r *http.Request, attempt int) error // instead of an answer
		attempts int
		want     string
	}{
		"good":   {func(*http.Request, int) error { return nil }, 1, ""},
		"resets": {func(_ *http.Request, n int) error { return when(n < 5, &ranged.Transient{Err: lost}) }, 5, ""},
		"down":   {func(*http.Request, int) error { return &ranged.Transient{Err: lost} }, 0, "lost; check the network"},
		"refuses": {func(_ *http.Request, n int) error {
			return when(n == 2, error(ranged.Answer{Status: 403, Code: "No"}), &ranged.Transient{Err: lost})
		}, 2, "the server answers 403 No"},
		"stalls": {func(r *http.Request, _ int) error { <-r.Context().Done(); return r.Context().Err() }, 3, "no answer for 400ms"},
		"slow": {func(r *http.Request, _ int) error {
			for p := make([]byte, 1); ; time.Sleep(idle / 20) {
				if _, err := r.Body.Read(p); err == io.EOF {
					return nil
				} else if err != nil || r.Context().Err() != nil {
					t.Errorf("%v, %v", err, r.Context().Err())
				}
			}
		}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := ranged.New("s", objstore.ReadOptions{BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond, MaxElapsed: idle}, nil)
				r.WriteTimeout = idle
				attempts := 0
				client := ranged.Client{Doer: doer(func(request *http.Request) (*http.Response, error) {
					attempts++
					if err := c.fail(request, attempts); err != nil {
						return nil, err
					}
					return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(""))}, nil
				})}
				body := strings.NewReader(strings.Repeat("x", 60))
				err := r.Send(t.Context(), body, func(ctx context.Context) error {
					if body.Len() != 60 {
						t.Errorf("attempt %d has %d bytes", attempts+1, body.Len())
					}
					request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://host/", io.NopCloser(body))
					if err != nil {
						return err
					}
					answer, err := client.Do(request)
					if err != nil {
						return err
					}
					return answer.Body.Close()
				})
				if c.attempts > 0 && attempts != c.attempts || attempts < 1 {
					t.Errorf("%d attempts, want %d", attempts, c.attempts)
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v; want %q", err, c.want)
				}
				if given := name == "down" || name == "stalls"; ranged.GivenUp(err) != given {
					t.Errorf("given up: %v", err)
				}
			})
		})
	}
}

// when returns the first error if the condition holds, else the second or nil.
func when(condition bool, err error, or ...error) error {
	if condition {
		return err
	}
	return errors.Join(or...)
}

// TestSecrets checks that credentials are removed from texts, those of older rotations too.
func TestSecrets(t *testing.T) {
	var s ranged.Secrets
	for _, value := range []string{"", "first-token", "second-token"} {
		s.Remember(value, "key")
	}
	if got := s.Redact("a first-token, second-token and key at https://u:p@host/x?sig=1"); got != "a [secret], [secret] and [secret] at https://host/x" {
		t.Error(got)
	}
}
