package address_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not yet")
	for _, addr := range []string{dir, dir + "/", dir + "/sub://dir"} {
		store, err := address.Open(t.Context(), addr, address.Options{})
		if err != nil || store.String() != addr {
			t.Fatal(addr, err)
		}
		if _, err := objstore.Put(t.Context(), store, "x", nil, objstore.Condition{IfNoneMatch: addr != dir+"/"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := address.Open(t.Context(), filepath.Join(dir, "x"), address.Options{})
	if err == nil || !strings.Contains(err.Error(), "give the directory that holds the data set") {
		t.Fatal(err)
	}
}

func TestOpenScheme(t *testing.T) {
	t.Chdir(t.TempDir())
	for addr, want := range map[string]string{
		"oss://bucket/prefix": "unsupported scheme oss://; give a directory, s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix; hf://datasets/ORG/NAME and https://host/prefix can only be read",
		"git+ssh://u:p@host":  "unsupported scheme git+ssh",
	} {
		_, err := address.Open(t.Context(), addr, address.Options{})
		if !errors.Is(err, address.ErrScheme) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", addr, err, want)
		}
	}
	if _, err := address.Open(t.Context(), "", address.Options{}); err == nil {
		t.Error("the empty address was opened")
	}
	for addr, want := range map[string]string{"s3:bucket/x": "s3://bucket/x", "gs:/bucket/x": "gs://bucket/x", "https:host/x?sig=secret": "https://host/x"} {
		if _, err := address.Open(t.Context(), addr, address.Options{}); err == nil || !strings.Contains(err.Error(), "write "+want+", or ./") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", addr, err)
		}
		if _, err := address.Open(t.Context(), "./"+addr, address.Options{}); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []string{"a b://c", "1s://x", "://x", "run:3", "a:b/c", "a/h:/c"} {
		if _, err := address.Open(t.Context(), addr, address.Options{}); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Error("opening made something", entries, err)
	}
}

// TestHubBucket reads from a gateway that redirects reads to another host, as the Hub's does. That
// host is sent no credentials.
func TestHubBucket(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "HFAKMARKED", "AWS_SECRET_ACCESS_KEY": "marked-secret", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "",
	} {
		t.Setenv(name, value)
	}
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Amz-Security-Token") != "" || r.URL.RawQuery != "sig=1" {
			t.Errorf("the edge is sent credentials: %v %v", r.URL, r.Header)
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	}))
	defer edge.Close()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "/us-east-1/s3/") || r.URL.EscapedPath() != "/org/bucket/set/a%20b" {
			t.Errorf("%s %v %v", r.Method, r.URL, r.Header)
		}
		http.Redirect(w, r, edge.URL+"/object?sig=1", http.StatusFound)
	}))
	defer gateway.Close()
	store, err := address.Open(t.Context(), "hf://buckets/org/bucket/set/?endpoint="+gateway.URL, address.Options{})
	if err != nil || store.String() != "hf://buckets/org/bucket/set" {
		t.Fatal(store, err)
	}
	object, err := store.Open(t.Context(), "a b")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	p := make([]byte, 4)
	if err := object.ReadAt(t.Context(), p, 3); err != nil || string(p) != "3456" {
		t.Errorf("%q, %v", p, err)
	}
	for _, addr := range []string{"hf://buckets/", "hf://buckets/org", "hf://buckets/../bucket", "hf://buckets/org/b?token=x"} {
		if _, err := address.Open(t.Context(), addr, address.Options{}); err == nil {
			t.Errorf("%s was opened", addr)
		}
	}
	gateway.CloseClientConnections()
	edge.CloseClientConnections()
}

// TestCustomerKey: the file has the key or its base64; other content is refused and not shown.
func TestCustomerKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	addr := "s3://bucket/a?sse_customer_key_file=" + file
	for content, want := range map[string]string{
		strings.Repeat("k", 32): "", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n": "",
		"": "has no 32 bytes", "secret": "has no 32 bytes", strings.Repeat("secret==", 200): "has no 32 bytes",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := address.Open(t.Context(), addr, address.Options{})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v; want %q", content, err, want)
		}
	}
}

func TestOpenURL(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-1")
	for addr, want := range map[string]string{
		"s3://bucket":      "s3://bucket",
		"S3://bucket/a/b/": "s3://bucket/a/b",
		"s3://bucket/a?endpoint=http://127.0.0.1:1": "s3://bucket/a",
		"s3://bucket/a?anonymous=true&path_style=0": "s3://bucket/a",
		"s3://bucket/a?unchecked=true":              "s3://bucket/a",
		"s3://bucket/a?requester_pays=true&sse=aws:kms&sse_kms_key_id=k&storage_class=STANDARD_IA&acl=private": "s3://bucket/a",
		"s3://arn:aws:s3:us-west-2:1234:accesspoint/train/a?requester_pays=true":                               "s3://arn:aws:s3:us-west-2:1234:accesspoint/train/a",
		"gs://bucket": "gs://bucket",
		"gs://bucket/a/?anonymous=1&user_project=p": "gs://bucket/a",
		"gs://bucket/a?endpoint=https://127.0.0.1":  "gs://bucket/a",
		"az://acct/box":                             "az://acct/box",
		"azure://acct/box/a/?anonymous=true":        "az://acct/box/a",
		"az://acct/box/a?sv=1&sig=secret%3D&se=2":   "az://acct/box/a",
		"az://acct/box/a?endpoint=https://h&sig=s":  "az://acct/box/a",
		"abfss://box@acct.dfs.core.windows.net/a/b": "az://acct/box/a/b",
		"abfs://box@acct.dfs.core.windows.net":      "az://acct/box",
		"https://host/data/":                        "https://host/data",
		"https://name:secret@host/data?sig=secret":  "https://host/data",
		"hf://datasets/o/n":                         "hf://datasets/o/n",
		"hf://datasets/o/n@refs/convert/parquet/a/": "hf://datasets/o/n@refs/convert/parquet/a",
	} {
		store, err := address.Open(t.Context(), addr, address.Options{})
		if err != nil || store.String() != want {
			t.Errorf("%s: %v, %v, want %s", addr, store, err, want)
			continue
		}
		if traits := objstore.TraitsOf(store); !traits.Remote() || traits.Reserve == nil || traits.MostRequests <= traits.Requests {
			t.Errorf("%s: traits %+v; want a remote store whose requests can be raised", addr, traits)
		}
	}
	for addr, want := range map[string]string{
		"s3://":                                    "bucket",
		"s3://bucket/x?sorcery=secret":             "unknown option; the options are acl, anonymous, endpoint, path_style, profile, region, requester_pays, single_writer, sse, sse_customer_key_file, sse_kms_key_id, storage_class, unchecked",
		"s3://bucket/x?anonymous=secret":           "give true or false",
		"s3://bucket/x?%zz=secret":                 "not a list of name=value",
		"s3://bucket/x?endpoint=u:secret@host":     "the endpoint is not a URL",
		"s3://bucket/x?sse=secret":                 "the encryption is not one of S3",
		"s3://bucket/x?sse_customer_key_file=none": "no such file",
		"gs://":                       "bucket",
		"gs://bucket/x?region=secret": "unknown option; the options are anonymous, customer_key_file, endpoint, kms_key, storage_class, user_project",
		"gs://bucket/x?customer_key_file=/none&storage_class=NEARLINE": "open gs://bucket/x: option \"customer_key_file\": open /none",
		"az://acct/box/x?customer_key_file=/none&access_tier=Cool":     "open az://acct/box/x: option \"customer_key_file\": open /none",
		"gs://bucket/x?storage_class=secret":                           "the storage class is not one of Google",
		"az://acct/box/x?access_tier=secret":                           "the access tier is not one of Azure",
		"gs://bucket/x?endpoint=http://secret":                         "the endpoint has no TLS",
		"https://":                                                     "not a URL",
		"hf://datasets/o/n?token=secret":                               "no options after a ?",
		"hf://models/o/n":                                              "only data sets",
		"az://":                                                        "az://account/container/prefix",
		"az://acct":                                                    "the container's name must have 1 to 255 letters, digits, dots, dashes and underscores; give az://acct/container/prefix",
		"az://acct/box/a?sv=secret":                                    "unknown option; the options are access_tier, anonymous, customer_key_file, encryption_scope, endpoint",
		"az://acct/box?endpoint=http://h&sig=secret":                   "the endpoint has no TLS",
		"abfss://box/a":                                                "give abfss://container@account.dfs.core.windows.net/prefix",
		"abfss://u:secret@h":                                           "give abfss://container@account.dfs.core.windows.net/prefix",
	} {
		_, err := address.Open(t.Context(), addr, address.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want %q", addr, err, want)
		}
	}
}

// TestHeaders: a server gets the headers that the file has for it, and no other server does, nor
// one that it redirects to.
func TestHeaders(t *testing.T) {
	seen := map[string]http.Header{}
	serve := func(name string, to *string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen[name] = r.Header.Clone()
			if to != nil {
				http.Redirect(w, r, *to+r.URL.Path, http.StatusFound)
				return
			}
			w.Header().Set("ETag", `"a"`)
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
		}))
		t.Cleanup(s.Close)
		return s
	}
	other := serve("other", nil)
	edge := serve("edge", &other.URL)
	own := serve("own", nil)
	file := filepath.Join(t.TempDir(), "headers")
	t.Setenv("SHARDTOOL_HTTP_HEADERS", file)
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# keys\n\n" + own.URL + " X-Api-Key: abc\n" + own.URL + "  Cookie: session=1 \n" + edge.URL + " X-Api-Key: of-edge\n" + edge.URL + " X-Other: x\n")
	for name, s := range map[string]*httptest.Server{"own": own, "edge": edge} {
		store, err := address.Open(t.Context(), s.URL+"/data", address.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := objstore.ReadAll(t.Context(), store, "a", 100); err != nil || string(got) != "0123456789" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if seen["own"].Get("X-Api-Key") != "abc" || seen["own"].Get("Cookie") != "session=1" || seen["own"].Get("X-Other") != "" {
		t.Errorf("own: %v", seen["own"])
	}
	if seen["edge"].Get("X-Api-Key") != "of-edge" || seen["other"].Get("X-Api-Key") != "" || seen["other"].Get("X-Other") != "" || seen["other"].Get("Range") == "" {
		t.Errorf("edge: %v, other: %v", seen["edge"], seen["other"])
	}
	for _, line := range []string{"secret", "https://host secret", "host X: secret", "https://host a b: secret", "https://host X: secret\x01"} {
		write("\n" + line)
		_, err := address.Open(t.Context(), "https://host", address.Options{})
		if err == nil || !strings.Contains(err.Error(), "headers:2: write a server") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", line, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := address.Open(t.Context(), "https://host", address.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
