package writer_test

import (
	"errors"
	"os"
	"testing"

	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/writer"
)

// TestTargetOfConditions: a server that ignores conditions is refused before the source is read,
// and takes a data set from a single writer; a directory bucket takes one as other buckets do.
func TestTargetOfConditions(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	s := s3server.New(t)
	pack := func(bucket string, single bool, src writer.Source) error {
		store, err := s3.New(t.Context(), bucket, "set", s3.Options{Endpoint: s.URL, SingleWriter: single})
		if err != nil {
			t.Fatal(err)
		}
		_, err = writer.Pack(t.Context(), store, src, small("d"))
		return err
	}
	s.Unconditional = true
	src := partsSource()
	if err := pack("bucket", false, src); !errors.Is(err, s3.ErrUnconditional) || src.at != 0 || len(s.Objects) != 0 {
		t.Fatalf("%v, after %d samples, %d objects", err, src.at, len(s.Objects))
	}
	if err := pack("bucket", true, partsSource()); err != nil {
		t.Fatal(err)
	}
	if err := pack("bucket", true, partsSource()); !errors.Is(err, writer.ErrExists) {
		t.Fatal(err)
	}
	clear(s.Objects)
	s.Unconditional, s.Directory = false, true
	if err := pack(s3server.DirectoryBucket, false, partsSource()); err != nil {
		t.Fatal(err)
	}
}
