package writer_test

import (
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/fake"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/writer"
)

// TestTargetOfRights packs with credentials that lack a right, and into a bucket that requires an
// encryption: the source is not read where nothing could be published. Without the right to delete,
// the pack says so and goes on.
func TestTargetOfRights(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AZURE_STORAGE_ACCOUNT_KEY", "bWFya2VkIGFjY291bnQga2V5")
	type target struct {
		server  *fake.Server
		address string
		refuse  func(w http.ResponseWriter, r *http.Request)
		lists   func(r *http.Request) bool
		puts    func(r *http.Request) bool
		objects func() int
		clear   func()
	}
	s, g, a := s3server.New(t), gsserver.New(t), azserver.New(t)
	for name, c := range map[string]target{
		"s3": {s.Server, "s3://bucket/set?region=x&endpoint=" + s.URL,
			func(w http.ResponseWriter, r *http.Request) {
				s3server.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			},
			func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("list-type") },
			func(r *http.Request) bool { return r.Method == http.MethodPut }, func() int { return len(s.Objects) }, func() { clear(s.Objects) }},
		"gs": {g.Server, "gs://bucket/set?anonymous=true&endpoint=" + g.URL,
			func(w http.ResponseWriter, _ *http.Request) {
				gsserver.Refuse(w, http.StatusForbidden, "forbidden", "no")
			},
			func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("prefix") },
			func(r *http.Request) bool { return r.Method == http.MethodPost }, func() int { return len(g.Objects) }, func() { clear(g.Objects) }},
		"az": {a.Server, "az://acct/box/set?endpoint=" + a.URL,
			func(w http.ResponseWriter, _ *http.Request) {
				azserver.Refuse(w, http.StatusForbidden, "AuthorizationPermissionMismatch", "no")
			},
			func(r *http.Request) bool { return r.URL.Query().Get("comp") == "list" },
			func(r *http.Request) bool { return r.Method == http.MethodPut }, func() int { return len(a.Objects) }, func() { clear(a.Objects) }},
	} {
		for what, denies := range map[string]func(r *http.Request) bool{
			"list": c.lists, "put": c.puts, "delete": func(r *http.Request) bool { return r.Method == http.MethodDelete },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				c.server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
					if denies(r) {
						c.refuse(w, r)
						return true
					}
					return false
				})
				c.clear()
				at := c.address
				if name == "s3" && what == "delete" { // else its server is tried by an object, which would stay
					at += "&single_writer=true"
				}
				store, err := address.Open(t.Context(), at, address.Options{})
				if err != nil {
					t.Fatal(err)
				}
				src := partsSource()
				var log strings.Builder
				opt := small("d")
				opt.Log = slog.New(slog.NewTextHandler(&log, nil))
				_, err = writer.Pack(t.Context(), store, src, opt)
				if what == "delete" {
					if err != nil || !strings.Contains(log.String(), "may not delete") {
						t.Errorf("%v, %s", err, &log)
					}
				} else if err == nil || src.at != 0 || c.objects() != 0 || !strings.Contains(err.Error(), "403") {
					t.Errorf("%v, after %d samples, %d objects", err, src.at, c.objects())
				}
				c.server.SetHook(nil)
				for info, err := range store.List(t.Context(), "") {
					if err != nil || objstore.IsProbe(info.Name) {
						t.Errorf("%s, %v", info.Name, err)
					}
				}
			})
		}
	}
}
