package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestBenchArguments: the addresses of the data set and of its layer, which may hold secrets, are
// in no argument or variable of the processes that bench starts, and these read the layer.
func TestBenchArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := filepath.Join(dir, "set")
	shardtool(t, "pack", "../../testdata/demo", set, "--quiet")
	shardtool(t, "layer", "add", set, "texts", "--copy", "txt", "--quiet")
	var mu sync.Mutex
	var seen []byte
	asked := false
	var cmd *exec.Cmd
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		for _, thread := range threads {
			more, _ := os.ReadFile(thread) // a thread may have ended
			children = append(append(children, ' '), more...)
		}
		for child := range strings.FieldsSeq(string(children)) {
			for _, what := range []string{"cmdline", "environ"} {
				text, _ := os.ReadFile("/proc/" + child + "/" + what)
				seen = append(seen, text...)
			}
			asked = asked || strings.Contains(r.URL.Path, "/layers/texts/") && strings.HasSuffix(r.URL.Path, ".zst")
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	at := strings.Replace(server.URL, "http://", "http://user:marked-password@", 1) + "/set"
	const query = "?sig=marked-signature"
	cmd = exec.Command("shardtool", "bench", at+query, "--layer", at+"/layers/texts"+query, "--fields", "txt", "--shuffle", "--ranks", "2", "--batch", "2", "--batches", "3", "--json")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	mu.Lock()
	err := cmd.Start()
	mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if !bytes.Contains(seen, []byte("--rank-process")) || bytes.Contains(seen, []byte("marked")) || bytes.Contains(out.Bytes(), []byte("marked")) {
		t.Errorf("arguments and variables %q; printed %s", seen, out.String())
	}
	if !asked {
		t.Error("the ranks did not read the layer")
	}
}
