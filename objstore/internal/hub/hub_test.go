package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/hub"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick returns options with short retries; timeouts are long, for a busy machine.
func quick() hub.Options {
	return hub.Options{ReadOptions: objstore.ReadOptions{
		BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond,
		FirstByteTimeout: 30 * time.Second, StallTimeout: 30 * time.Second, NoHedge: true,
	}}
}

func openAt(t *testing.T, rest string, opts hub.Options) objstore.Store {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	opts.HTTPClient = &http.Client{Transport: transport}
	store, err := hub.New(rest, opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func pattern(seed byte, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

// one returns a server with a data set o/n of one large file, a.
func one(t *testing.T, kind hubserver.Kind, data []byte) *hubserver.Server {
	return hubserver.New(t, map[string]*hubserver.Set{"o/n": hubserver.NewSet(map[string]hubserver.File{"a": {Data: data, Kind: kind}})})
}

func read(t *testing.T, store objstore.Store, name string, off, n int) ([]byte, error) {
	t.Helper()
	object, err := store.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	p := make([]byte, n)
	return p, object.ReadAt(t.Context(), p, int64(off))
}

func TestStore(t *testing.T) {
	for name, c := range map[string]struct {
		kind    hubserver.Kind
		private bool
		rest    string
		life    time.Duration
	}{
		"git":     {kind: hubserver.Git, rest: "datasets/o/n"},
		"direct":  {kind: hubserver.Git, rest: "datasets/o/n", private: true},
		"lfs":     {kind: hubserver.LFS, rest: "datasets/o/n@main"},
		"xet":     {kind: hubserver.Xet, rest: "datasets/o/n@" + hubserver.Commit + "/below/it/"},
		"expired": {kind: hubserver.Xet, rest: "datasets/o/n", life: -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunRead(t, func(t *testing.T, objects map[string][]byte) objstore.Store {
				files := map[string]hubserver.File{}
				for name, data := range objects {
					if strings.Contains(c.rest, "below") {
						name = "below/it/" + name
					}
					kind := c.kind
					if len(data) == 0 {
						kind = hubserver.Git
					}
					files[name] = hubserver.File{Data: data, Kind: kind}
				}
				set := hubserver.NewSet(files)
				set.Private, set.Token = c.private, "hf_marked"
				s := hubserver.New(t, map[string]*hubserver.Set{"o/n": set})
				s.Limit = 1 << 30
				if c.private {
					t.Setenv("HF_TOKEN", set.Token)
				}
				if c.life != 0 { // signatures that look expired and are not
					s.Sign = func(end time.Time) url.Values { return hubserver.CloudFront(end.Add(-2 * time.Hour)) }
				}
				return openAt(t, c.rest, quick())
			})
		})
	}
}

// TestList lists trees of several pages in the order of bytes, with the hashes that Stat gives.
func TestList(t *testing.T) {
	names := []string{"a-b", "a.b", "a/b", "a/b.c", "a/c/d", "a/c.d", "a0", "b/1", "b/10", "b/2", "Z", "ab/x", "é", "two words/+%"}
	files := map[string]hubserver.File{}
	for i, name := range names {
		files["in it/"+name] = hubserver.File{Data: pattern(byte(i), 10*i+1), Kind: hubserver.Kind(i % 3)}
	}
	files["in it/bad\\name"], files["in"], files["in it2/x"] = hubserver.File{}, hubserver.File{}, hubserver.File{}
	s := hubserver.New(t, map[string]*hubserver.Set{"o/n": hubserver.NewSet(files)})
	s.PageSize = 3
	store := openAt(t, "datasets/o/n/in it", quick())
	storetest.ListAll(t, store, append(slices.Clone(names), "bad\\name"))
	slices.Sort(names)
	prefixes := map[string]bool{"a//": true, "/": true, "../": true, ".": true, "zz": true, "a\\": true, "b/1/": true, "a/c/d/": true, strings.Repeat("x", 2000): true}
	for _, name := range names {
		for end := range len(name) + 1 {
			prefixes[name[:end]] = true
		}
	}
	for prefix := range prefixes {
		var got, want []string
		for info, err := range store.List(t.Context(), prefix) {
			if err != nil {
				t.Fatalf("%q: %v", prefix, err)
			}
			got = append(got, info.Name)
			stat, err := store.Stat(t.Context(), info.Name)
			if err != nil || stat != info {
				t.Fatalf("listed %+v, Stat gives %+v: %v", info, stat, err)
			}
		}
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("list %q gave %q, want %q", prefix, got, want)
		}
	}
	for range store.List(t.Context(), "") {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := 0
	for _, err := range store.List(ctx, "") {
		if steps++; steps > 1 && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
	}
	if steps != 2 {
		t.Errorf("%d steps", steps)
	}
}

func TestReadOnly(t *testing.T) {
	s := one(t, hubserver.Git, []byte("x"))
	store := openAt(t, "datasets/o/n", quick())
	_, err := store.Create(t.Context(), "x", objstore.Condition{})
	for _, err := range []error{err, store.Delete(t.Context(), "x")} {
		if !errors.Is(err, objstore.ErrReadOnly) || !strings.Contains(err.Error(), "hf upload") {
			t.Error(err)
		}
	}
	if err := store.Delete(t.Context(), "../x"); !errors.Is(err, objstore.ErrName) {
		t.Error(err)
	}
	if s.Counts() != (hubserver.Counts{}) {
		t.Errorf("%+v", s.Counts())
	}
}

// outside reports whether n is less than want, or more than want and so many requests that were sent
// again.
func outside(n, want, again int) bool { return n < want || n > want+again }

// TestRequests counts the requests: none for the commit, one to /resolve/ for each file in LFS or
// Xet, whoever asks first, and three for the first file in git. All others go to where the bytes
// are.
func TestRequests(t *testing.T) {
	data := pattern(1, 100_000)
	for kind, resolve := range map[hubserver.Kind]int{hubserver.Git: 202, hubserver.LFS: 1, hubserver.Xet: 1} {
		for _, sign := range []func(time.Time) url.Values{
			hubserver.CloudFront, hubserver.S3, hubserver.Azure, func(time.Time) url.Values { return url.Values{} },
		} {
			s := one(t, kind, data)
			s.Sign = sign
			s.Ahead = 100 * time.Hour
			store := openAt(t, "datasets/o/n", quick())
			var group errgroup.Group
			for i := range 200 {
				group.Go(func() error {
					p, err := read(t, store, "a", i*100, 100)
					if err == nil && !bytes.Equal(p, data[i*100:][:100]) {
						return errors.New("other bytes")
					}
					return err
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if _, err := store.Stat(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			again := hub.Stalled(store)
			if c := s.Counts(); c.API != 0 || outside(c.Resolve, resolve, again) || kind != hubserver.Git && outside(c.Bytes, 200, again) || c.Expired > 0 {
				t.Errorf("kind %d: %+v", kind, c)
			}
		}
	}
}

// TestExpiry reads while signatures expire, as announced and sooner.
func TestExpiry(t *testing.T) {
	data := pattern(1, 100_000)
	t.Run("announced", func(t *testing.T) {
		s := one(t, hubserver.Xet, data)
		s.Lifetime = 2 * time.Second
		store := openAt(t, "datasets/o/n", quick())
		for start, i := time.Now(), 0; time.Since(start) < 5*time.Second || s.Counts().Resolve < 2; i++ {
			if p, err := read(t, store, "a", i%1000, 100); err != nil || !bytes.Equal(p, data[i%1000:][:100]) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if c := s.Counts(); c.Resolve > 12+hub.Stalled(store) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("revoked", func(t *testing.T) {
		s := one(t, hubserver.LFS, data)
		store := openAt(t, "datasets/o/n", quick())
		for i := range 5 {
			var group errgroup.Group
			for range 20 {
				group.Go(func() error {
					p, err := read(t, store, "a", i, 100)
					if err == nil && !bytes.Equal(p, data[i:][:100]) {
						return errors.New("other bytes")
					}
					return err
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			s.Revoke()
		}
		if c := s.Counts(); outside(c.Resolve, 5, hub.Stalled(store)) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("always", func(t *testing.T) {
		s := one(t, hubserver.LFS, data)
		s.Hook = func(w http.ResponseWriter, _ *http.Request, here bool) bool {
			if !here {
				w.WriteHeader(http.StatusForbidden)
			}
			return !here
		}
		_, err := read(t, openAt(t, "datasets/o/n", quick()), "a", 0, 10)
		if err == nil || !strings.Contains(err.Error(), "403: at 127.0.0.1") || !strings.Contains(err.Error(), "clocks") || strings.Contains(err.Error(), "marked") {
			t.Error(err)
		}
		if c := s.Counts(); c.Resolve != 1 || c.Bytes != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestQuota reads more files than a window allows: after the first answer the store waits for the
// next window before it would be refused, and says so.
func TestQuota(t *testing.T) {
	files := map[string]hubserver.File{}
	for i := range 60 {
		files[fmt.Sprint(i)] = hubserver.File{Data: pattern(byte(i), 100), Kind: hubserver.LFS}
	}
	s := hubserver.New(t, map[string]*hubserver.Set{"o/n": hubserver.NewSet(files)})
	s.Limit, s.Window = 25, 2*time.Second
	var log lines
	opts := quick()
	opts.Logger, opts.Concurrency = slog.New(slog.NewTextHandler(&log, nil)), 8
	opts.MaxElapsed = time.Second // less than the wait
	store := openAt(t, "datasets/o/n", opts)
	var group errgroup.Group
	for name, file := range files {
		group.Go(func() error {
			p, err := read(t, store, name, 0, 100)
			if err == nil && !bytes.Equal(p, file.Data) {
				return errors.New("other bytes")
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if c := s.Counts(); c.Refused > 0 || outside(c.Resolve, 60, hub.Stalled(store)) {
		t.Errorf("%+v", c)
	}
	if n := strings.Count(log.String(), "level="); n > 4 { // in two windows
		t.Errorf("%d lines: %s", n, log.String())
	}
	if !strings.Contains(log.String(), "waiting for the quota") || !strings.Contains(log.String(), "rate limit of 25 in 2 s") {
		t.Errorf("the log: %s", log.String())
	}
}

// TestRefused has a Hub that answers 429: with RateLimit or Retry-After no request follows before
// that time; without, requests are retried as after any other overload.
func TestRefused(t *testing.T) {
	for name, value := range map[string]string{"RateLimit": `"resolvers";r=0;t=1`, "Retry-After": "2", "X": ""} {
		t.Run(name, func(t *testing.T) {
			s := one(t, hubserver.LFS, pattern(1, 10_000))
			var mu sync.Mutex
			var at []time.Time
			s.Hook = func(w http.ResponseWriter, r *http.Request, here bool) bool {
				if !strings.Contains(r.URL.Path, "/resolve/") {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				if at = append(at, time.Now()); len(at) > 1 {
					return false
				}
				w.Header().Set(name, value)
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
			store := openAt(t, "datasets/o/n", quick())
			var group errgroup.Group
			for i := range 30 {
				group.Go(func() error { _, err := read(t, store, "a", i, 10); return err })
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if len(at) != 2 || name != "X" && at[1].Sub(at[0]) < 1900*time.Millisecond {
				t.Errorf("asked at %v", at)
			}
		})
	}
	t.Run("too long", func(t *testing.T) {
		s := one(t, hubserver.LFS, pattern(1, 10_000))
		s.Hook = func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
			w.Header().Set("Retry-After", "100000")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		_, err := read(t, openAt(t, "datasets/o/n", quick()), "a", 0, 10)
		if err == nil || !strings.Contains(err.Error(), "given up") || !strings.Contains(err.Error(), "HF_TOKEN") {
			t.Error(err)
		}
	})
}

// TestAccess has the data sets that cannot be read as asked. The errors name what to set, no
// secret, and come without retries.
func TestAccess(t *testing.T) {
	files := map[string]hubserver.File{"a": {Data: pattern(1, 100), Kind: hubserver.LFS}, "git": {Data: []byte("text")}}
	set := func(change func(*hubserver.Set)) *hubserver.Set {
		s := hubserver.NewSet(files)
		s.Token = "hf_marked_good"
		change(s)
		return s
	}
	hubserver.New(t, map[string]*hubserver.Set{
		"o/public":  set(func(*hubserver.Set) {}),
		"o/private": set(func(s *hubserver.Set) { s.Private = true }),
		"o/gated":   set(func(s *hubserver.Set) { s.Gated = true }),
	})
	home := os.Getenv("HF_HOME")
	for _, c := range []struct{ rest, token, file, want string }{
		{"datasets/o/public", "", "", ""},
		{"datasets/o/private", "hf_marked_good", "", ""},
		{"datasets/o/private", "", "hf_marked_good\n", ""},
		{"datasets/o/gated", "hf_marked_good", "", ""},
		{"datasets/o/private", "", "", "401 RepoNotFound: Invalid username or password. (request Root=1-6); there is no data set o/private, or it is private; " +
			"no token was found in HF_TOKEN or in " + home + "/token: set HF_TOKEN"},
		{"datasets/o/private", "hf_marked_other", "", "404 RepoNotFound: Repository not found (request Root=1-6); there is no data set o/private, or it is private; " +
			"the token in HF_TOKEN may not read it: give one that may"},
		{"datasets/o/none", "", "hf_marked_other", "the token in " + home + "/token may not read it"},
		{"datasets/o/public", "marked-bad", "", "the token in HF_TOKEN is not valid: give another, or none for a public data set"},
		{"datasets/o/gated", "", "", "/datasets/o/gated, and no token was found"},
		{"datasets/o/gated", "hf_marked_other", "", "(the server answers 403 GatedRepo: Access"},
		{"datasets/o/public@v2", "", "", `the data set has no revision "v2" (the server answers 404 RevisionNotFound: Invalid rev id: v2`},
		{"datasets/o/public@" + hubserver.Other, "", "", "has no revision"},
	} {
		t.Setenv("HF_TOKEN", c.token)
		if err := os.WriteFile(filepath.Join(home, "token"), []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "git"} {
			store := openAt(t, c.rest, quick())
			_, err := read(t, store, name, 0, 4)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "marked") ||
				strings.Contains(err.Error(), "attempts") || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "hf://"+c.rest)) {
				t.Errorf("%s with %q and %q: %v, want %q", c.rest, c.token, c.file, err, c.want)
			}
		}
	}
}

// TestTokens has the token in each place where huggingface_hub looks for it, in its order and with
// the white space of copies.
func TestTokens(t *testing.T) {
	s := hubserver.NewSet(map[string]hubserver.File{"a": {Data: []byte("content")}})
	s.Token, s.Private = "hf_marked_good", true
	hubserver.New(t, map[string]*hubserver.Set{"o/private": s})
	other := filepath.Join(t.TempDir(), "other")
	home := os.Getenv("HF_HOME")
	t.Setenv("TOKENS", filepath.Dir(other))
	t.Setenv("HOME", filepath.Dir(other))
	for _, c := range []struct {
		environment                 map[string]string
		inHome, inOther, from, want string
	}{
		{map[string]string{"HF_TOKEN": " hf_marked\n_good\r\n"}, "hf_marked_bad", "", "HF_TOKEN", ""},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "hf_marked_good"}, "hf_marked_bad", "", "HUGGING_FACE_HUB_TOKEN", ""},
		{map[string]string{"HF_TOKEN": "hf_marked_bad", "HUGGING_FACE_HUB_TOKEN": "hf_marked_good"}, "", "", "HF_TOKEN", "in HF_TOKEN may not"},
		{map[string]string{"HF_TOKEN": " \n"}, "\thf_marked_good\n\n", "", home + "/token", ""},
		{map[string]string{"HF_TOKEN_PATH": other}, "hf_marked_bad", "hf_marked_good", other, ""},
		{map[string]string{"HF_TOKEN_PATH": "$TOKENS/other"}, "hf_marked_bad", "hf_marked_good", other, ""},
		{map[string]string{"HF_TOKEN_PATH": "~/other"}, "hf_marked_bad", "hf_marked_good", other, ""},
		{map[string]string{"HF_TOKEN_PATH": other}, "hf_marked_good", "", other, "no token was found in HF_TOKEN or in " + other},
	} {
		for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"} {
			t.Setenv(name, c.environment[name])
		}
		for path, content := range map[string]string{filepath.Join(home, "token"): c.inHome, other: c.inOther} {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		store := openAt(t, "datasets/o/private", quick())
		_, err := read(t, store, "a", 0, 4)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.environment, err, c.want)
		}
		if d, _ := objstore.Describe(t.Context(), store); !strings.HasSuffix(d.From, c.from) {
			t.Errorf("%v: from %s, want %s", c.environment, d.From, c.from)
		}
	}
}

// TestTrusted reads with a token that the Hub gives for the identity of a job, before any other. It
// is got once, again before it ends, and waited for as a store is; a refusal says what to do.
func TestTrusted(t *testing.T) {
	s := hubserver.NewSet(map[string]hubserver.File{"a": {Data: pattern(1, 1000), Kind: hubserver.Git}})
	s.Token, s.Private = "hf_jwt_1", true
	server := hubserver.New(t, map[string]*hubserver.Set{"o/private": s})
	var exchanges, identities, fails atomic.Int32
	seconds := 3600
	server.Hook = func(w http.ResponseWriter, r *http.Request, _ bool) bool {
		switch r.URL.Path {
		case "/identity":
			if identities.Add(1); r.Header.Get("Authorization") != "Bearer of-the-job" || r.URL.Query().Get("audience") != server.URL || r.URL.Query().Get("v") != "2" {
				http.Error(w, "", http.StatusForbidden)
				return true
			}
			fmt.Fprint(w, `{"value":"identity"}`)
		case "/oauth/token":
			var in map[string]string
			_ = json.NewDecoder(r.Body).Decode(&in)
			switch {
			case fails.Add(-1) >= 0:
				http.Error(w, "", http.StatusServiceUnavailable)
			case r.Header.Get("Authorization") != "" || in["subject_token"] != "identity" || in["resource"] != "datasets/o/private" ||
				!strings.HasSuffix(in["grant_type"], "token-exchange") || !strings.HasSuffix(in["subject_token_type"], "id_token"):
				http.Error(w, "", http.StatusForbidden)
			default:
				exchanges.Add(1)
				fmt.Fprintf(w, `{"access_token":"hf_jwt_1","expires_in":%d}`, seconds)
			}
		default:
			return false
		}
		return true
	}
	set := func(names ...string) {
		t.Helper()
		for _, name := range []string{"HF_OIDC_RESOURCE", "HF_OIDC_ID_TOKEN", "GITHUB_ACTIONS", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"} {
			t.Setenv(name, "")
		}
		for i := 0; i < len(names); i += 2 {
			t.Setenv(names[i], names[i+1])
		}
	}
	t.Setenv("HF_TOKEN", "hf_of_another")
	github := []string{"HF_OIDC_RESOURCE", "datasets/o/private", "GITHUB_ACTIONS", "true", "ACTIONS_ID_TOKEN_REQUEST_URL", server.URL + "/identity?v=2",
		"ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-job"}
	set(github...)
	fails.Store(2)
	store := openAt(t, "datasets/o/private", quick())
	for range 3 {
		if _, err := read(t, store, "a", 0, 4); err != nil {
			t.Fatal(err)
		}
	}
	if exchanges.Load() != 1 || identities.Load() != 3 { // an identity for each attempt
		t.Errorf("%d exchanges, %d identities", exchanges.Load(), identities.Load())
	}
	if d, err := objstore.Describe(t.Context(), store); err != nil || d.From != "HF_OIDC_RESOURCE" {
		t.Error(d, err)
	}
	exchanges.Store(0)
	seconds = 200 // less than the margin: each request gets another
	store = openAt(t, "datasets/o/private", quick())
	for range 2 {
		if _, err := read(t, store, "a", 0, 4); err != nil {
			t.Fatal(err)
		}
	}
	if exchanges.Load() < 2 {
		t.Errorf("%d exchanges of tokens that end soon", exchanges.Load())
	}
	exchanges.Store(0)
	set("HF_OIDC_RESOURCE", "datasets/o/private", "HF_OIDC_ID_TOKEN", "identity") // there is no other, so it serves to its end
	store = openAt(t, "datasets/o/private", quick())
	for range 2 {
		if _, err := read(t, store, "a", 0, 4); err != nil {
			t.Fatal(err)
		}
	}
	if exchanges.Load() != 1 {
		t.Errorf("%d exchanges of an identity that was given", exchanges.Load())
	}
	for want, names := range map[string][]string{
		"set HF_OIDC_ID_TOKEN": {"HF_OIDC_RESOURCE", "datasets/o/private"},
		"id-token: write":      {"HF_OIDC_RESOURCE", "datasets/o/private", "GITHUB_ACTIONS", "true"},
		"trust this workflow":  {"HF_OIDC_RESOURCE", "datasets/o/other", "HF_OIDC_ID_TOKEN", "identity"},
		"GitHub gives no":      append(github[:6:6], "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-another"),
	} {
		set(names...)
		_, err := read(t, openAt(t, "datasets/o/private", quick()), "a", 0, 4)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "of-another") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestTokenRotated replaces the token in the file: it is missing, empty and half written meanwhile.
func TestTokenRotated(t *testing.T) {
	s := hubserver.NewSet(map[string]hubserver.File{"a": {Data: pattern(1, 1000), Kind: hubserver.Git}})
	s.Token, s.Private = "hf_first_token", true
	server := hubserver.New(t, map[string]*hubserver.Set{"o/private": s})
	path := filepath.Join(os.Getenv("HF_HOME"), "token")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("hf_first_token")
	store := openAt(t, "datasets/o/private", quick())
	reads := func(when string) {
		t.Helper()
		if _, err := read(t, store, "a", 0, 4); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	reads("first")
	write("")
	reads("empty")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reads("missing")
	write("hf")
	refused := 0
	server.Hook = func(_ http.ResponseWriter, r *http.Request, _ bool) bool { // one request at a time
		s.Token = "hf_second_token"
		if strings.HasSuffix(r.Header.Get("Authorization"), " hf") {
			if refused++; refused == 3 {
				write("hf_second_token")
			}
		}
		return false
	}
	reads("half written")
	if refused < 3 {
		t.Errorf("%d requests had half a token", refused)
	}
}

func TestPlace(t *testing.T) {
	for rest, revision := range map[string]string{
		"datasets/o/n@v1.0/d":                    "v1.0",
		"datasets/o/n@a%2Fb/d":                   "a/b",
		"datasets/o/n@refs%2Fpr%2F1/d":           "refs/pr/1",
		"datasets/o/n@refs/pr/1/d":               "refs/pr/1",
		"datasets/o/n@refs/convert/parquet/d/":   "refs/convert/parquet",
		"datasets/o/n@" + hubserver.Other + "/d": hubserver.Other,
	} {
		set := hubserver.NewSet(nil)
		set.Revisions[revision] = hubserver.Other
		set.Files[hubserver.Other] = map[string]hubserver.File{"d/a": {Data: []byte("bytes")}}
		hubserver.New(t, map[string]*hubserver.Set{"o/n": set})
		store := openAt(t, rest, quick())
		if p, err := read(t, store, "a", 0, 5); err != nil || string(p) != "bytes" || store.String() != "hf://"+strings.TrimSuffix(rest, "/") {
			t.Errorf("%s: %q, %v", rest, p, err)
		}
	}
	for rest, want := range map[string]string{
		"": "only data sets", "datasets": "an organization and a data set", "datasets/o": "an organization", "datasets/../n": "an organization",
		"buckets/o/n": "only data sets", "o/n": "only data sets", "datasets/o/n@": "not a revision", "datasets/o/n@%zz": "not a revision",
		"datasets/o/n/a//b": "empty element", "datasets/o/n/../m": "element ..",
	} {
		if _, err := hub.New(rest, quick()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", rest, err, want)
		}
	}
	for _, address := range []string{"huggingface.co", "https://u:marked@host", "ftp://host", "https://host?x=marked"} {
		t.Setenv("HF_ENDPOINT", address)
		if _, err := hub.New("datasets/o/n", quick()); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestMoved moves the branch while a data set is open: the commit stays.
func TestMoved(t *testing.T) {
	set := hubserver.NewSet(map[string]hubserver.File{"a": {Data: []byte("old")}, "b": {Data: []byte("OLD"), Kind: hubserver.LFS}})
	s := hubserver.New(t, map[string]*hubserver.Set{"o/n": set})
	store := openAt(t, "datasets/o/n", quick())
	if p, err := read(t, store, "a", 0, 3); err != nil || string(p) != "old" {
		t.Fatal(err)
	}
	set.Revisions["main"], set.Files[hubserver.Other] = hubserver.Other, map[string]hubserver.File{"a": {Data: []byte("new")}}
	for name, want := range map[string]string{"a": "old", "b": "OLD"} {
		if p, err := read(t, store, name, 0, 3); err != nil || string(p) != want {
			t.Error(name, string(p), err)
		}
	}
	for info, err := range store.List(t.Context(), "b") {
		if err != nil || info.ETag != hubserver.SHA256([]byte("OLD")) {
			t.Error(info, err)
		}
	}
	if c := s.Counts(); c.API != 1 {
		t.Errorf("%+v", c)
	}
}

// TestSum compares the hashes that the Hub gives with the bytes.
func TestSum(t *testing.T) {
	for kind := range hubserver.Xet + 1 {
		data := pattern(byte(kind), 1000)
		one(t, kind, data)
		object, err := openAt(t, "datasets/o/n", quick()).Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer object.Close()
		sum, err := objstore.SumOf(t.Context(), object)
		if err != nil || sum == nil {
			t.Fatal(sum, err)
		}
		h := sum.New()
		h.Write(data)
		if err := sum.Check(h); err != nil {
			t.Error(kind, err)
		}
		h.Write(data)
		if err := sum.Check(h); !errors.Is(err, objstore.ErrChecksum) {
			t.Error(kind, err)
		}
	}
}
