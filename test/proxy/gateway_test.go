package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/shardtool/shardtool/test/gateway"
	"github.com/shardtool/shardtool/test/proxy"
)

// TestSignedRequests sends the SDK's signed requests through a proxy, unchanged and altered.
func TestSignedRequests(t *testing.T) {
	server := gateway.Test(t)
	p, err := proxy.Start(server.Endpoint, proxy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	client := server.ClientAt(p.URL)
	if h, ok := client.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
		defer h.CloseIdleConnections()
	}
	ctx, key := t.Context(), aws.String("two words (1)+%.gz")
	data := random(100_000)
	put := func() error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &server.Bucket, Key: key, Body: bytes.NewReader(data), IfNoneMatch: aws.String("*")})
		return err
	}
	get := func() (*s3.GetObjectOutput, []byte) {
		t.Helper()
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &server.Bucket, Key: key, Range: aws.String("bytes=100-199")})
		if err != nil {
			t.Fatal(err)
		}
		defer out.Body.Close()
		got, err := io.ReadAll(out.Body)
		if err != nil {
			t.Fatal(err)
		}
		return out, got
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if _, got := get(); !bytes.Equal(got, data[100:200]) {
		t.Fatal("other bytes")
	}
	if api, ok := errors.AsType[smithy.APIError](put()); !ok || api.ErrorCode() != "PreconditionFailed" {
		t.Fatal("the condition of a second put did not arrive")
	}

	keys := client.Options().Credentials
	altered := func(opt proxy.Options) {
		t.Helper()
		opt.Signer, opt.Region = keys, server.Region
		if err := p.Set(opt); err != nil {
			t.Fatal(err)
		}
	}
	altered(proxy.Options{IgnoreRange: true})
	if out, got := get(); out.ContentRange != nil || !bytes.Equal(got, data) {
		t.Errorf("IgnoreRange gave %d bytes, Content-Range %v", len(got), out.ContentRange)
	}
	altered(proxy.Options{IgnoreConditions: true})
	if err := put(); err != nil {
		t.Errorf("IgnoreConditions: %v", err)
	}
	altered(proxy.Options{Faults: proxy.Faults{WrongRange: 1}})
	if out, got := get(); !strings.HasPrefix(aws.ToString(out.ContentRange), "bytes 101-200/") || !bytes.Equal(got, data[101:201]) {
		t.Errorf("WrongRange gave %d bytes, Content-Range %s", len(got), aws.ToString(out.ContentRange))
	}
	if c := p.Counts(); c.WrongRanges != 1 {
		t.Errorf("%s", fmt.Sprintf("%+v", c))
	}
}
