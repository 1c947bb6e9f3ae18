package az_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/az"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
)

func TestMain(m *testing.M) {
	// The configuration of the machine must not affect the tests.
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AZURE_") || strings.Contains(name, "IDENTITY_") || strings.HasPrefix(name, "MSI_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")
	goleak.VerifyTestMain(m)
}

// authorities has the authority of httptest's servers.
var authorities = x509.NewCertPool()

const block = 256 << 10

// quick returns options with short pauses and small blocks.
func quick() (opts az.Options) {
	opts.BlockSize, opts.Workers = block, 3
	opts.ReadOptions = objstore.ReadOptions{BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, FirstByteTimeout: 20 * time.Second}
	return opts
}

// open opens a store with the account key.
func open(t *testing.T, s *azserver.Server, prefix string, opts az.Options) *az.Store {
	t.Helper()
	t.Setenv("AZURE_STORAGE_ACCOUNT_KEY", "bWFya2VkIGFjY291bnQga2V5")
	return openAs(t, s, prefix, opts)
}

// openAs opens a store with what is in the environment and the options.
func openAs(t *testing.T, s *azserver.Server, prefix string, opts az.Options) *az.Store {
	t.Helper()
	if opts.Endpoint == "" {
		opts.Endpoint = s.URL
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities}
	opts.HTTPClient = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	store, err := az.New(azserver.Account, "box", prefix, opts)
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
			storetest.Run(t, func(t *testing.T) objstore.Store { return open(t, azserver.New(t), prefix, quick()) })
		})
	}
}

// TestFolders runs the suite in an account with a hierarchical namespace, without the one test that
// depends on folders being nothing.
func TestFolders(t *testing.T) {
	s := azserver.New(t)
	s.Folders = true
	store := open(t, s, "p", quick())
	names := []string{"a-b", "a.b", "a/b", "a/b.c", "a/c/d", "a/c.d", "a0", "Z", "ab/x"}
	for _, name := range names {
		put(t, store, name, []byte(name))
	}
	slices.Sort(names)
	for prefix, want := range map[string][]string{"": names, "a/": {"a/b", "a/b.c", "a/c.d", "a/c/d"}} {
		if got := list(t, store, prefix); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

// TestOrder lists names that Azure puts in another order than the one of their bytes.
func TestOrder(t *testing.T) {
	store := open(t, azserver.New(t), "", quick())
	want := []string{"a", "b", "c", "z（1）", "z（2）", "z（3）", "z😀", "z😀/1", "z😀/2", "z😀/3"}
	for _, name := range want {
		put(t, store, name, nil)
	}
	if got := list(t, store, ""); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func put(t *testing.T, store objstore.Store, name string, data []byte) objstore.Info {
	t.Helper()
	info, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func list(t *testing.T, store objstore.Store, prefix string) (names []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}

// pattern returns bytes that differ from block to block.
func pattern(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i*7 + i>>8 + i>>16)
	}
	return data
}

// TestSizes puts objects around the ends of blocks. SumOf returns the MD5 of those that one request
// puts.
func TestSizes(t *testing.T) {
	s := azserver.New(t)
	store := open(t, s, "p", quick())
	for _, size := range []int{0, 1, block - 1, block, block + 1, 3*block - 1, 3 * block, 3*block + 1} {
		data := pattern(size)
		if info := put(t, store, "a", data); info.Size != int64(size) || info.Name != "a" {
			t.Fatalf("%d: %+v", size, info)
		}
		if got := s.Objects["p/a"].Data; !bytes.Equal(got, data) || len(s.Blocks) != 0 {
			t.Fatalf("%d bytes: stored %d, %d blocks left", size, len(got), len(s.Blocks))
		}
		object, err := store.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		sum, err := objstore.SumOf(t.Context(), object)
		if err != nil || (sum == nil) != (size > block) {
			t.Fatalf("%d: %+v, %v", size, sum, err)
		}
		if sum != nil {
			h := sum.New()
			h.Write(data)
			if err := sum.Check(h); err != nil {
				t.Error(err)
			}
		}
		object.Close()
	}
	if n := len(s.Requests("PUT /acct/box/p/a?comp=blocklist")); n != 4 {
		t.Errorf("%d lists of blocks, want 4", n)
	}
	s.Objects["p/a"] = &azserver.Stored{Data: []byte("appended"), ETag: "0x1", MD5: "1B2M2Y8AsgTpgAmY7PhCfg==", Type: "AppendBlob"}
	object, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if sum, err := objstore.SumOf(t.Context(), object); sum != nil || err != nil {
		t.Errorf("an MD5 that the server does not keep up to date: %+v, %v", sum, err)
	}
}

func TestWriters(t *testing.T) {
	s := azserver.New(t)
	storetest.RunWriters(t, block, open(t, s, "p", quick()), open(t, s, "p", quick()))
}

// TestBlocksGone commits one of two uploads of a name, which discards the blocks of the other: that
// one fails, and says why.
func TestBlocksGone(t *testing.T) {
	for _, cond := range []objstore.Condition{{}, {IfNoneMatch: true}} {
		s := azserver.New(t)
		store := open(t, s, "", quick())
		var uploads [2]objstore.Upload
		for i := range uploads {
			var err error
			if uploads[i], err = store.Create(t.Context(), "a", cond); err == nil {
				_, err = uploads[i].Write(pattern(4*block + i))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for len(s.Requests("PUT")) < 7 {
			time.Sleep(time.Millisecond)
		}
		if _, err := uploads[1].Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := uploads[0].Commit(t.Context())
		if cond.IfNoneMatch && !errors.Is(err, objstore.ErrExists) || !cond.IfNoneMatch && (err == nil || !strings.Contains(err.Error(), "another writer")) {
			t.Error(err)
		}
		if len(s.Objects["a"].Data) != 4*block+1 {
			t.Error("the object is not the first writer's")
		}
	}
}

// TestBlocksLeft creates a small object where an upload has left blocks, on a server that takes
// them for an object, as Azurite does. An object is not replaced even so.
func TestBlocksLeft(t *testing.T) {
	s := azserver.New(t)
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		s.Mu.Lock()
		left := len(s.Blocks["a"]) > 0
		s.Mu.Unlock()
		if refused := left && r.Method == http.MethodPut && r.URL.RawQuery == "" && r.Header.Get("If-None-Match") == "*"; refused {
			azserver.Refuse(w, http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
			return true
		}
		return false
	})
	store := open(t, s, "", quick())
	for _, size := range []int{0, 5} {
		s.Objects = map[string]*azserver.Stored{}
		s.Blocks["a"] = map[string][]byte{"left": nil}
		create := objstore.Condition{IfNoneMatch: true}
		if info, err := objstore.Put(t.Context(), store, "a", pattern(size), create); err != nil || info.ETag != s.Objects["a"].ETag || len(s.Objects["a"].Data) != size {
			t.Errorf("%d bytes: %+v, %v", size, info, err)
		}
		s.Blocks["a"] = map[string][]byte{"left": nil}
		if _, err := objstore.Put(t.Context(), store, "a", pattern(9), create); !errors.Is(err, objstore.ErrExists) || len(s.Objects["a"].Data) != size {
			t.Error(err)
		}
	}
}

// TestPinned replaces an object under an open handle: it is asked for by ETag, and is changed.
func TestPinned(t *testing.T) {
	s := azserver.New(t)
	store := open(t, s, "", quick())
	put(t, store, "a", pattern(1000))
	object, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	for _, want := range []error{nil, objstore.ErrChanged, objstore.ErrChanged} {
		if err := object.ReadAt(t.Context(), make([]byte, 10), 20); !errors.Is(err, want) {
			t.Error(err)
		}
		put(t, store, "a", pattern(1000))
		if want != nil {
			if err := store.Delete(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNames puts names that must be escaped, and refuses those that the service does not keep.
func TestNames(t *testing.T) {
	s := azserver.New(t)
	store := open(t, s, "a b+c%2F", quick())
	names := []string{"a b", "a+b", "a%2Fb", "a/b/c", "ä/漢字", "a?b=c&d#e", "x;y,z:@!$'()*~", "[1]*?", "\"q\""}
	for _, name := range names {
		put(t, store, name, []byte(name))
		if got, info, err := objstore.ReadAll(t.Context(), store, name, 100); err != nil || string(got) != name || info.Name != name {
			t.Errorf("%q: %q, %+v, %v", name, got, info, err)
		}
		if s.Objects["a b+c%2F/"+name] == nil {
			t.Errorf("%q has another name in the container", name)
		}
	}
	if got := list(t, store, ""); len(got) != len(names) {
		t.Errorf("%q are listed", got)
	}
	for _, name := range names {
		if err := store.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"line\nbreak", "tab\there", "\xff", "end.", "dir./a", "\u0081"} {
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
	sas := "sig=marked-secret"
	for name, c := range map[string]struct {
		account, container, prefix string
		opts                       az.Options
		environment                []string
	}{
		"no account":   {"", "box", "", az.Options{}, nil},
		"account":      {"a.b", "box", "", az.Options{}, nil},
		"no container": {"acct", "", "", az.Options{}, nil},
		"container":    {"acct", "a/b", "", az.Options{}, nil},
		"prefix":       {"acct", "box", "a/../b", az.Options{}, nil},
		"endpoint":     {"acct", "box", "", az.Options{Endpoint: "host:9000"}, nil},
		"user":         {"acct", "box", "", az.Options{Endpoint: "https://u:marked-secret@host"}, nil},
		"query":        {"acct", "box", "", az.Options{Endpoint: "https://host/?sig=marked-secret"}, nil},
		"no TLS":       {"acct", "box", "", az.Options{Endpoint: "http://host", SAS: sas}, nil},
		"token":        {"acct", "box", "", az.Options{Endpoint: "http://host"}, nil},
		"SAS":          {"acct", "box", "", az.Options{SAS: "sg=marked-secret"}, nil},
		"key":          {"acct", "box", "", az.Options{}, []string{"AZURE_STORAGE_KEY", "marked secret"}},
		"env SAS":      {"acct", "box", "", az.Options{}, []string{"AZURE_STORAGE_SAS_TOKEN", "marked%zz"}},
		"conn": {"acct", "box", "", az.Options{}, []string{"AZURE_STORAGE_CONNECTION_STRING",
			"BlobEndpoint=http://acct.blob.example;SharedAccessSignature=sig=marked-secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.environment != nil {
				t.Setenv(c.environment[0], c.environment[1])
			}
			_, err := az.New(c.account, c.container, c.prefix, c.opts)
			if err == nil || strings.Contains(err.Error(), "marked") {
				t.Error(err)
			}
		})
	}
}

// TestFolderIsNoObject asks for a folder of a hierarchical namespace.
func TestFolderIsNoObject(t *testing.T) {
	s := azserver.New(t)
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Ms-Meta-Hdi_isfolder", "true")
		w.Header().Set("ETag", `"0x1"`)
		return true
	})
	if _, err := open(t, s, "", quick()).Stat(t.Context(), "folder"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestListAll: the list of every name has those that no store accepts.
func TestListAll(t *testing.T) {
	server := azserver.New(t)
	store := open(t, server, "some/prefix", quick())
	names := []string{"a//b", "a/./b", "c\\d", "e/", "/h", strings.Repeat("n", 1000), "a/b", "z"} // XML has the others not
	for _, name := range names {
		server.Objects["some/prefix/"+name] = &azserver.Stored{Data: []byte("x"), ETag: "0x1", At: time.Now(), Type: "BlockBlob"}
	}
	storetest.ListAll(t, store, names)
}

// TestVersions lists and deletes versions, over several pages, in accounts that keep what is
// deleted: as versions, softly deleted, and under a policy, a hold or a lease.
func TestVersions(t *testing.T) {
	s := azserver.New(t)
	s.Versioned = true
	store := open(t, s, "a b", quick())
	for _, name := range []string{"x", "y+z", "x", "ü/1", "x"} {
		put(t, store, name, pattern(10))
	}
	if err := store.Delete(t.Context(), "y+z"); err != nil {
		t.Fatal(err)
	}
	traits := store.Traits()
	check := func(want ...string) (all []objstore.Version) {
		t.Helper()
		var text []string
		for v, err := range traits.ListVersions(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
			text = append(text, fmt.Sprint(v.Name, " ", v.Size, v.Current, v.Mark, !v.Until.IsZero()))
		}
		slices.Sort(text)
		if !slices.Equal(text, want) {
			t.Fatalf("%q, want %q", text, want)
		}
		return all
	}
	all := check("x 10 false false false", "x 10 false false false", "x 10 true false false", "y+z 10 false false false", "ü/1 10 true false false")
	old := slices.IndexFunc(all, func(v objstore.Version) bool { return v.Name == "x" && !v.Current })
	s.Soft = true
	for range 2 { // a missing one is no error
		if err := traits.DeleteVersion(t.Context(), "x", all[old].ID); err != nil {
			t.Fatal(err)
		}
	}
	all = check("x 10 false false false", "x 10 false false true", "x 10 true false false", "y+z 10 false false false", "ü/1 10 true false false")
	for _, code := range []string{"BlobImmutableDueToPolicy", "LeaseIdMissing"} {
		s.Locked = func(string, string) string { return code }
		for _, v := range all {
			if v.Current || !v.Until.IsZero() {
				continue
			}
			if err := traits.DeleteVersion(t.Context(), v.Name, v.ID); !errors.Is(err, objstore.ErrKept) || !strings.Contains(err.Error(), code) {
				t.Errorf("%s: %v", code, err)
			}
		}
		if err := store.Delete(t.Context(), "x"); !errors.Is(err, objstore.ErrKept) {
			t.Errorf("%s: %v", code, err)
		}
	}
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("include") {
			azserver.Refuse(w, http.StatusBadRequest, "UnsupportedQueryParameter", "no")
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

// TestRequired checks that each request has what the owner of an account requires: the tier and the
// keys where Azure takes them.
func TestRequired(t *testing.T) {
	s := azserver.New(t)
	key := bytes.Repeat([]byte("k"), 32)
	encoded := base64.StdEncoding.EncodeToString(key)
	var mu sync.Mutex
	var seen []string
	s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
		h := r.Header
		mu.Lock()
		defer mu.Unlock()
		line := fmt.Sprintf("%s %s tier=%s scope=%s key=%v algorithm=%s sum=%v", r.Method, r.URL.Query().Get("comp"), h.Get("X-Ms-Access-Tier"),
			h.Get("X-Ms-Encryption-Scope"), h.Get("X-Ms-Encryption-Key") == encoded, h.Get("X-Ms-Encryption-Algorithm"),
			len(h.Get("X-Ms-Encryption-Key-Sha256")) == 44)
		if !slices.Contains(seen, line) {
			seen = append(seen, line)
		}
		return false
	})
	use := func(opts az.Options) []string {
		t.Helper()
		seen = nil
		store := open(t, s, "", opts)
		for name, size := range map[string]int{"small": 10, "large": 3 * block} {
			put(t, store, name, pattern(size))
			if _, err := store.Stat(t.Context(), name); err != nil {
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
	opts.AccessTier, opts.EncryptionScope = "Cool", "scope"
	if got, want := use(opts), []string{
		"DELETE  tier= scope= key=false algorithm= sum=false", "GET  tier= scope= key=false algorithm= sum=false",
		"HEAD  tier= scope= key=false algorithm= sum=false", "PUT  tier=Cool scope=scope key=false algorithm= sum=false",
		"PUT block tier= scope=scope key=false algorithm= sum=false", "PUT blocklist tier=Cool scope=scope key=false algorithm= sum=false",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	opts = quick()
	opts.CustomerKey = key
	if got, want := use(opts), []string{
		"DELETE  tier= scope= key=false algorithm= sum=false", "GET  tier= scope= key=true algorithm=AES256 sum=true",
		"HEAD  tier= scope= key=true algorithm=AES256 sum=true", "PUT  tier= scope= key=true algorithm=AES256 sum=true",
		"PUT block tier= scope= key=true algorithm=AES256 sum=true", "PUT blocklist tier= scope= key=true algorithm=AES256 sum=true",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	for want, change := range map[string]func(o *az.Options){
		"the access tier is not one of":  func(o *az.Options) { o.AccessTier = "marked" },
		"leave the encryption scope out": func(o *az.Options) { o.EncryptionScope, o.CustomerKey = "k", key },
		"the endpoint has no TLS":        func(o *az.Options) { o.Endpoint, o.CustomerKey = "http://storage.example", key },
	} {
		opts := quick()
		change(&opts)
		if _, err := az.New(azserver.Account, "box", "", opts); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "marked") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		azserver.Refuse(w, http.StatusConflict, "BlobCustomerSpecifiedEncryptionMismatch", "No. "+r.Header.Get("X-Ms-Encryption-Key"))
		return true
	})
	_, _, err := objstore.ReadAll(t.Context(), open(t, s, "", opts), "a", 100)
	if err == nil || !strings.Contains(err.Error(), "the customer key is another") || strings.Contains(err.Error(), encoded) {
		t.Error(err)
	}
}
