package az

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// version is the version of the protocol. All that the store uses is in it.
const version = "2021-12-02"

// send sends one request, for the container if key is empty. op is get, put, list or delete. A PUT
// has a body, which may be empty. The caller closes the body of the answer, which is not a refusal.
func (s *Store) send(ctx context.Context, op, method, key string, query url.Values, header http.Header,
	body []byte) (*http.Response, error) {
	u := s.base + "/" + s.Bucket.Bucket
	if key != "" {
		u += "/" + strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(key))
	}
	values := url.Values{}
	maps.Copy(values, query)
	maps.Copy(values, s.auth.sas)
	request, err := http.NewRequestWithContext(ctx, method, u+"?"+values.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the endpoint and the names do not make a URL; check the address")
	}
	maps.Copy(request.Header, header)
	switch op {
	case "get":
		maps.Copy(request.Header, s.read)
	case "put":
		maps.Copy(request.Header, s.put)
	}
	request.Header.Set("X-Ms-Version", version)
	request.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	if method == http.MethodPut {
		sum := md5.Sum(body)
		request.Header.Set("Content-Type", "application/octet-stream")
		request.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	if s.auth.key != nil {
		sign(request, s.account, s.auth.key)
	}
	answer, err := s.auth.tokens.Send(s.Client, request, func(answer *http.Response) error {
		return s.explain(op, s.refusal(answer), answer.Header)
	})
	if t, ok := errors.AsType[*ranged.Transient](err); ok && t.NoHost {
		t.Err = fmt.Errorf("%w; check the account %s: addresses are az://ACCOUNT/CONTAINER/PREFIX", t.Err, s.account)
	}
	return answer, err
}

// do is send for a request whose answer is its header.
func (s *Store) do(ctx context.Context, op, method, key string, query url.Values, header http.Header,
	body []byte) (http.Header, error) {
	answer, err := s.send(ctx, op, method, key, query, header, body)
	if err != nil {
		return nil, err
	}
	return answer.Header, answer.Body.Close()
}

// sign signs a request with the key of the account, as described at
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key.
func sign(r *http.Request, account string, key []byte) {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	h := r.Header
	lines := []string{r.Method, "", "", length, h.Get("Content-MD5"), h.Get("Content-Type"), "", "",
		h.Get("If-Match"), h.Get("If-None-Match"), "", h.Get("Range")}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if strings.HasPrefix(name, "X-Ms-") {
			lines = append(lines, strings.ToLower(name)+":"+h.Get(name))
		}
	}
	lines = append(lines, "/"+account+r.URL.EscapedPath())
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		lines = append(lines, name+":"+query.Get(name))
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join(lines, "\n")))
	h.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// refusal reads the server's reason. Its code is in the header, too, because HEAD has no body.
func (s *Store) refusal(answer *http.Response) ranged.Answer {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 16<<10)) // what arrives is enough
	var reason struct{ Code, Message string }
	_ = xml.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &reason)
	message, _, _ := strings.Cut(reason.Message, "\n") // then ids and the time
	return ranged.Answer{
		Status:  answer.StatusCode,
		Code:    ranged.Clean(cmp.Or(answer.Header.Get("X-Ms-Error-Code"), reason.Code)),
		Message: s.Secrets.Redact(strings.TrimSpace(message)),
		Request: ranged.Clean(answer.Header.Get("X-Ms-Request-Id")),
		After:   ranged.RetryAfter(answer.Header),
	}
}

// explain converts a refusal to a [*ranged.Transient], a sentinel, or a text with advice. The codes
// are documented at https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes.
func (s *Store) explain(op string, a ranged.Answer, header http.Header) error {
	switch {
	case ranged.TransientStatus(a.Status), a.Status == http.StatusBadRequest &&
		strings.Contains(strings.ToLower(a.Code+a.Message), "md5"):
		return a.Transient() // if it is the MD5, the request was damaged on the way
	case op == "put" && (a.Code == "BlobAlreadyExists" || a.Code == "ConditionNotMet"):
		return parts.ErrPrecondition
	case a.Code == "ConditionNotMet":
		return objstore.ErrChanged
	case a.Code == "InvalidBlockList":
		return errBlocksGone
	case a.Status == http.StatusNotFound && op != "list" && (a.Code == "BlobNotFound" || a.Code == "PathNotFound" ||
		a.Code == ""):
		return fs.ErrNotExist
	case a.Status == http.StatusRequestedRangeNotSatisfiable:
		return io.ErrUnexpectedEOF
	case a.Code == "BlobArchived":
		return fmt.Errorf("%w: %w", objstore.ErrArchived, a.Advise(s.advice(op, a, header)))
	}
	err := a.Advise(s.advice(op, a, header))
	held := strings.HasPrefix(a.Code, "BlobImmutable") || a.Code == "LeaseIdMissing" || a.Code == "SnapshotsPresent"
	if held && strings.HasPrefix(op, "delete") || op == "delete version" && a.Status == http.StatusForbidden {
		err = fmt.Errorf("%w: %w", objstore.ErrKept, err)
	}
	return err
}

func (s *Store) advice(op string, a ranged.Answer, header http.Header) string {
	switch a.Code {
	case "ContainerNotFound":
		return fmt.Sprintf("check the name of the container %s, or create it", s.Bucket.Bucket)
	case "KeyBasedAuthenticationNotPermitted":
		return "the account accepts no keys: use another identity, such as the one of the machine or of az login"
	case "BlobArchived":
		return "bring it to another access tier first (az storage blob set-tier)"
	case "SnapshotsPresent":
		return "delete its snapshots first"
	case "BlobUsesCustomerSpecifiedEncryption":
		return "the blob was put with a customer key: give that key, and leave it out for others"
	case "BlobCustomerSpecifiedEncryptionMismatch":
		return "the customer key is another: give the one that the blob was put with"
	case "LeaseIdMissing":
		return "another holds a lease of it: try again when that has ended"
	case "BlobImmutableDueToPolicy":
		return "a policy or a legal hold protects it: try again when that has ended"
	}
	if clock := ranged.ClockAdvice(header); clock != "" && a.Code == "AuthenticationFailed" {
		return clock
	}
	denied := a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized
	switch private := a.Status == http.StatusNotFound || a.Code == "PublicAccessNotPermitted"; {
	case s.auth.anonymous() && (denied || private):
		return "anonymous users may not do that, or the container does not exist: ask its owner, or use credentials"
	case denied:
		return s.auth.advice(op, a.Code)
	case a.Status == http.StatusNotFound:
		return "check the account, the container and the endpoint"
	case a.Status == http.StatusBadRequest && strings.HasPrefix(s.base, "http://") && a.Code == "":
		return ranged.PerhapsTLS
	}
	return ""
}
