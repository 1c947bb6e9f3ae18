package stores_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// TestVersionsOfMoto purges in a bucket with versioning of a server that is not ours: every version
// that has the bytes is in the receipt, and none is left after PurgeOptions.Versions.
func TestVersionsOfMoto(t *testing.T) {
	s := moto(t)
	bucket := s.bucket(t)
	client := s.sdk(t)
	_, err := client.PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{Bucket: &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	if err != nil {
		t.Fatal(err)
	}
	store := s.open(t, bucket, "set", s3store.Options{})
	packNumbered(t, store, 60)
	if _, err := reshard.RemoveKeys(t.Context(), store, []string{"s07", "s31"}, reshard.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	// kept counts the versions, and those that are neither current nor marks.
	kept := func() (all, noncurrent int) {
		for page := awss3.NewListObjectVersionsPaginator(client, &awss3.ListObjectVersionsInput{Bucket: &bucket}); page.HasMorePages(); {
			out, err := page.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range out.Versions {
				all++
				if !aws.ToBool(v.IsLatest) && !strings.HasSuffix(*v.Key, "/manifest.json") {
					noncurrent++
				}
			}
		}
		return all, noncurrent
	}
	r, err := writer.Purge(t.Context(), store, writer.PurgeOptions{Generations: true})
	if err != nil || !r.Versions || len(r.VersionsLeft) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	all, noncurrent := kept()
	if noncurrent != len(r.VersionsLeft) {
		t.Errorf("%d of %d versions are not current, and the receipt has %d", noncurrent, all, len(r.VersionsLeft))
	}
	if r, err = writer.Purge(t.Context(), store, writer.PurgeOptions{Versions: true}); err != nil || r.Versions || len(r.VersionsDeleted) != noncurrent {
		t.Fatalf("%+v, %v", r, err)
	}
	if all, noncurrent := kept(); noncurrent > 0 {
		t.Errorf("%d of %d versions are left", noncurrent, all)
	}
	if report, err := check.Verify(t.Context(), store, check.Options{Deep: true}); err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}
