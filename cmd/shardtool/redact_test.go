package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestSecretsOfAddresses runs every command that takes an address with ones that hold a password
// and signatures, of a data set that is there and of ones that are not. Nothing that it prints or
// writes shows them.
func TestSecretsOfAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if text, err := exec.Command("shardtool", "pack", "../../testdata/demo", filepath.Join(dir, "www/data")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(dir, "www"))))
	defer server.Close()
	const query = "?X-Amz-Signature=marked-signature&X-Amz-Credential=marked-credential&sig=marked-sas"
	there := strings.Replace(server.URL, "http://", "http://user:marked-password@", 1) + "/data" + query
	mix := filepath.Join(dir, "mix.yaml")
	if err := os.WriteFile(mix, fmt.Appendf(nil, "sources:\n  a: {data: %q}\n", there), 0o600); err != nil {
		t.Fatal(err)
	}
	bucket := s3server.New(t)
	for prefix, folder := range map[string]string{"data/": filepath.Join(dir, "www/data"), "raw/": "../../testdata/demo/animals"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			bucket.Objects[prefix+filepath.Base(path)] = s3server.Stored{Data: text, ETag: s3server.Tag(text)}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const ours = "?path_style=true&region=marked-region&endpoint="
	addresses := []string{
		"s3://bucket/data" + ours + bucket.URL, "s3://bucket/raw" + ours + bucket.URL, "s3://bucket/raw/*.json" + ours + bucket.URL,
		there, there + "#view", there + "@0123456789abcdef", strings.Replace(there, "/data", "/none", 1), mix,
		"s3://user:marked-password@bucket/x" + query, "s3://bucket/x?sig=marked-sas", "ftp://user:marked-password@host/x" + query,
	}
	commands := []string{
		"inspect ADDRESS", "inspect --json ADDRESS", "ls ADDRESS", "get ADDRESS key", "cat --epochs 1 --checkpoint-out DIR/saved ADDRESS",
		"order --json ADDRESS", "verify ADDRESS", "verify --json ADDRESS", "doctor ADDRESS", "doctor --json ADDRESS",
		"explain --global-batch 2 ADDRESS 0", "explain --global-batch 2 --json ADDRESS 0", "explain ADDRESS", "simulate ADDRESS",
		"simulate --json ADDRESS", "bench --batch-size 64 ADDRESS", "bench --batch-size 64 --json ADDRESS",
		"stage --cache DIR/cache ADDRESS", "index ADDRESS", "prune ADDRESS", "remove --keys DIR/mix.yaml ADDRESS", "purge ADDRESS",
		"select --where label=1 ADDRESS", "missing ADDRESS", "commit ADDRESS", "export --out DIR/exported ADDRESS",
		"pack ADDRESS DIR/packed", "pack --json ../../testdata/demo ADDRESS", "serve ADDRESS", "remove ADDRESS too many",
		"head ADDRESS", "unpack ADDRESS DIR/unpacked", "view --no-open --listen none ADDRESS", "layer ls ADDRESS", "layer add --copy txt ADDRESS texts",
		"layer remove ADDRESS texts",
	}
	tried := map[string]bool{"completion": true, "help": true, "man": true, "version": true, "receive": true} // receive is run by Python
	for _, command := range commands {
		name, _, _ := strings.Cut(command, " ")
		tried[name] = true
		for _, address := range addresses {
			var args []string
			for word := range strings.FieldsSeq(strings.ReplaceAll(command, "DIR", dir)) {
				args = append(args, strings.ReplaceAll(word, "ADDRESS", address))
			}
			cmd := exec.Command("shardtool", args...)
			cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL="+server.URL, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_EC2_METADATA_DISABLED=true")
			text, _ := cmd.CombinedOutput() // most fail
			for _, written := range []string{"saved", "report.html"} {
				more, err := os.ReadFile(filepath.Join(dir, written))
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				text = append(text, more...)
			}
			if name == "doctor" { // a region is no secret, and doctor says which is used
				text = bytes.ReplaceAll(text, []byte("marked-region"), nil)
			}
			if i := strings.Index(string(text), "marked-"); i >= 0 {
				t.Errorf("%s of %s shows a secret: …%q…", command, address, text[max(0, i-100):min(len(text), i+100)])
			}
		}
	}
	for _, command := range newRoot().Commands() {
		if !tried[command.Name()] {
			t.Errorf("the command %s was not tried", command.Name())
		}
	}
}
