package main

import (
	"bytes"
	"encoding/base64"
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
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/fake"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
)

// killsVariable is the number of kills of each command, in TestKilledAtStore by default 1, in
// TestKilledRemoval 12.
const killsVariable = "SHARDTOOL_TEST_KILLS"

// remote is a store whose server is in this process.
type remote struct {
	addr   string
	server *fake.Server
	// save returns a function that restores what is stored now.
	save func() (restore func())
}

func remotes(t *testing.T) map[string]remote {
	google, azure, amazon := gsserver.New(t), azserver.New(t), s3server.New(t)
	for name, value := range map[string]string{
		"AZURE_STORAGE_ACCOUNT_KEY": base64.StdEncoding.EncodeToString(azserver.Key),
		"AWS_ACCESS_KEY_ID":         "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
	} {
		t.Setenv(name, value)
	}
	return map[string]remote{
		"gs": {"gs://bucket/set?anonymous=true&endpoint=" + google.URL, google.Server, saver(google.Server, &google.Objects)},
		"az": {"az://" + azserver.Account + "/box/set?endpoint=" + azure.URL, azure.Server, saver(azure.Server, &azure.Objects)},
		"s3": {"s3://bucket/set?endpoint=" + amazon.URL, amazon.Server, saver(amazon.Server, &amazon.Objects)},
	}
}

// saver saves the objects of a server. What is stored of unfinished uploads stays.
func saver[V any](s *fake.Server, objects *map[string]V) func() (restore func()) {
	return func() func() {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		saved := maps.Clone(*objects)
		return func() {
			s.Mu.Lock()
			defer s.Mu.Unlock()
			*objects = maps.Clone(saved)
		}
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
	info := d.Info()
	return fmt.Sprintf("%d samples, %x, removed %v, purged %v", d.NumSamples(), d.Digest(), info.Removed, info.Purged)
}

// run runs a command. If at is not 0, it is killed at its request of that number, before or after
// the server has executed it. It returns the number of requests and whether the command succeeded.
func (r *remote) run(t *testing.T, at int64, before bool, args ...string) (requests int64, done bool) {
	t.Helper()
	cmd := exec.Command("shardtool", args...)
	var n atomic.Int64
	started := make(chan struct{})
	r.server.SetHook(func(w http.ResponseWriter, request *http.Request) bool {
		<-started // a request of a command that was killed may come late
		if n.Add(1) != at {
			return false
		}
		if !before {
			r.server.Answer(w, request)
		}
		_ = cmd.Process.Kill()
		panic(http.ErrAbortHandler)
	})
	defer r.server.SetHook(nil)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Start()
	close(started)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil && at == 0 {
		t.Fatalf("%q: %v\n%s", args, err, text.String())
	}
	return n.Load(), err == nil
}

// TestKilledAtStore kills pack, append, remove and purge at requests from the first to the last.
// What is published is then entirely what was before or what the command makes, and the command
// leads there when it runs again.
func TestKilledAtStore(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	kills := killsOr(t, 1)
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
			last := requests
			for i := 0; i < kills; {
				restore()
				at := min(1+(2*int64(i)+1)*requests/(2*int64(kills)), last)
				_, done := r.run(t, at, i%2 == 0, args...)
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
				if done { // this run had fewer requests
					last = at - 1
				} else {
					i++
				}
			}
			t.Logf("%s: %q: %d requests, %d times killed", name, args, requests, kills)
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
