package gs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
	"github.com/shardtool/shardtool/objstore/internal/tokens"
)

// send sends one request, with a token. op is get, put, list or delete. The body has the pieces one
// after the other. The caller closes the body of the answer, which is not a refusal.
func (s *Store) send(ctx context.Context, op, method, url string, header http.Header, pieces ...[]byte) (*http.Response, error) {
	body, length := content(pieces)
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	request.ContentLength = length
	maps.Copy(request.Header, header)
	var token string
	if s.auth != nil {
		if token, err = s.auth.Token(); err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := s.client.Send(request)
	if err != nil || answer.StatusCode/100 == 2 {
		return answer, err
	}
	defer answer.Body.Close()
	err = s.explain(op, s.refusal(answer))
	if answer.StatusCode == http.StatusUnauthorized && token != "" && s.auth.Renew(token) {
		err = &ranged.Transient{Err: err, Answered: true}
	}
	return nil, err
}

// refusal reads the server's reason, which is JSON or, for the bytes of objects, text.
func (s *Store) refusal(answer *http.Response) ranged.Answer {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 16<<10)) // what arrives is enough
	a := ranged.Answer{Status: answer.StatusCode, After: ranged.RetryAfter(answer.Header)}
	var reason struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	if json.Unmarshal(text, &reason) != nil && !bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		reason.Error.Message = string(text)
	}
	a.Message = s.shown.Redact(strings.TrimSpace(reason.Error.Message))
	if len(reason.Error.Errors) > 0 {
		a.Code = ranged.Clean(reason.Error.Errors[0].Reason)
	}
	return a
}

// explain converts a refusal to a [*ranged.Transient], a sentinel, or a text with advice.
func (s *Store) explain(op string, a ranged.Answer) error {
	put := op == "put"
	message := strings.ToLower(a.Message)
	switch {
	case ranged.TransientStatus(a.Status), put && a.Status == http.StatusConflict,
		strings.HasSuffix(strings.ToLower(a.Code), "ratelimitexceeded"):
		return a.Transient()
	case a.Status == http.StatusNotFound && strings.Contains(message, "bucket does not exist"):
		return fmt.Errorf("the bucket %s does not exist; check its name", s.Bucket.Bucket)
	case a.Status == http.StatusNotFound && !put && op != "list":
		return fs.ErrNotExist
	case a.Status == http.StatusPreconditionFailed:
		return parts.ErrPrecondition
	case a.Status == http.StatusRequestedRangeNotSatisfiable:
		return io.ErrUnexpectedEOF
	}
	if advice := s.advice(op, a.Status, message); advice != "" {
		return fmt.Errorf("%w; %s", a, advice)
	}
	return a
}

func (s *Store) advice(op string, status int, message string) string {
	denied := status == http.StatusForbidden || status == http.StatusUnauthorized
	switch {
	case strings.Contains(message, "requester pays"):
		return "name the project that pays: add user_project=PROJECT to the address"
	case status == http.StatusNotFound:
		return fmt.Sprintf("check that the bucket %s exists", s.Bucket.Bucket)
	case status == http.StatusUnauthorized && s.auth != nil:
		return "the token has expired or was revoked: run gcloud auth application-default login, or replace the file that " +
			"GOOGLE_APPLICATION_CREDENTIALS names"
	case denied && s.auth == nil:
		return "anonymous users lack the permission (" + permissions[op] + "): ask the owner of the bucket, or use credentials"
	case denied:
		return "these credentials lack the permission (" + permissions[op] + "): ask the owner of the bucket, or use others"
	case status == http.StatusBadRequest && strings.HasPrefix(s.base, "http://"):
		return ranged.PerhapsTLS
	}
	return ""
}

// permissions has what each operation needs.
var permissions = map[string]string{
	"get":    "storage.objects.get, and storage.objects.list to tell what is missing from what is forbidden",
	"list":   "storage.objects.list",
	"put":    "storage.objects.create; storage.objects.delete to replace, and for the parts of large objects",
	"delete": "storage.objects.delete",
}

// do sends a request without a body. The answer is JSON, or ignored if into is nil.
func (s *Store) do(ctx context.Context, op, method, url string, into any) error {
	answer, err := s.send(ctx, op, method, url, nil, nil)
	if err != nil {
		return err
	}
	if into == nil {
		return answer.Body.Close()
	}
	return parse(answer, into)
}

// parse reads JSON and closes the body.
func parse(answer *http.Response, into any) error {
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return &ranged.Transient{Answered: true, Err: errors.New("the answer cannot be read: it broke off, or something " +
			"between here and the store answers in its place (check the endpoint, and the proxy and its login)")}
	}
	return nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

const scope = "https://www.googleapis.com/auth/devstorage.read_write"

// auth has the application default credentials.
type auth struct {
	tokens.Source
	found atomic.Pointer[google.Credentials] // the last that were found
}

func newAuth(client *http.Client, shown *ranged.Secrets) *auth {
	a := new(auth)
	a.Client, a.Secrets = client, shown
	a.Advice = "set GOOGLE_APPLICATION_CREDENTIALS, run gcloud auth application-default login, or read a public bucket with anonymous=true"
	a.Find = func(ctx context.Context) (oauth2.TokenSource, error) {
		found, err := google.FindDefaultCredentials(ctx, scope)
		a.found.Store(found)
		if err != nil {
			return nil, err
		}
		return found.TokenSource, nil
	}
	return a
}

// describe returns who the credentials are for, and where they were found.
func (a *auth) describe() (identity, from string) {
	found := a.found.Load()
	var file struct {
		Type          string
		Email         string `json:"client_email"`
		Impersonation string `json:"service_account_impersonation_url"`
	}
	named := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS")
	switch {
	case found == nil && named != "":
		return "", named + ", which GOOGLE_APPLICATION_CREDENTIALS names"
	case found == nil:
		return "", "GOOGLE_APPLICATION_CREDENTIALS, the file of gcloud auth application-default login, the metadata server"
	case found.JSON == nil:
		email, _ := metadata.NewClient(a.Client).Email("default") // an older server may have none
		return cmp.Or(email, "the service account of the machine"), "the metadata server"
	}
	_ = json.Unmarshal(found.JSON, &file) // package google has parsed it
	if of, ok := strings.CutSuffix(path.Base(file.Impersonation), ":generateAccessToken"); ok {
		file.Email = of
	}
	identity = strings.TrimSpace(strings.ReplaceAll(ranged.Clean(file.Type), "_", " ") + " " + a.Secrets.Redact(file.Email))
	if named != "" {
		return identity, named + ", which GOOGLE_APPLICATION_CREDENTIALS names"
	}
	return identity, "the file of gcloud auth application-default login"
}
