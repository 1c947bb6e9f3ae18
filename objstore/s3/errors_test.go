package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// operations calls every method once and returns the errors.
func operations(t *testing.T, store objstore.Store) map[string]error {
	t.Helper()
	said := map[string]error{}
	_, said["stat"] = store.Stat(t.Context(), "a")
	object, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	said["get"] = object.ReadAt(t.Context(), make([]byte, 10), 5)
	_, said["info"] = object.Info(t.Context())
	for _, err := range store.List(t.Context(), "a") {
		said["list"] = err
	}
	said["delete"] = store.Delete(t.Context(), "a")
	_, said["put"] = objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{})
	_, said["put new"] = objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{IfNoneMatch: true})
	_, said["put large"] = objstore.Put(t.Context(), store, "a", make([]byte, 6<<20), objstore.Condition{})
	said["probe"] = s3.CheckConditional(t.Context(), store)
	return said
}

// TestRefusals checks that the error of every refusal contains what to do and no credentials, even
// if the server echoes them.
func TestRefusals(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		want   string
		header string
	}{
		"InvalidAccessKeyId":           {403, "check AWS_ACCESS_KEY_ID", ""},
		"SignatureDoesNotMatch":        {403, "check AWS_SECRET_ACCESS_KEY", ""},
		"ExpiredToken":                 {400, "log in again", ""},
		"InvalidToken":                 {400, "check AWS_SESSION_TOKEN", ""},
		"RequestTimeTooSkewed":         {403, "clock", ""},
		"AccessDenied":                 {403, "lack the permission", ""},
		"NoSuchBucket":                 {404, "bucket bucket does not exist", ""},
		"PermanentRedirect":            {301, "set AWS_REGION=eu-west-3", "eu-west-3"},
		"AuthorizationHeaderMalformed": {400, "set AWS_REGION=eu-central-1", ""},
		"SomethingElse":                {400, "400 SomethingElse", ""},
	} {
		t.Run(code, func(t *testing.T) {
			s := s3server.New(t)
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				_, _ = io.Copy(io.Discard, r.Body)
				if c.header != "" {
					w.Header().Set("x-amz-bucket-region", c.header)
				}
				w.Header().Set("x-amz-request-id", token)
				s3server.RefuseSaying(w, r, c.status, code, "the region 'us-east-1' is wrong; expecting 'eu-central-1' "+
					keyID+" "+secret+" "+token+" http://u:"+secret+"@h/?X-Amz-Signature="+token)
				return true
			})
			var log bytes.Buffer
			opts := quick(s.URL)
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			for op, err := range operations(t, open(t, s.URL, "", opts)) {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v; want %q", op, err, c.want)
				}
				expectNoSecret(t, fmt.Sprintf("%s: %v %+v %#v", op, err, err, err))
				if errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v: passes for a missing object", op, err)
				}
			}
			expectNoSecret(t, log.String())
		})
	}
}

// TestRefusalBodies checks that S3's XML is recognised however it begins and is labelled, and that
// other bodies are not taken for truncated answers, which would be retried for long.
func TestRefusalBodies(t *testing.T) {
	const refusal = "<Error><Code>InvalidToken</Code><Message>no</Message></Error>"
	for name, c := range map[string]struct{ contentType, body, want string }{
		"XML behind spaces":      {"application/xml", "\r\n  " + refusal, "AWS_SESSION_TOKEN"},
		"XML called a page":      {"text/html", `<?xml version="1.0"?>` + refusal, "AWS_SESSION_TOKEN"},
		"XML called nothing":     {"", refusal, "AWS_SESSION_TOKEN"},
		"text":                   {"text/plain", "Client sent an HTTP request to an HTTPS server.\n", "https:// is meant"},
		"a page":                 {"text/html", "<html><hr>The plain HTTP request was sent to HTTPS port", "https:// is meant"},
		"nothing":                {"", "", "https:// is meant"},
		"more than is looked at": {"", strings.Repeat(" ", 1000), "https:// is meant"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s3server.New(t)
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.contentType)
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, c.body)
				return true
			})
			said := operations(t, open(t, s.URL, "", quick(s.URL)))
			for _, op := range []string{"get", "list", "delete", "put", "put new", "put large", "probe"} {
				if err := said[op]; err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v; want %q", op, err, c.want)
				}
			}
		})
	}
}

func expectNoSecret(t *testing.T, text string) {
	t.Helper()
	for _, marked := range []string{keyID, secret, token, "X-Amz-Signature"} {
		if strings.Contains(text, marked) {
			t.Errorf("shows %s: %s", marked, text)
		}
	}
}

// TestMissingKey checks that one more request distinguishes a missing object from a missing bucket,
// until the bucket is known to exist.
func TestMissingKey(t *testing.T) {
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	for range 2 {
		if _, err := store.Stat(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if heads, gets := s.Requests("HEAD"), s.Requests("GET"); len(heads) != 2 || len(gets) != 1 {
		t.Fatalf("%q, %q", heads, gets)
	}
}

// TestReadAllRequests reads objects of unknown size: each by one request, and none for its size but
// where the server refuses the range of an empty one.
func TestReadAllRequests(t *testing.T) {
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	for _, size := range []int{0, 1, 100_000} {
		data := make([]byte, size)
		if _, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		before := [2]int{len(s.Requests("HEAD")), len(s.Requests("GET"))}
		got, _, err := objstore.ReadAll(t.Context(), store, "a", 1<<30)
		if err != nil || len(got) != size {
			t.Fatalf("%d bytes of %d, %v", len(got), size, err)
		}
		if heads, gets := len(s.Requests("HEAD"))-before[0], len(s.Requests("GET"))-before[1]; gets != 1 || heads > 0 && size > 0 || heads > 1 {
			t.Errorf("%d bytes: %d HEAD, %d GET", size, heads, gets)
		}
	}
}

// TestNoCredentials checks that the error contains the chain's message and what to do.
func TestNoCredentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	_, err := store.Stat(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), "no credentials") || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Fatal(err)
	}
	opts := quick(s.URL)
	opts.Anonymous = true
	if _, err := open(t, s.URL, "", opts).Stat(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestBadOptions checks that New refuses them, without showing secrets.
func TestBadOptions(t *testing.T) {
	for name, c := range map[string]struct {
		bucket, prefix string
		opts           s3.Options
	}{
		"no bucket":       {"", "", s3.Options{}},
		"bucket":          {"a/b", "", s3.Options{}},
		"dots":            {"..", "", s3.Options{}},
		"prefix":          {"bucket", "a/../b", s3.Options{}},
		"endpoint":        {"bucket", "", s3.Options{Endpoint: "host:9000"}},
		"user":            {"bucket", "", s3.Options{Endpoint: "http://u:" + secret + "@host"}},
		"query":           {"bucket", "", s3.Options{Endpoint: "http://host/?X-Amz-Signature=" + secret}},
		"checksums":       {"bucket", "", s3.Options{RequestChecksums: "always"}},
		"small parts":     {"bucket", "", s3.Options{UploadPartSize: 1 << 20}},
		"large parts":     {"bucket", "", s3.Options{UploadPartSize: 1 << 30}},
		"no such profile": {"bucket", "", s3.Options{Profile: "none-of-that-name"}},
	} {
		_, err := s3.New(t.Context(), c.bucket, c.prefix, c.opts)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		expectNoSecret(t, fmt.Sprint(err))
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://u:"+secret+"@host")
	_, err := s3.New(t.Context(), "bucket", "", s3.Options{})
	if err == nil {
		t.Fatal("accepted a password in AWS_ENDPOINT_URL")
	}
	expectNoSecret(t, fmt.Sprint(err))
}

// TestHostileLists checks that a server that repeats pages, or lists out of order or outside the
// prefix, ends the list with an error.
func TestHostileLists(t *testing.T) {
	key := func(k string) string { return "<Contents><Key>" + k + "</Key><Size>1</Size></Contents>" }
	more := "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
	for name, body := range map[string]string{
		"circle":   more + key("p/a"),
		"empty":    more,
		"no token": "<IsTruncated>true</IsTruncated>" + key("p/a"),
		"order":    key("p/b") + key("p/a"),
		"twice":    key("p/a") + key("p/a"),
		"outside":  key("q/a"),
		"encoding": "<EncodingType>url</EncodingType>" + key("p/%zz"),
	} {
		s := s3server.New(t)
		s.SetHook(func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", body)
			return true
		})
		var last error
		for _, err := range open(t, s.URL, "p", quick(s.URL)).List(t.Context(), "") {
			last = err
		}
		if last == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// Invalid names are left out.
	s := s3server.New(t)
	s.SetHook(func(w http.ResponseWriter, _ *http.Request) bool {
		fmt.Fprintf(w, "<ListBucketResult>%s%s%s</ListBucketResult>", key("p/"), key("p/a"), key("p/dir/"))
		return true
	})
	var names []string
	for info, err := range open(t, s.URL, "p", quick(s.URL)).List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if len(names) != 1 || names[0] != "a" {
		t.Fatalf("%q", names)
	}
}
