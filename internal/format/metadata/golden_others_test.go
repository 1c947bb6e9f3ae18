package metadata

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
)

// TestGoldenWithoutIndex reads the golden shards as any program would that knows zstd and tar and
// nothing of an index.
func TestGoldenWithoutIndex(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(goldenDir, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []goldenSample
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pattern := range []string{"*.tar", "*.tar.zst"} {
		found, err := filepath.Glob(filepath.Join(goldenDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	byKey := map[string]map[string]string{}
	members := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader = bytes.NewReader(data)
		if filepath.Ext(name) == ".zst" {
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			r = z
		}
		archive := tar.NewReader(r)
		for {
			h, err := archive.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, h.Name, err)
			}
			key, field := format.SplitName([]byte(h.Name))
			sum := sha256.Sum256(data)
			fields := byKey[hex.EncodeToString(key)]
			if fields == nil {
				fields = map[string]string{}
				byKey[hex.EncodeToString(key)] = fields
			}
			fields[string(field)] = hex.EncodeToString(sum[:])
			members++
		}
	}
	for _, s := range want {
		for field, sum := range s.Fields {
			if got := byKey[s.Key][field]; got != sum {
				t.Errorf("sample %s, field %q: SHA-256 %s, want %s", s.Key, field, got, sum)
			}
			members--
		}
	}
	if len(byKey) != len(want) || members != 0 {
		t.Errorf("%d samples, want %d; %d members too many", len(byKey), len(want), members)
	}
}
