package stores_test

import (
	"errors"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader/check"
)

// TestRequiredOfMoto packs with what platforms require to a server that is not ours: each object
// has the encryption, the key and the class asked for, and what an archive holds is neither missing
// nor damaged.
func TestRequiredOfMoto(t *testing.T) {
	s := moto(t)
	bucket := s.bucket(t)
	client := s.sdk(t)
	store := s.open(t, bucket, "set", s3store.Options{Required: s3store.Required{RequesterPays: true, Encryption: "aws:kms", KMSKey: "alias/train",
		StorageClass: "STANDARD_IA"}})
	packNumbered(t, store, 60)
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		key := "set/" + info.Name
		out, err := client.HeadObject(t.Context(), &awss3.HeadObjectInput{Bucket: &bucket, Key: &key})
		if err != nil || out.StorageClass != types.StorageClassStandardIa || out.ServerSideEncryption != types.ServerSideEncryptionAwsKms ||
			out.SSEKMSKeyId == nil || *out.SSEKMSKeyId != "alias/train" {
			t.Errorf("%s: class %s, encryption %s, %v", key, out.StorageClass, out.ServerSideEncryption, err)
		}
	}
	if report, err := check.Verify(t.Context(), store, check.Options{Deep: true}); err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
	archive := s.open(t, bucket, "old", s3store.Options{Required: s3store.Required{StorageClass: "GLACIER"}})
	if _, err := objstore.Put(t.Context(), archive, "a", []byte("archived"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := objstore.ReadAll(t.Context(), archive, "a", 100); !errors.Is(err, objstore.ErrArchived) {
		t.Errorf("an archived object: %v", err)
	}
}
