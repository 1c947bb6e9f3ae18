package gs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// send sends one request, with a token. op is get, put, list or delete. The body has the pieces one
// after the other. The caller closes the body of the answer, which is not a refusal.
func (s *Store) send(ctx context.Context, op, method, url string, header http.Header,
	pieces ...[]byte) (*http.Response, error) {
	body, length := content(pieces)
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	request.ContentLength = length
	maps.Copy(request.Header, header)
	if op == "get" || op == "put" {
		maps.Copy(request.Header, s.key)
	}
	return s.auth.Send(s.Client, request, func(answer *http.Response) error { return s.explain(op, s.refusal(answer)) })
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
	a.Message = s.Secrets.Redact(strings.TrimSpace(reason.Error.Message))
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
		put && a.Status == http.StatusBadRequest && strings.Contains(message, "crc32c"), // damaged on the way
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
	err := a.Advise(s.advice(op, a.Status, message))
	held := a.Code == "retentionPolicyNotMet" || a.Code == "objectUnderActiveHold"
	if held && strings.HasPrefix(op, "delete") || op == "delete version" && a.Status == http.StatusForbidden {
		err = fmt.Errorf("%w: %w", objstore.ErrKept, err)
	}
	return err
}

func (s *Store) advice(op string, status int, message string) string {
	denied := status == http.StatusForbidden || status == http.StatusUnauthorized
	switch {
	case strings.Contains(message, "encryption key") && len(s.key) > 0:
		return "the customer key is another: give the one that the object was put with"
	case strings.Contains(message, "encryption key") || strings.Contains(message, "customer-supplied"):
		return "if the object was put with a customer key, give that key"
	case strings.HasPrefix(op, "delete") && (strings.Contains(message, "retention") || strings.Contains(message, " hold")):
		return "delete it again when the retention or the hold has ended"
	case strings.Contains(message, "requester pays"):
		return "name the project that pays: add user_project=PROJECT to the address"
	case status == http.StatusNotFound:
		return fmt.Sprintf("check that the bucket %s exists", s.Bucket.Bucket)
	case status == http.StatusUnauthorized && s.auth != nil:
		return "the token has expired or was revoked: run gcloud auth application-default login, or replace the file that " +
			"GOOGLE_APPLICATION_CREDENTIALS names"
	case denied && s.auth == nil:
		return "anonymous users lack the permission (" + permissions[op] +
			"): ask the owner of the bucket, or use credentials"
	case denied:
		return "these credentials lack the permission (" + permissions[op] +
			"): ask the owner of the bucket, or use others"
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

	"delete version": "storage.objects.delete",
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
	return ranged.Decode(answer, into, json.Unmarshal)
}
