package writer_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/fake"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/writer"
)

// target is a server on which rights are refused.
type target struct {
	server  *fake.Server
	address string
	refuse  func(w http.ResponseWriter, r *http.Request)
	lists   func(r *http.Request) bool
	puts    func(r *http.Request) bool
	objects func() int
	clear   func()
	right   string // what the error of a put without the right says
}

// targets are a server of each kind that can be written, with credentials for them.
func targets(t *testing.T) map[string]target {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AZURE_STORAGE_ACCOUNT_KEY", "bWFya2VkIGFjY291bnQga2V5")
	s, g, a := s3server.New(t), gsserver.New(t), azserver.New(t)
	return map[string]target{
		"s3": {s.Server, "s3://bucket/set?region=x&endpoint=" + s.URL,
			func(w http.ResponseWriter, r *http.Request) {
				s3server.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			},
			func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("list-type") },
			func(r *http.Request) bool { return r.Method == http.MethodPut }, func() int { return len(s.Objects) }, func() { clear(s.Objects) }, "s3:PutObject"},
		"gs": {g.Server, "gs://bucket/set?anonymous=true&endpoint=" + g.URL,
			func(w http.ResponseWriter, _ *http.Request) {
				gsserver.Refuse(w, http.StatusForbidden, "forbidden", "no")
			},
			func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("prefix") },
			func(r *http.Request) bool { return r.Method == http.MethodPost }, func() int { return len(g.Objects) }, func() { clear(g.Objects) }, "storage.objects.create"},
		"az": {a.Server, "az://acct/box/set?endpoint=" + a.URL,
			func(w http.ResponseWriter, _ *http.Request) {
				azserver.Refuse(w, http.StatusForbidden, "AuthorizationPermissionMismatch", "no")
			},
			func(r *http.Request) bool { return r.URL.Query().Get("comp") == "list" },
			func(r *http.Request) bool { return r.Method == http.MethodPut }, func() int { return len(a.Objects) }, func() { clear(a.Objects) }, "the account refuses this network"},
	}
}

// TestTargetOfRights packs with credentials that lack a right, and into a bucket that requires an
// encryption: the source is not read where nothing could be published. Without the right to delete,
// the pack says so and goes on.
func TestTargetOfRights(t *testing.T) {
	for name, c := range targets(t) {
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

// TestRightsChange has a bucket whose policy changes while a pack runs: from some put on it refuses
// puts, or deletions. The pack fails and says which right it lacks, publishes nothing, and once the
// policy is right again goes on where it was. Deletions are not needed.
func TestRightsChange(t *testing.T) {
	clean := mem.New()
	whole := mustPack(t, clean, partsSource(), small("d"))
	want := objects(t, clean)
	for name, c := range targets(t) {
		deletes := func(r *http.Request) bool { return r.Method == http.MethodDelete }
		for what, denies := range map[string]func(r *http.Request) bool{
			"puts": c.puts, "deletes": deletes, "both": func(r *http.Request) bool { return c.puts(r) || deletes(r) },
		} {
			for _, after := range []int64{2, 4, 6} { // puts, of which one tries the bucket
				if testing.Short() && after != 4 {
					continue
				}
				t.Run(fmt.Sprint(name, " ", what, " ", after), func(t *testing.T) {
					c.clear()
					var put atomic.Int64
					c.server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
						if denies(r) && put.Load() >= after {
							c.refuse(w, r)
							return true
						}
						if c.puts(r) {
							put.Add(1)
						}
						return false
					})
					at := c.address
					if name == "s3" {
						at += "&single_writer=true" // else its server is tried by many puts
					}
					store, err := address.Open(t.Context(), at, address.Options{})
					if err != nil {
						t.Fatal(err)
					}
					opt := small("d")
					opt.Log = slog.New(slog.DiscardHandler)
					_, err = writer.Pack(t.Context(), store, partsSource(), opt)
					if what == "deletes" {
						if err != nil {
							t.Fatal(err)
						}
						sameObjects(t, "packed", objects(t, store), want)
						return
					}
					if err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), c.right) {
						t.Errorf("%v; want the right %s", err, c.right)
					}
					for name, data := range objects(t, store) {
						if !bytes.Equal(data, want[name]) || name == format.ManifestName {
							t.Errorf("left: %s", name)
						}
					}
					c.server.SetHook(nil)
					opt.Resume = true
					got, err := writer.Pack(t.Context(), store, partsSource(), opt)
					if err != nil || got.Digest != whole.Digest || after > 2 && got.Adopted == 0 {
						t.Errorf("resumed: %+v, %v", got, err)
					}
					sameObjects(t, "resumed", objects(t, store), want)
				})
			}
		}
	}
}
