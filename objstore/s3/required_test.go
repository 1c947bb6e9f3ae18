package s3_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// kindOf names the operation of a request.
func kindOf(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case strings.Trim(r.URL.Path, "/") == "bucket":
		return "list"
	case r.Method == http.MethodPost && query.Has("uploads"):
		return "create"
	case r.Method == http.MethodPost:
		return "complete"
	case r.Method == http.MethodPut && query.Has("uploadId"):
		return "part"
	}
	return strings.ToLower(r.Method)
}

// TestRequired checks what requests of each operation carry, for all operations of a store.
func TestRequired(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	customer := map[string]string{
		"X-Amz-Server-Side-Encryption-Customer-Algorithm": "AES256",
		"X-Amz-Server-Side-Encryption-Customer-Key":       base64.StdEncoding.EncodeToString(key),
		"X-Amz-Server-Side-Encryption-Customer-Key-Md5":   "y4HAEFCYWuvAXWFTtA1Qpg==",
	}
	kms := map[string]string{"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "alias/k",
		"X-Amz-Storage-Class": "INTELLIGENT_TIERING", "X-Amz-Acl": "bucket-owner-full-control"}
	pays := map[string]string{"X-Amz-Request-Payer": "requester"}
	all := []string{"list", "create", "complete", "part", "put", "get", "head", "delete"}
	for name, c := range map[string]struct {
		required s3.Required
		headers  map[string]string
		of       []string
	}{
		"nothing":        {},
		"requester pays": {s3.Required{RequesterPays: true}, pays, all},
		"kms": {s3.Required{Encryption: "aws:kms", KMSKey: "alias/k", StorageClass: "INTELLIGENT_TIERING",
			ACL: "bucket-owner-full-control"}, kms, []string{"create", "put"}},
		"customer key": {s3.Required{CustomerKey: key}, customer, []string{"create", "put", "part", "get", "head"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := s3server.New(t)
			var mu sync.Mutex
			seen := map[string]bool{}
			server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				kind := kindOf(r)
				seen[kind] = true
				for header := range r.Header {
					own := strings.HasPrefix(header, "X-Amz-Server-Side-") || header == "X-Amz-Request-Payer" || header == "X-Amz-Acl" ||
						header == "X-Amz-Storage-Class"
					if own && c.headers[header] == "" {
						t.Errorf("%s has %s", kind, header)
					}
				}
				for header, value := range c.headers {
					want := ""
					for _, of := range c.of {
						if of == kind {
							want = value
						}
					}
					if got := r.Header.Get(header); got != want {
						t.Errorf("%s: %s is %q, want %q", kind, header, got, want)
					}
					if want != "" && !strings.Contains(r.Header.Get("Authorization"), strings.ToLower(header)) {
						t.Errorf("%s: the signature does not cover %s", kind, header)
					}
				}
				return false
			})
			store, err := s3.New(t.Context(), "bucket", "p", s3.Options{Endpoint: server.URL, Required: c.required})
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, 9<<20)
			for name, data := range map[string][]byte{"small": data[:10], "large": data} {
				if _, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{IfNoneMatch: true}); err != nil {
					t.Fatal(err)
				}
				if got, _, err := objstore.ReadAll(t.Context(), store, name, int64(len(data))); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
				if _, err := store.Stat(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
			for _, err := range store.List(t.Context(), "") {
				if err != nil {
					t.Error(err)
				}
			}
			if err := store.Delete(t.Context(), "small"); err != nil {
				t.Error(err)
			}
			for _, kind := range all {
				if !seen[kind] {
					t.Errorf("no request of %s", kind)
				}
			}
		})
	}
}

// TestRequiredRefused: what no server takes is refused before a request, without its value.
func TestRequiredRefused(t *testing.T) {
	for want, o := range map[string]s3.Options{
		"the encryption is not one of S3; give one of AES256, ": {Required: s3.Required{Encryption: "secret"}},
		"the storage class is not one of S3; give one of ":      {Required: s3.Required{StorageClass: "secret"}},
		"the ACL is not one of S3; give one of private, ":       {Required: s3.Required{ACL: "secret"}},
		"a key of KMS needs the encryption":                     {Required: s3.Required{KMSKey: "secret", Encryption: "AES256"}},
		"an encryption of its own":                              {Required: s3.Required{CustomerKey: make([]byte, 32), Encryption: "AES256"}},
		"has 6 bytes; give 32":                                  {Required: s3.Required{CustomerKey: []byte("secret")}},
		"others could read the customer key":                    {Required: s3.Required{CustomerKey: make([]byte, 32)}, Endpoint: "http://host"},
	} {
		_, err := s3.New(t.Context(), "bucket", "", o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestArchived: an archived object is not damaged, and the error says what to do.
func TestArchived(t *testing.T) {
	server := s3server.New(t)
	server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		s3server.RefuseSaying(w, r, http.StatusForbidden, "InvalidObjectState", "The operation is not valid for the object's storage class")
		return true
	})
	store, err := s3.New(t.Context(), "bucket", "", s3.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = objstore.ReadAll(t.Context(), store, "a", 10)
	if !errors.Is(err, objstore.ErrArchived) || !strings.Contains(err.Error(), "restore it first") {
		t.Error(err)
	}
}

// recorder keeps requests, and answers none.
type recorder struct{ urls []string }

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.urls = append(r.urls, request.URL.String())
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{}, Request: request}, nil
}

// TestAccessPoints: the ARN of an access point stands for a bucket.
func TestAccessPoints(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-1")
	for place, want := range map[string][2]string{
		"arn:aws:s3:us-west-2:123456789012:accesspoint/train/a/b": {"arn:aws:s3:us-west-2:123456789012:accesspoint/train",
			"https://train-123456789012.s3-accesspoint.us-west-2.amazonaws.com/a/b/key"},
		"arn:aws:s3:us-west-2:123456789012:accesspoint:train": {"arn:aws:s3:us-west-2:123456789012:accesspoint:train",
			"https://train-123456789012.s3-accesspoint.us-west-2.amazonaws.com/key"},
		"bucket/a/b": {"bucket", "https://bucket.s3.eu-west-1.amazonaws.com/a/b/key"},
	} {
		bucket, prefix := s3.CutBucket(place)
		if bucket != want[0] {
			t.Errorf("%s: bucket %s", place, bucket)
		}
		sent := &recorder{}
		store, err := s3.New(t.Context(), bucket, prefix, s3.Options{HTTPClient: &http.Client{Transport: sent}})
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		if got := store.String(); got != "s3://"+place {
			t.Errorf("%s: the store's address is %s", place, got)
		}
		if _, err := store.Stat(t.Context(), "key"); err == nil || len(sent.urls) == 0 || sent.urls[0] != want[1] {
			t.Errorf("%s: %v, %v", place, err, sent.urls)
		}
	}
	for place, want := range maps.All(map[string]string{
		"arn:aws:s3:us-west-2:123456789012:bucket/train": "arn:aws:s3:us-west-2:123456789012:bucket", "arn:x": "arn:x",
		"arn:aws:s3:::accesspoint/a?b": "arn:aws:s3:::accesspoint",
	}) {
		bucket, prefix := s3.CutBucket(place)
		if bucket != want {
			t.Errorf("%s: bucket %s", place, bucket)
		}
		if _, err := s3.New(t.Context(), bucket, prefix, s3.Options{}); err == nil {
			t.Errorf("%s: no error", place)
		}
	}
}
