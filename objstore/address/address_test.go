package address_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not yet")
	for _, addr := range []string{dir, dir + "/", dir + "/sub://dir"} {
		store, err := address.Open(addr)
		if err != nil || store.String() != addr {
			t.Fatal(addr, err)
		}
		if _, err := objstore.Put(t.Context(), store, "x", nil, objstore.Condition{IfNoneMatch: addr != dir+"/"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := address.Open(filepath.Join(dir, "x"))
	if err == nil || !strings.Contains(err.Error(), "give the directory that holds the data set") {
		t.Fatal(err)
	}
}

func TestOpenScheme(t *testing.T) {
	t.Chdir(t.TempDir())
	for addr, want := range map[string]string{
		"s3://bucket/prefix":    "unsupported scheme s3",
		"S3://bucket":           "unsupported scheme s3",
		"https://host/data":     "unsupported scheme https",
		"git+ssh://host":        "unsupported scheme git+ssh",
		"file:///data/imagenet": "give the path itself: /data/imagenet",
	} {
		_, err := address.Open(addr)
		if !errors.Is(err, address.ErrScheme) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", addr, err, want)
		}
	}
	if _, err := address.Open(""); err == nil {
		t.Error("the empty address was opened")
	}
	for _, addr := range []string{"a b://c", "1s://x", "://x", "c:/data"} {
		if _, err := address.Open(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Error("opening made something", entries, err)
	}
}
