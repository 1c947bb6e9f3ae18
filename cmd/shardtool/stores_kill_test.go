package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
)

// killsVariable is the number of kills of each command in TestKilledAtStore, by default 2.
const killsVariable = "SHARDTOOL_TEST_KILLS"

// remote is a store whose server is in this process.
type remote struct {
	addr string
	// save returns a function that restores what is stored now.
	save func() (restore func())
	// hook sets a function that sees each request first and may answer it by returning true. serve
	// answers a request in its place.
	hook  func(func(w http.ResponseWriter, r *http.Request) bool)
	serve http.HandlerFunc
}

func remotes(t *testing.T) map[string]remote {
	google := gsserver.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", google.URL)
	return map[string]remote{
		"gs": {"gs://bucket/set", func() func() {
			google.Mu.Lock()
			defer google.Mu.Unlock()
			saved := maps.Clone(google.Objects)
			return func() {
				google.Mu.Lock()
				defer google.Mu.Unlock()
				google.Objects = maps.Clone(saved)
			}
		}, google.SetHook, google.Serve},
	}
}

// state describes what is published, which must be whole.
func (r *remote) state(t *testing.T) string {
	t.Helper()
	store, err := address.Open(t.Context(), r.addr, address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Stat(t.Context(), format.ManifestName); err != nil {
		return "nothing"
	}
	report, err := check.Verify(t.Context(), store, check.Options{Deep: true})
	if err != nil || !report.OK() {
		t.Fatalf("%+v, %v", report, err)
	}
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return fmt.Sprintf("%d samples, %x", d.NumSamples(), d.Digest())
}

// run runs a command. If at is not 0, it is killed at its request of that number, before or after
// the server has executed it. It returns the number of requests and whether the command succeeded.
func (r *remote) run(t *testing.T, at int64, before bool, args ...string) (requests int64, done bool) {
	t.Helper()
	cmd := exec.Command("shardtool", args...)
	var n atomic.Int64
	r.hook(func(w http.ResponseWriter, request *http.Request) bool {
		if n.Add(1) != at {
			return false
		}
		if !before {
			r.serve(w, request)
		}
		_ = cmd.Process.Kill()
		panic(http.ErrAbortHandler)
	})
	defer r.hook(nil)
	text, err := cmd.CombinedOutput()
	if err != nil && at == 0 {
		t.Fatalf("%q: %v\n%s", args, err, text)
	}
	return n.Load(), err == nil
}

// TestKilledAtStore kills pack, append, remove and purge at requests from the first to the last. What is
// published is then entirely what was before or what the command makes, and the command leads there
// when it runs again.
func TestKilledAtStore(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	kills := 2
	if text := os.Getenv(killsVariable); text != "" {
		if _, err := fmt.Sscan(text, &kills); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	src, more, keys := filepath.Join(dir, "src"), filepath.Join(dir, "more"), filepath.Join(dir, "keys")
	var gone strings.Builder
	for i := range 30 {
		to := src
		if i >= 20 {
			to = more
		} else if i%7 == 0 {
			fmt.Fprintf(&gone, "s%02d\n", i)
		}
		writeRandom(t, filepath.Join(to, fmt.Sprintf("s%02d.bin", i)), i)
	}
	if err := os.WriteFile(keys, []byte(gone.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, r := range remotes(t) {
		for _, args := range [][]string{
			{"pack", src, r.addr, "--quiet", "--shard-size", "10MiB", "--resume"}, {"pack", more, r.addr, "--quiet", "--append", "--resume"},
			{"remove", r.addr, "--keys", keys}, {"purge", r.addr, "--quiet"},
		} {
			before, restore := r.state(t), r.save()
			requests, _ := r.run(t, 0, false, args...)
			after, forward := r.state(t), r.save()
			killed := 0
			for i := range int64(kills) {
				restore()
				at := 1 + (i*(requests-1)+int64(kills)/2)/max(1, int64(kills)-1)
				_, done := r.run(t, min(at, requests), i%2 == 0, args...)
				if !done {
					killed++
				}
				now := r.state(t)
				if now != before && now != after || done && now != after {
					t.Fatalf("%s: %s at request %d of %d: %s; want %s or %s", name, args[0], at, requests, now, before, after)
				}
				if now == before {
					r.run(t, 0, false, args...)
				}
				if now = r.state(t); now != after {
					t.Fatalf("%s: %s at request %d of %d, and once more: %s, want %s", name, args[0], at, requests, now, after)
				}
			}
			if killed == 0 {
				t.Errorf("%s: %s was never killed", name, args[0])
			}
			t.Logf("%s: %q: %d requests, %d of %d killed", name, args, requests, killed, kills)
			forward()
		}
	}
}

// writeRandom writes a file of 600 KB that does not compress.
func writeRandom(t *testing.T, path string, seed int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, noise(seed, 600_000), 0o666); err != nil {
		t.Fatal(err)
	}
}

// noise returns bytes that do not compress.
func noise(seed, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), 1}).Read(data) // never fails
	return data
}
