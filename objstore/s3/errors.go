package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// errConflict reports another conditional request for the same key in progress (409). It is
// temporary.
const errConflict = parts.Unsure("another writer is committing the same object; run again")

// errUploadGone reports missing parts (404 NoSuchUpload): the upload was completed or aborted.
const errUploadGone = parts.Unsure("the multipart upload is gone: aborted by another, or by a lifecycle rule; run again")

// answer is a refusal by the server.
type answer struct {
	ranged.Answer
	region string // of the bucket, if the answer contains it
}

// explain converts an error of the SDK to a [*ranged.Transient], a sentinel, or a text with advice.
// op is get, stat, put, list or delete. It leaves out the SDK's text, which contains URLs and text
// of servers.
func (s *store) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	if a, ok := s.answerOf(err); ok {
		return s.explainAnswer(op, a)
	}
	if canceled, ok := errors.AsType[*smithy.CanceledError](err); ok {
		return canceled.Err
	}
	transient, lost := errors.AsType[*ranged.Transient](err)
	ended := contextError(err)
	if isCredentials(err) {
		if ended != nil && !lost {
			return ended
		}
		advice := "or read a public bucket anonymously, with ?anonymous=true at the end of its address"
		if s.opts.Gateway != "" {
			advice = "with keys that were generated for a token: the token alone signs no requests"
		}
		err := fmt.Errorf("no credentials: %s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, %s",
			s.Secrets.Redact(rootText(err)), advice)
		if lost { // they were there before
			again := *transient
			again.Err = err
			return &again
		}
		return err
	}
	if lost {
		return transient
	}
	if sent, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return ranged.TransportError(sent.Err)
	}
	if ended != nil {
		return ended
	}
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok && response.Response != nil &&
		response.HTTPStatusCode()/100 == 2 {
		// The XML was cut short or is not XML, which the parser does not distinguish, or the
		// connection was lost.
		return ranged.ErrUnreadable
	}
	return errors.New(s.Secrets.Redact(rootText(err)))
}

// answerOf finds the server's refusal in an error of the SDK. An answer that could not be parsed is
// not a refusal.
func (s *store) answerOf(err error) (answer, bool) {
	response, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok || response.Response == nil || response.HTTPStatusCode() < 300 {
		// A server may refuse a commit with status 200 and an error in the body.
		api, isAPI := errors.AsType[smithy.APIError](err)
		if !isAPI || response == nil || response.Response == nil || response.HTTPStatusCode() == 0 {
			return answer{}, false
		}
		return answer{Answer: ranged.Answer{
			Status: http.StatusInternalServerError, Code: ranged.Clean(api.ErrorCode()),
			Message: s.Secrets.Redact(api.ErrorMessage()),
		}}, true
	}
	a := answer{region: ranged.Clean(response.Response.Header.Get("X-Amz-Bucket-Region")), Answer: ranged.Answer{
		Status:  response.HTTPStatusCode(),
		Request: s.Secrets.Redact(ranged.Clean(response.RequestID)),
		After:   ranged.RetryAfter(response.Response.Header),
	}}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		a.Code, a.Message = ranged.Clean(api.ErrorCode()), api.ErrorMessage()
	}
	if a.region == "" {
		if found := expecting.FindStringSubmatch(a.Message); found != nil {
			a.region = found[1]
		}
	}
	a.Message = s.Secrets.Redact(a.Message)
	return a, true
}

// expecting matches S3's text about the expected region: "the region 'us-east-1' is wrong;
// expecting 'eu-west-1'".
var expecting = regexp.MustCompile(`expecting '([a-z0-9-]{1,40})'`)

func (s *store) explainAnswer(op string, a answer) error {
	switch {
	case a.Code == "RequestTimeout" || a.Code == "SlowDown" || a.Code == "InternalError",
		a.Code == "XAmzContentSHA256Mismatch", // damaged on the way
		ranged.TransientStatus(a.Status) && a.Code != "NotImplemented",
		a.Code == "RequestTimeTooSkewed" && !s.skewed.Swap(true):
		transient := a.Transient()
		transient.Throttled = transient.Throttled || a.Code == "SlowDown"
		return transient
	case a.Code == "NoSuchBucket":
		return fmt.Errorf("the bucket %s does not exist; check its name and the endpoint", s.Bucket.Bucket)
	case a.Code == "NoSuchUpload":
		return errUploadGone
	case a.Status == http.StatusNotFound:
		return fs.ErrNotExist
	case a.Status == http.StatusPreconditionFailed && op == "put":
		return parts.ErrPrecondition
	case a.Status == http.StatusPreconditionFailed:
		return objstore.ErrChanged
	case a.Status == http.StatusRequestedRangeNotSatisfiable:
		return io.ErrUnexpectedEOF
	case a.Status == http.StatusConflict && (a.Code == "ConditionalRequestConflict" || a.Code == "OperationAborted"):
		return errConflict
	case a.Code == "KeyTooLongError" || a.Code == "KeyTooLong":
		return fmt.Errorf("%w: the server refuses a key of this length", objstore.ErrName)
	case a.Code == "InvalidObjectState":
		return fmt.Errorf("%w: %w", objstore.ErrArchived, a.Advise("restore it first (aws s3api restore-object)"))
	case a.Code == "EntityTooLarge":
		return fmt.Errorf("%w: it is larger than the server takes", objstore.ErrTooLarge)
	}
	err := a.Advise(s.advice(op, a))
	if op == "delete version" && a.Status == http.StatusForbidden {
		err = fmt.Errorf("%w: %w", objstore.ErrKept, err)
	}
	return err
}

// advice returns what to do about a refusal that has no error of its own.
func (s *store) advice(op string, a answer) string {
	moved := a.Status == http.StatusMovedPermanently || a.Status == http.StatusTemporaryRedirect ||
		a.Code == "AuthorizationHeaderMalformed" || a.Code == "IllegalLocationConstraintException"
	switch {
	case a.region != "" && a.region != s.region && (moved || a.Code == "BadRequest"):
		return fmt.Sprintf("the bucket is in region %s, asked was %s: set AWS_REGION=%s", a.region, s.region, a.region)
	case moved:
		return fmt.Sprintf("the bucket is not in region %s or not at this endpoint: set AWS_REGION to the bucket's",
			s.region)
	case a.Code == "InvalidAccessKeyId":
		return "the server does not know the access key: check AWS_ACCESS_KEY_ID or the profile, and the endpoint"
	case a.Code == "SignatureDoesNotMatch":
		return "the secret key does not fit the access key: check AWS_SECRET_ACCESS_KEY or the profile"
	case a.expired():
		return "the session token has expired: log in again and run again"
	case a.Code == "InvalidToken":
		return "the session token is not one: check AWS_SESSION_TOKEN or the profile"
	case a.Code == "RequestTimeTooSkewed":
		return "the clock of this machine is wrong: set it"
	case a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized:
		return s.adviceDenied(op)
	case a.Status == http.StatusBadRequest && (op == "get" || op == "stat") && !s.at.plain &&
		len(s.opts.Required.CustomerKey) == 0 && (a.Code == "BadRequest" || strings.Contains(a.Message, "Encryption")):
		return "if the object was put with a customer key, give that key"
	case a.Status == http.StatusBadRequest && s.at.plain && a.Code == "BadRequest": // the SDK's word for one without a code
		return ranged.PerhapsTLS
	case a.Code == "NotImplemented" && op == "put":
		return "the server knows no conditional puts or no multipart uploads: use one that does"
	}
	return ""
}

func (s *store) adviceDenied(op string) string {
	action := map[string]string{
		"get":    "s3:GetObject, and s3:ListBucket to tell what is missing from what is forbidden",
		"stat":   "s3:GetObject, and s3:ListBucket to tell what is missing from what is forbidden",
		"list":   "s3:ListBucket",
		"put":    "s3:PutObject and s3:AbortMultipartUpload",
		"delete": "s3:DeleteObject",

		"list versions":  "s3:ListBucketVersions",
		"delete version": "s3:DeleteObjectVersion, and none to delete what a lock or a legal hold protects",
	}[op]
	who := "these credentials lack the permission"
	if s.opts.Anonymous {
		who = "anonymous users lack the permission"
	}
	also := ""
	switch read := op == "get" || op == "stat" || op == "list"; {
	case read && len(s.opts.Required.CustomerKey) > 0:
		also = ", or the customer key is another"
	case read && !s.opts.Anonymous && !s.opts.Required.RequesterPays && !s.at.custom:
		also = ", or the requester pays: then the address must accept that"
	}
	return who + " (" + action + ")" + also + ": ask the owner of the bucket, or use others"
}

// unknown reports that the server does not know the credentials, as of a file that was half written.
func (a answer) unknown() bool {
	return slices.Contains([]string{"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId"},
		a.Code)
}

func (a answer) expired() bool { return a.Code == "ExpiredToken" || a.Code == "TokenRefreshRequired" }

func isCredentials(err error) bool {
	text := err.Error()
	return strings.Contains(text, "get identity: ") || strings.Contains(text, "get credentials: ")
}

// rootText returns the text of the innermost useful error.
func rootText(err error) string {
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		err = op.Err
	}
	text := err.Error()
	text = strings.TrimPrefix(text, "get identity: ")
	return strings.TrimPrefix(text, "get credentials: ")
}

// contextError returns the error of the context that err wraps, or nil.
func contextError(err error) error {
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	return nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
