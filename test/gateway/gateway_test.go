package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/test/gateway"
)

// childDir turns this test binary into a process that starts a server in that directory and waits
// to be killed.
const childDir = "SHARDTOOL_GATEWAY_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		s, err := gateway.Start(context.Background(), dir)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Endpoint)
		select {}
	}
	goleak.VerifyTestMain(m)
}

// closeIdle closes the connections of a test, whose goroutines goleak would count.
func closeIdle(c *s3.Client) {
	if h, ok := c.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
		h.CloseIdleConnections()
	}
}

func TestServer(t *testing.T) {
	s := gateway.Test(t)
	client := s.Client()
	defer closeIdle(client)
	ctx := t.Context()
	want := bytes.Repeat([]byte("0123456789"), 1000)
	put, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.Bucket, Key: aws.String("a/b c"), Body: bytes.NewReader(want), IfNoneMatch: aws.String("*")})
	if err != nil {
		t.Fatal(err)
	}
	get, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.Bucket, Key: aws.String("a/b c"), Range: aws.String("bytes=5-24"), IfMatch: put.ETag})
	if err != nil {
		t.Fatal(err)
	}
	defer get.Body.Close()
	if got, err := io.ReadAll(get.Body); err != nil || !bytes.Equal(got, want[5:25]) {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.Bucket, Key: aws.String("a/b c"), Body: strings.NewReader("x"), IfNoneMatch: aws.String("*")})
	if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != "PreconditionFailed" {
		t.Fatalf("a second put with If-None-Match: %v", err)
	}
	env := strings.Join(s.Env(), "\n")
	for _, part := range []string{s.Endpoint, s.AccessKey, s.SecretKey, s.Region, s.Bucket} {
		if part == "" || !strings.Contains(env, part) {
			t.Errorf("the environment lacks %q:\n%s", part, env)
		}
	}
}

func TestUserHasNoRights(t *testing.T) {
	s := gateway.Test(t)
	if err := s.AddUser(t.Context(), "guest", "guest-secret"); err != nil {
		t.Fatal(err)
	}
	options := s.Client().Options()
	options.Credentials = credentials.NewStaticCredentialsProvider("guest", "guest-secret", "")
	guest := s3.New(options)
	defer closeIdle(guest)
	_, err := guest.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &s.Bucket})
	if api, ok := errors.AsType[smithy.APIError](err); !ok || api.ErrorCode() != "AccessDenied" {
		t.Fatalf("a user without rights lists: %v", err)
	}
}

func TestCloseTwice(t *testing.T) {
	s, err := gateway.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if alive(s.Endpoint) {
		t.Fatal("the server answers after Close")
	}
}

func TestUnusableDirectory(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Start(t.Context(), file); err == nil {
		t.Fatal("a server started on a file")
	}
}

func alive(endpoint string) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(endpoint)
	if err != nil {
		return false
	}
	res.Body.Close()
	return true
}
