package main

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/fake"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestGetAlone has credentials that may read objects and nothing else, as with s3:GetObject without
// s3:ListBucket. Commands that read work. verify and inspect say what they left out, and commands
// that must know all objects name the right that is missing.
func TestGetAlone(t *testing.T) {
	t.Parallel()
	s, g, a := s3server.New(t), gsserver.New(t), azserver.New(t)
	for name, c := range map[string]struct {
		server  *fake.Server
		address string
		refuse  func(w http.ResponseWriter, r *http.Request)
		reads   func(r *http.Request) bool
		right   string // what the error of a list says
		drop    func() // deletes a shard
	}{
		"s3": {s.Server, "s3://bucket/set?region=x&endpoint=" + s.URL,
			func(w http.ResponseWriter, r *http.Request) {
				s3server.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			},
			func(r *http.Request) bool {
				s.Mu.Lock()
				defer s.Mu.Unlock()
				_, there := s.Objects[strings.TrimPrefix(r.URL.Path, "/bucket/")]
				return there && (r.Method == http.MethodGet || r.Method == http.MethodHead)
			}, "s3:ListBucket", func() {
				s.Mu.Lock()
				defer s.Mu.Unlock()
				maps.DeleteFunc(s.Objects, func(key string, _ s3server.Stored) bool { return strings.HasSuffix(key, "-000001.tar.zst") })
			}},
		"gs": {g.Server, "gs://bucket/set?anonymous=true&endpoint=" + g.URL,
			func(w http.ResponseWriter, _ *http.Request) {
				gsserver.Refuse(w, http.StatusForbidden, "forbidden", "no")
			},
			func(r *http.Request) bool {
				g.Mu.Lock()
				defer g.Mu.Unlock()
				_, key, _ := strings.Cut(r.URL.Path, "/o/")
				return r.Method == http.MethodGet && g.Objects[key] != nil
			}, "storage.objects.list", func() {
				g.Mu.Lock()
				defer g.Mu.Unlock()
				maps.DeleteFunc(g.Objects, func(key string, _ *gsserver.Stored) bool { return strings.HasSuffix(key, "-000001.tar.zst") })
			}},
		"az": {a.Server, "az://acct/box/set?endpoint=" + a.URL,
			func(w http.ResponseWriter, _ *http.Request) {
				azserver.Refuse(w, http.StatusForbidden, "AuthorizationPermissionMismatch", "no")
			},
			func(r *http.Request) bool {
				return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.Query().Get("comp") != "list"
			}, "the account refuses this network", func() {
				a.Mu.Lock()
				defer a.Mu.Unlock()
				maps.DeleteFunc(a.Objects, func(key string, _ *azserver.Stored) bool { return strings.HasSuffix(key, "-000001.tar.zst") })
			}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(args ...string) (code int, said string) {
				t.Helper()
				cmd := exec.Command("shardtool", args...)
				cmd.Env = append(os.Environ(), "AZURE_STORAGE_ACCOUNT_KEY=bWFya2VkIGFjY291bnQga2V5", "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
				out, _ := cmd.CombinedOutput()
				return cmd.ProcessState.ExitCode(), string(out)
			}
			dir := t.TempDir()
			for _, file := range []string{"a.txt", "b.txt", "c.txt"} {
				writeText(t, filepath.Join(dir, file), "text of "+file)
			}
			rows := filepath.Join(t.TempDir(), "rows.jsonl")
			writeText(t, rows, "{\"id\": \"a\", \"caption\": \"x\"}\n")
			for _, args := range [][]string{
				{"pack", dir, c.address, "--samples-per-shard", "1", "--quiet"},
				{"layer", "add", c.address, "captions", rows, "--key", "id", "--missing", "allow", "--quiet"},
			} {
				if code, said := run(args...); code != 0 {
					t.Fatalf("%q: exit %d: %s", args, code, said)
				}
			}
			c.server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				reads := c.reads(r)
				if !reads {
					c.refuse(w, r)
				}
				return !reads
			})
			for _, try := range []struct {
				args string // @ is the address
				code int
				says []string
			}{
				{"verify @", 0, []string{"whole: 3 samples", "note: layers were not looked for: list layers/ in", "note: objects that belong to nothing were not looked for: list in", c.right}},
				{"verify @ --deep --quiet", 0, []string{"whole: 3 samples", "(every byte)", "layers were not looked for"}},
				{"verify @ --layer captions --json", 0, []string{`"ok": true`, "layers were not looked for", "objects that belong to nothing were not looked for", c.right}},
				{"inspect @", 0, []string{"3 samples in 3 shards", "views and layers are not known", c.right}},
				{"inspect @ --json", 0, []string{`"samples": 3`}},
				{"inspect @ --layer captions", 0, []string{"caption"}},
				{"cat @ --limit 2", 0, []string{"text of a.txt"}},
				{"get @ b", 0, []string{"text of b.txt"}},
				{"export @ " + t.TempDir(), 0, []string{"3 samples"}},
				{"stage @ --cache " + t.TempDir(), 0, []string{"3 samples"}},
				{"layer ls @", 1, []string{"list layers/ in", c.right}},
				{"remove @ a", 1, []string{"list layers/ in", c.right}},
				{"purge @", 1, []string{"list layers/ in", c.right}},
				{"prune @ --dry-run", 1, []string{"list in", c.right}},
				{"doctor @", 1, []string{"list: failed", "Reading a data set needs no list", "read: ok"}},
			} {
				code, said := run(strings.Fields(strings.ReplaceAll(try.args, "@", c.address))...)
				if code != try.code {
					t.Errorf("%s: exit %d, want %d: %s", try.args, code, try.code, said)
				}
				for _, text := range try.says {
					if !strings.Contains(said, text) {
						t.Errorf("%s: %q is not in %s", try.args, text, said)
					}
				}
			}
			// A missing shard cannot be told from a forbidden one, where the store says so.
			c.drop()
			code, said := run("verify", c.address)
			if want := map[string]int{"s3": exitUnread, "gs": exitUnread, "az": exitCorrupt}[name]; code != want ||
				code == exitUnread && (!strings.Contains(said, c.right) || strings.Contains(said, "restore")) {
				t.Errorf("without a shard: exit %d, want %d: %s", code, want, said)
			}
		})
	}
}
