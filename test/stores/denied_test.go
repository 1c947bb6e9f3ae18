package stores_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
)

// operations are the first calls of users of a store.
var operations = map[string]func(ctx context.Context, store objstore.Store) error{
	"get": func(ctx context.Context, store objstore.Store) error {
		object, err := store.Open(ctx, "object")
		if err != nil {
			return err
		}
		defer object.Close()
		return object.ReadAt(ctx, make([]byte, 1), 0)
	},
	"stat": func(ctx context.Context, store objstore.Store) error {
		_, err := store.Stat(ctx, "object")
		return err
	},
	"list": func(ctx context.Context, store objstore.Store) error {
		for _, err := range store.List(ctx, "") {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"put": func(ctx context.Context, store objstore.Store) error {
		_, err := objstore.Put(ctx, store, "new", []byte("data"), objstore.Condition{})
		return err
	},
	"put conditionally": func(ctx context.Context, store objstore.Store) error {
		_, err := objstore.Put(ctx, store, "new", []byte("data"), objstore.Condition{IfNoneMatch: true})
		return err
	},
	"put in parts": func(ctx context.Context, store objstore.Store) error {
		_, err := objstore.Put(ctx, store, "new", make([]byte, 10<<20), objstore.Condition{})
		return err
	},
	"delete": func(ctx context.Context, store objstore.Store) error { return store.Delete(ctx, "object") },
}

// TestWrong opens the right server with one wrong setting. Every operation fails, with an error
// that has what to do.
func TestWrong(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	if _, err := objstore.Put(t.Context(), s.open(t, bucket, "", s3store.Options{}), "object", []byte("data"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	wrongKey, wrongSecret := *s, *s
	wrongKey.access = "AKNOBODY"
	wrongSecret.secret = "not-the-secret-key-of-this-server"
	for name, test := range map[string]struct {
		server  *server
		bucket  string
		options s3store.Options
		phrases []string
	}{
		"bucket":     {s, "no-such-bucket", s3store.Options{}, []string{"the bucket no-such-bucket does not exist", "check its name and the endpoint"}},
		"region":     {s, bucket, s3store.Options{Region: "eu-west-1"}, []string{"eu-west-1", "set AWS_REGION"}},
		"access key": {&wrongKey, bucket, s3store.Options{}, []string{"InvalidAccessKeyId", "check AWS_ACCESS_KEY_ID"}},
		"secret key": {&wrongSecret, bucket, s3store.Options{}, []string{"SignatureDoesNotMatch", "check AWS_SECRET_ACCESS_KEY"}},
		"anonymous":  {s, bucket, s3store.Options{Anonymous: true}, []string{"AccessDenied", "anonymous users lack the permission"}},
	} {
		for operation, run := range operations {
			t.Run(name+"/"+operation, func(t *testing.T) {
				store := test.server.open(t, test.bucket, "", test.options)
				err := run(t.Context(), store)
				wantText(t, test.server, err, append(test.phrases, strings.Fields(operation)[0], "s3://"+test.bucket)...)
				wantText(t, s, err) // nor the secret of the right one
			})
		}
	}
}

// TestMissingKey distinguishes a missing object from a missing bucket.
func TestMissingKey(t *testing.T) {
	s, _ := versity(t)
	store := s.open(t, s.bucket(t), "", s3store.Options{})
	for _, operation := range []string{"get", "stat"} {
		err := operations[operation](t.Context(), store)
		wantText(t, s, err, operation+" object", "file does not exist")
		if strings.Contains(err.Error(), "bucket ") {
			t.Errorf("the bucket is blamed: %v", err)
		}
	}
}

// TestPackNowhere packs into a bucket that does not exist: the error names the bucket, and not a
// data set.
func TestPackNowhere(t *testing.T) {
	s, _ := versity(t)
	for name, s := range map[string]*server{"versity": s, "fake": inMemory(t)} {
		w, err := writer.New(t.Context(), s.open(t, "no-such-bucket", "p", s3store.Options{}), writer.Options{})
		if err == nil {
			_ = w.Abort()
		}
		wantText(t, s, err, "the bucket no-such-bucket does not exist")
		if errors.Is(err, writer.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoCredentials(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	none := *s
	none.access, none.secret = "", ""
	for operation, run := range operations {
		t.Run(operation, func(t *testing.T) {
			wantText(t, s, run(t.Context(), none.open(t, bucket, "", s3store.Options{})), "no credentials", "set AWS_ACCESS_KEY_ID")
		})
	}
}

// TestNoPermission uses an account that the bucket's policy permits to read, or not even that.
func TestNoPermission(t *testing.T) {
	s, g := versity(t)
	bucket := s.bucket(t)
	if _, err := objstore.Put(t.Context(), s.open(t, bucket, "", s3store.Options{}), "object", []byte("data"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	guest := *s
	guest.access, guest.secret = "guest", "guests-own-secret-key"
	if err := g.AddUser(t.Context(), guest.access, guest.secret); err != nil {
		t.Fatal(err)
	}
	actions := map[string]string{"get": "s3:GetObject", "stat": "s3:GetObject", "list": "s3:ListBucket", "put": "s3:PutObject", "delete": "s3:DeleteObject"}
	denied := func(t *testing.T, operation string) {
		t.Helper()
		err := operations[operation](t.Context(), guest.open(t, bucket, "", s3store.Options{}))
		wantText(t, &guest, err, "AccessDenied", "these credentials lack the permission", actions[strings.Fields(operation)[0]], "ask the owner of the bucket")
	}
	for operation := range operations {
		t.Run("nothing/"+operation, func(t *testing.T) { denied(t, operation) })
	}
	policy := fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": ["guest"]},
		"Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::%s/*"]}]}`, bucket)
	client := g.Client()
	if h, ok := client.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
		defer h.CloseIdleConnections()
	}
	if _, err := client.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	for operation, run := range operations {
		t.Run("reading/"+operation, func(t *testing.T) {
			if operation != "get" && operation != "stat" {
				denied(t, operation)
			} else if err := run(t.Context(), guest.open(t, bucket, "", s3store.Options{})); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// scripted is a server that answers every request with one refusal.
func scripted(t *testing.T, status int, code, message string) *server {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>`, code, message)
		}
	}))
	t.Cleanup(h.Close)
	return &server{endpoint: h.URL, region: "us-east-1", access: "ASIAEXAMPLE", secret: "scripted-secret-key", token: "scripted-session-token"}
}

// TestRefusals tests errors that only AWS returns; the message repeats secrets, as that of some
// servers does.
func TestRefusals(t *testing.T) {
	for code, test := range map[string]struct {
		status  int
		phrases []string
	}{
		"ExpiredToken":         {http.StatusBadRequest, []string{"the session token has expired", "log in again and run again"}},
		"InvalidToken":         {http.StatusBadRequest, []string{"check AWS_SESSION_TOKEN"}},
		"RequestTimeTooSkewed": {http.StatusForbidden, []string{"the clock of this machine is wrong"}},
		"PermanentRedirect":    {http.StatusMovedPermanently, []string{"set AWS_REGION"}},
	} {
		for operation, run := range operations {
			t.Run(code+"/"+operation, func(t *testing.T) {
				s := scripted(t, test.status, code, "The provided token scripted-session-token, key scripted-secret-key is bad.")
				err := run(t.Context(), s.open(t, "bucket", "p", s3store.Options{}))
				wantText(t, s, err, append(test.phrases, code, "s3://bucket/p")...)
			})
		}
	}
}

// TestPortal uses a proxy that answers everything with its login page and status 200. No page is
// taken for data, and no write counts as successful.
func TestPortal(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	if _, err := objstore.Put(t.Context(), s.open(t, bucket, "", s3store.Options{}), "object", []byte("data"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	through, _ := s.faulty(t, proxy.Options{Faults: proxy.Faults{HTML: 1}})
	for operation, run := range operations {
		t.Run(operation, func(t *testing.T) {
			err := run(t.Context(), through.open(t, bucket, "", s3store.Options{}))
			wantText(t, s, err, "the proxy and its login")
		})
	}
}
