package gs_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/gs"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(childOf); at != "" {
		x509Child(at)
		return
	}
	// The configuration of the machine must not affect the tests.
	for name, value := range map[string]string{
		"STORAGE_EMULATOR_HOST": "", "GOOGLE_APPLICATION_CREDENTIALS": "", "HOME": "/nonexistent", "GCE_METADATA_HOST": "127.0.0.1:1",
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

const chunk = 256 << 10

// quick returns options with short pauses and small chunks.
func quick() (opts gs.Options) {
	opts.Anonymous, opts.PartSize = true, chunk
	opts.ReadOptions = objstore.ReadOptions{BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, FirstByteTimeout: 20 * time.Second}
	return opts
}

func open(t *testing.T, s *gsserver.Server, prefix string, opts gs.Options) *gs.Store {
	t.Helper()
	opts.Endpoint = s.URL
	if opts.HTTPClient == nil {
		transport := &http.Transport{MaxIdleConnsPerHost: 100}
		if s.TLS != nil {
			transport = s.Client().Transport.(*http.Transport)
		}
		opts.HTTPClient = &http.Client{Transport: transport}
		t.Cleanup(transport.CloseIdleConnections)
	}
	store, err := gs.New("bucket", prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore(t *testing.T) {
	for _, prefix := range []string{"", "some/prefix"} {
		if testing.Short() && prefix == "" {
			continue
		}
		t.Run("prefix="+prefix, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) objstore.Store { return open(t, gsserver.New(t), prefix, quick()) })
		})
	}
}

// pattern returns bytes that differ from chunk to chunk.
func pattern(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i*7 + i>>8 + i>>16)
	}
	return data
}

// TestSizes puts objects around the ends of chunks. The server verifies the CRC-32C of each, and
// SumOf returns it.
func TestSizes(t *testing.T) {
	s := gsserver.New(t)
	store := open(t, s, "p", quick())
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk - 1, 3 * chunk, 3*chunk + 1} {
		data := pattern(size)
		info, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{})
		if err != nil || info.Size != int64(size) || info.Name != "a" {
			t.Fatalf("%d: %+v, %v", size, info, err)
		}
		if got := s.Objects["p/a"].Data; !bytes.Equal(got, data) || len(s.Objects) != 1 {
			t.Fatalf("%d bytes: stored %d, %d objects", size, len(got), len(s.Objects))
		}
		object, err := store.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		sum, err := objstore.SumOf(t.Context(), object)
		if err != nil || sum == nil {
			t.Fatalf("%+v, %v", sum, err)
		}
		h := sum.New()
		h.Write(data)
		if err := sum.Check(h); err != nil {
			t.Error(err)
		}
		object.Close()
	}
	if n := len(s.Requests("POST /storage/v1/b/bucket/o/p%2Fa/compose?")); n != 4 {
		t.Errorf("%d objects were composed, want 4: %q", n, s.Requests("POST"))
	}
}

// TestManyParts composes an object of more parts than one request may name.
func TestManyParts(t *testing.T) {
	s := gsserver.New(t)
	opts := quick()
	opts.PartSize = 1000
	store := open(t, s, "", opts)
	data := pattern(1100*1000 + 1)
	if _, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{IfNoneMatch: true}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Objects["a"].Data, data) || len(s.Objects) != 1 || len(s.Requests("POST /storage")) != 35+2+1 {
		t.Errorf("%d bytes in %d objects by %d requests", len(s.Objects["a"].Data), len(s.Objects), len(s.Requests("POST /storage")))
	}
}

// TestSweep leaves parts of an upload whose process died. Lists do not show them, also not those of
// a store above, and Sweep deletes them once they are a day old.
func TestSweep(t *testing.T) {
	s := gsserver.New(t)
	store, above := open(t, s, "p/q", quick()), open(t, s, "p", quick())
	upload, err := store.Create(t.Context(), "a", objstore.Condition{})
	if err == nil {
		_, err = upload.Write(make([]byte, 3*chunk))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer upload.Abort()
	for parts := 0; parts < 2; time.Sleep(time.Millisecond) {
		s.Mu.Lock()
		parts = len(s.Objects)
		s.Mu.Unlock()
	}
	for _, l := range []*gs.Store{store, above} {
		for info, err := range l.List(t.Context(), "") {
			t.Errorf("%v lists %s, %v", l, info.Name, err)
		}
	}
	sweep := objstore.TraitsOf(store).Sweep
	if n, err := sweep(t.Context(), 0); n != 0 || err != nil {
		t.Fatalf("young parts: %d, %v", n, err)
	}
	for _, o := range s.Objects {
		o.At = o.At.Add(-25 * time.Hour)
	}
	if n, err := sweep(t.Context(), 0); n != 2 || err != nil || len(s.Objects) != 0 {
		t.Fatalf("old parts: %d, %v, %d left", n, err, len(s.Objects))
	}
	if _, err := upload.Commit(t.Context()); err == nil || s.Objects["a"] != nil {
		t.Errorf("an upload without its parts: %v", err)
	}
}

func TestWriters(t *testing.T) {
	s := gsserver.New(t)
	storetest.RunWriters(t, chunk, open(t, s, "p", quick()), open(t, s, "p", quick()))
}

// TestPinned replaces an object under an open handle: it is asked for by generation, and is
// changed.
func TestPinned(t *testing.T) {
	s := gsserver.New(t)
	store := open(t, s, "", quick())
	first, err := objstore.Put(t.Context(), store, "a", pattern(1000), objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	object, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	for range 2 {
		if err := object.ReadAt(t.Context(), make([]byte, 10), 20); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Requests("GET /storage/v1/b/bucket/o/a?alt=media&generation=" + first.ETag); len(got) != 1 {
		t.Errorf("asked by %q", s.Requests("GET"))
	}
	if _, err := objstore.Put(t.Context(), store, "a", pattern(1000), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := object.ReadAt(t.Context(), make([]byte, 10), 20); !errors.Is(err, objstore.ErrChanged) {
		t.Error(err)
	}
}

// TestNames puts names that must be escaped, and refuses those that the service has not.
func TestNames(t *testing.T) {
	s := gsserver.New(t)
	store := open(t, s, "a b+c%2F", quick())
	names := []string{"a b", "a+b", "a%2Fb", "a/b/c", "ä/漢字", "a?b=c&d#e", "x;y,z:@!$'()*~", "[1]*?", "\"q\"", "tab\there"}
	for _, name := range names {
		if _, err := objstore.Put(t.Context(), store, name, []byte(name), objstore.Condition{IfNoneMatch: true}); err != nil {
			t.Fatal(err)
		}
		if got, info, err := objstore.ReadAll(t.Context(), store, name, 100); err != nil || string(got) != name || info.Name != name {
			t.Errorf("%q: %q, %+v, %v", name, got, info, err)
		}
		if s.Objects["a b+c%2F/"+name] == nil {
			t.Errorf("%q has another name in the bucket", name)
		}
	}
	listed := 0
	for _, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed++
	}
	if listed != len(names) {
		t.Errorf("%d names are listed", listed)
	}
	for _, name := range names {
		if err := store.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"line\nbreak", "return\r", "\xff"} {
		if _, err := objstore.Put(t.Context(), store, name, nil, objstore.Condition{}); !errors.Is(err, objstore.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if len(s.Objects) != 0 {
		t.Errorf("left: %d objects", len(s.Objects))
	}
}

// TestBadOptions checks that New refuses them, without showing secrets.
func TestBadOptions(t *testing.T) {
	for name, c := range map[string]struct {
		bucket, prefix string
		opts           gs.Options
	}{
		"no bucket": {"", "", gs.Options{}},
		"bucket":    {"a/b", "", gs.Options{}},
		"prefix":    {"bucket", "a/../b", gs.Options{}},
		"endpoint":  {"bucket", "", gs.Options{Endpoint: "host:9000"}},
		"user":      {"bucket", "", gs.Options{Endpoint: "https://u:marked-secret@host"}},
		"query":     {"bucket", "", gs.Options{Endpoint: "https://host/?sig=marked-secret"}},
		"no TLS":    {"bucket", "", gs.Options{Endpoint: "http://host"}},
	} {
		_, err := gs.New(c.bucket, c.prefix, c.opts)
		if err == nil || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEmulator checks that STORAGE_EMULATOR_HOST is used, without credentials.
func TestEmulator(t *testing.T) {
	s := gsserver.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(s.URL, "http://"))
	opts := quick()
	opts.Anonymous, opts.HTTPClient = false, s.Client()
	store, err := gs.New("bucket", "", opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// TestUserProject checks that the project that pays is named in every request.
func TestUserProject(t *testing.T) {
	s := gsserver.New(t)
	opts := quick()
	opts.UserProject = "payer"
	store := open(t, s, "", opts)
	if _, err := objstore.Put(t.Context(), store, "a", pattern(2*chunk), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := objstore.ReadAll(t.Context(), store, "a", 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Requests("") {
		if !strings.Contains(r, "userProject=payer") {
			t.Error(r)
		}
	}
}

// TestListAll: the list of every name has those that no store accepts.
func TestListAll(t *testing.T) {
	server := gsserver.New(t)
	store := open(t, server, "some/prefix", quick())
	names := append(storetest.OddNames(), "a/b", "z")
	for _, name := range names {
		if name != "not utf-8 \xff" { // JSON has none
			server.Objects["some/prefix/"+name] = &gsserver.Stored{Data: []byte("x"), Generation: 1}
		}
	}
	storetest.ListAll(t, store, slices.DeleteFunc(names, func(name string) bool { return !utf8.ValidString(name) }))
}

// TestVersions lists and deletes generations, over several pages, in buckets that keep what is
// deleted: noncurrent, softly deleted, under a retention policy, and parts.
func TestVersions(t *testing.T) {
	s := gsserver.New(t)
	s.Versioned = true
	store := open(t, s, "a b", quick())
	put := func(name string, size int) {
		t.Helper()
		if _, err := objstore.Put(t.Context(), store, name, pattern(size), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"x", "y+z", "x", "ü/1", "x"} {
		put(name, 10)
	}
	if err := store.Delete(t.Context(), "y+z"); err != nil {
		t.Fatal(err)
	}
	traits := store.Traits()
	list := func() (all []objstore.Version, text []string) {
		t.Helper()
		for v, err := range traits.ListVersions(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
			text = append(text, fmt.Sprint(v.Name, " ", v.Size, v.Current, v.Mark, !v.Until.IsZero()))
		}
		return all, text
	}
	versions := func() []objstore.Version { all, _ := list(); return all }
	check := func(want ...string) []objstore.Version {
		t.Helper()
		all, text := list()
		if !slices.Equal(text, want) {
			t.Fatalf("%q, want %q", text, want)
		}
		return all
	}
	all := check("x 10 true false false", "x 10 false false false", "x 10 false false false", "y+z 10 false false false", "ü/1 10 true false false")
	s.Soft = true
	for range 2 { // a missing one is no error
		if err := traits.DeleteVersion(t.Context(), "x", all[1].ID); err != nil {
			t.Fatal(err)
		}
	}
	check("x 10 true false false", "x 10 false false false", "y+z 10 false false false", "ü/1 10 true false false", "x 10 false false true")
	for _, reason := range []string{"retentionPolicyNotMet", "objectUnderActiveHold"} {
		s.Locked = func(string, int64) string { return reason }
		if err := traits.DeleteVersion(t.Context(), "x", all[2].ID); !errors.Is(err, objstore.ErrKept) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", reason, err)
		}
		if err := store.Delete(t.Context(), "x"); !errors.Is(err, objstore.ErrKept) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if err := store.Delete(t.Context(), "missing"); err != nil {
		t.Error(err)
	}

	// Parts stay under a policy. Young ones may belong to a pack that runs.
	s.Soft, s.Versioned = false, false
	clear(s.Versions)
	clear(s.SoftDeleted)
	put("large", 3*chunk)
	parts := 0
	for _, v := range versions() {
		if objstore.IsPart(v.Name) {
			if parts++; v.Current || v.Until.IsZero() {
				t.Errorf("%+v", v)
			}
		}
	}
	if parts == 0 {
		t.Error("no parts are listed")
	}
	for _, o := range s.Objects {
		o.At = o.At.Add(-25 * time.Hour)
	}
	for _, v := range versions() {
		if objstore.IsPart(v.Name) && (v.Current || !v.Until.IsZero()) {
			t.Errorf("%+v", v)
		}
	}
	if n, err := traits.Sweep(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("%d parts under a policy were deleted, %v", n, err)
	}

	// Soft-deleted objects that are not listed are no success.
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("softDeleted") {
			gsserver.Refuse(w, http.StatusForbidden, "forbidden", "no")
			return true
		}
		return false
	})
	var last error
	for _, err := range traits.ListVersions(t.Context(), "") {
		last = err
	}
	if !errors.Is(last, objstore.ErrKept) {
		t.Error(last)
	}
}

// TestRequired checks that each request has what the owner of a bucket requires: the class of the
// object and not of its parts, keys, and no key with requests that do not want it.
func TestRequired(t *testing.T) {
	s := gsserver.New(t)
	key := bytes.Repeat([]byte("k"), 32)
	encoded := base64.StdEncoding.EncodeToString(key)
	var mu sync.Mutex
	var seen []string
	s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		class := regexp.MustCompile(`"storageClass":"([A-Z]*)"`).FindSubmatch(body)
		part := regexp.MustCompile(`"name":"\.shardtool-part`).Match(body) && !strings.Contains(r.URL.Path, "/compose") ||
			strings.Contains(r.URL.Path, "/compose") && strings.Contains(r.URL.Path, "shardtool-part")
		h := r.Header
		mu.Lock()
		defer mu.Unlock()
		line := fmt.Sprintf("%s part=%v kms=%s key=%v algorithm=%s sum=%v", r.Method, part, r.URL.Query().Get("kmsKeyName"),
			h.Get("X-Goog-Encryption-Key") == encoded, h.Get("X-Goog-Encryption-Algorithm"), len(h.Get("X-Goog-Encryption-Key-Sha256")) == 44)
		if class != nil {
			line += " class=" + string(class[1])
		}
		if !slices.Contains(seen, line) {
			seen = append(seen, line)
		}
		return false
	})
	use := func(opts gs.Options) []string {
		t.Helper()
		seen = nil
		store := open(t, s, "", opts)
		for name, size := range map[string]int{"small": 10, "large": 3 * chunk} {
			if _, err := objstore.Put(t.Context(), store, name, pattern(size), objstore.Condition{}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := objstore.ReadAll(t.Context(), store, name, 1<<22); err != nil {
				t.Fatal(err)
			}
			if err := store.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(seen)
		return seen
	}
	opts := quick()
	opts.StorageClass, opts.KMSKey = "NEARLINE", "projects/p/k"
	if got, want := use(opts), []string{
		"DELETE part=false kms= key=false algorithm= sum=false", "GET part=false kms= key=false algorithm= sum=false",
		"POST part=false kms=projects/p/k key=false algorithm= sum=false class=NEARLINE",
		"POST part=true kms=projects/p/k key=false algorithm= sum=false class=STANDARD",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	opts = quick()
	opts.CustomerKey = key
	if got, want := use(opts), []string{
		"DELETE part=false kms= key=false algorithm= sum=false", "GET part=false kms= key=true algorithm=AES256 sum=true",
		"POST part=false kms= key=true algorithm=AES256 sum=true", "POST part=true kms= key=true algorithm=AES256 sum=true",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	for want, change := range map[string]func(o *gs.Options){
		"the storage class is not one of": func(o *gs.Options) { o.StorageClass = "marked" },
		"leave the key of KMS out":        func(o *gs.Options) { o.KMSKey, o.CustomerKey = "k", key },
		"the endpoint has no TLS":         func(o *gs.Options) { o.Endpoint, o.CustomerKey = "http://storage.example", key },
	} {
		opts := quick()
		change(&opts)
		if _, err := gs.New("bucket", "", opts); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "marked") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		gsserver.Refuse(w, http.StatusBadRequest, "customerEncryptionKeyIsIncorrect",
			"The provided encryption key is incorrect. "+r.Header.Get("X-Goog-Encryption-Key"))
		return true
	})
	_, _, err := objstore.ReadAll(t.Context(), open(t, s, "", opts), "a", 100)
	if err == nil || !strings.Contains(err.Error(), "the customer key is another") || strings.Contains(err.Error(), encoded) {
		t.Error(err)
	}
}
