package doctor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// examine examines the store at an address, and checks that the report has no secret.
func examine(t *testing.T, addr string, write bool) *StoreReport {
	t.Helper()
	store, err := address.Open(t.Context(), addr, address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Store(t.Context(), store, write)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", r); strings.Contains(text, "marked") {
		t.Errorf("a secret: %s", text)
	}
	return r
}

// results are the checks that did not pass, as name=status, and the detail of all.
func results(r *StoreReport) (others []string, details string) {
	for _, c := range r.Checks {
		if details += c.Name + ": " + c.Detail + "\n"; c.Status != Passed {
			others = append(others, fmt.Sprintf("%s=%s", c.Name, c.Status))
		}
	}
	return others, details
}

func want(t *testing.T, r *StoreReport, others []string, phrases ...string) {
	t.Helper()
	got, details := results(r)
	if !slices.Equal(got, others) {
		t.Errorf("%q, want %q:\n%s", got, others, details)
	}
	for _, phrase := range phrases {
		if !strings.Contains(details, phrase) {
			t.Errorf("no %q in:\n%s", phrase, details)
		}
	}
}

// google starts a server with a data set, and returns the address of its bucket.
func google(t *testing.T, hook func(w http.ResponseWriter, r *http.Request) bool) (*gsserver.Server, string) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	s := gsserver.New(t)
	for _, name := range []string{format.ManifestName, "ä b+c%2F/x"} {
		s.Objects["set/"+name] = &gsserver.Stored{Data: []byte("{}"), Generation: 7, At: time.Now()}
	}
	s.SetHook(hook)
	return s, "gs://bucket/set?anonymous=true&endpoint=" + url.QueryEscape(s.URL)
}

// TestStorePublishes has stores that permit everything. The objects put are gone afterwards, and a
// data set is untouched.
func TestStorePublishes(t *testing.T) {
	s, addr := google(t, nil)
	r := examine(t, addr, true)
	want(t, r, nil, "identity: anonymous, from", "a data set, with a manifest of 2 bytes", "it was deleted")
	if len(s.Objects) != 2 || !r.Dataset || r.RoundTrips != roundTrips || r.RoundTrip <= 0 || !r.Clock || r.Endpoint != s.URL {
		t.Errorf("%d objects, %+v", len(s.Objects), r)
	}
	want(t, examine(t, strings.Replace(addr, "/set", "/ä b+c%2F", 1), true), []string{"read=skipped"}, "no objects", "it was deleted")
	if len(s.Objects) != 2 {
		t.Errorf("left: %d objects", len(s.Objects))
	}
}

// TestStoreOfConditions has servers of S3 that ignore conditions, for all puts or for large objects
// alone, and a directory bucket.
func TestStoreOfConditions(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "marked-secret")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	s := s3server.New(t)
	at := func(bucket string) string { return "s3://" + bucket + "/set?endpoint=" + url.QueryEscape(s.URL) }
	s.AtCompletion = true
	want(t, examine(t, at("bucket"), true), []string{"read=skipped", "write=failed"}, "at the completion of an upload in parts",
		"add single_writer=true")
	s.AtCompletion, s.Unconditional = false, true
	want(t, examine(t, at("bucket"), true), []string{"read=skipped", "write=failed"}, "ignores If-None-Match, so",
		"add single_writer=true")
	want(t, examine(t, at("bucket")+"&single_writer=true", true), []string{"read=skipped"}, "it was deleted")
	s.Unconditional, s.Directory = false, true
	want(t, examine(t, at(s3server.DirectoryBucket), true), []string{"read=skipped"}, "it was deleted")
	if len(s.Objects) != 0 || len(s.Uploads) != 0 {
		t.Errorf("left: %v and %v", s.Objects, s.Uploads)
	}
}

// TestStoreRefuses has what servers refuse, and what the report says to set.
func TestStoreRefuses(t *testing.T) {
	forbid := func(which func(r *http.Request) bool) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if which(r) {
				_, _ = io.Copy(io.Discard, r.Body)
				gsserver.Refuse(w, http.StatusForbidden, "forbidden", "Nobody does not have access.")
				return true
			}
			return false
		}
	}
	for name, c := range map[string]struct {
		hook    func(w http.ResponseWriter, r *http.Request) bool
		others  []string
		phrases []string
	}{
		"no list": {forbid(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/o") && r.Method == http.MethodGet }),
			[]string{"list=failed"}, []string{"storage.objects.list", "Reading a data set needs no list", "read: there is a data set"}},
		"no public access": {forbid(func(*http.Request) bool { return true }),
			[]string{"list=failed", "read=failed"}, []string{"anonymous users lack the permission (storage.objects.get"}},
		"no delete": {forbid(func(r *http.Request) bool { return r.Method == http.MethodDelete }),
			[]string{"write=failed"}, []string{"Objects can be put, but not deleted: .shardtool-probe-"}},
		"no put": {forbid(func(r *http.Request) bool { return r.Method == http.MethodPost }),
			[]string{"write=failed"}, []string{"storage.objects.create"}},
		"no conditions": {func(_ http.ResponseWriter, r *http.Request) bool {
			q := r.URL.Query()
			q.Del("ifGenerationMatch")
			r.URL.RawQuery = q.Encode()
			return false
		}, []string{"write=failed"}, []string{"ignores the condition that no object exists"}},
		"clock": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			return false
		}, []string{"clock=failed"}, []string{"behind the server's; set this machine's clock"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := google(t, func(w http.ResponseWriter, r *http.Request) bool { return c.hook(w, r) })
			r := examine(t, addr, slices.Contains(c.others, "write=failed"))
			want(t, r, c.others, c.phrases...)
			if r.OK() {
				t.Error("nothing failed")
			}
		})
	}
	_, addr := google(t, nil)
	want(t, examine(t, strings.Replace(addr, "bucket/", "other/", 1), false), []string{"list=failed", "read=failed"}, "the bucket other does not exist")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/marks.json")
	want(t, examine(t, "gs://bucket/set", true), []string{"identity=failed"}, "set GOOGLE_APPLICATION_CREDENTIALS")
}

// TestStoreS3 has what S3 refuses: the region, the keys, and having none.
func TestStoreS3(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIAMARKEDWXYZ", "AWS_SECRET_ACCESS_KEY": "marked-secret", "AWS_SESSION_TOKEN": "marked-token", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
	} {
		t.Setenv(name, value)
	}
	for name, c := range map[string]struct {
		status        int
		code, message string
		want          string
	}{
		"region":  {400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'", "set AWS_REGION=eu-west-1"},
		"expired": {400, "ExpiredToken", "The provided token has expired.", "the session token has expired: log in again"},
		"bucket":  {404, "NoSuchBucket", "The specified bucket does not exist", "the bucket bucket does not exist"},
		"key":     {403, "InvalidAccessKeyId", "unknown", "check AWS_ACCESS_KEY_ID or the profile"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(c.status)
			fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>", c.code, c.message)
		}))
		r := examine(t, "s3://bucket/set?endpoint="+url.QueryEscape(server.URL), true)
		others, details := results(r)
		if !slices.Contains(others, "list=failed") || !strings.Contains(details, c.want) || r.Identity != "access key ending in WXYZ" ||
			r.From != "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" || r.Region != "us-east-1" {
			t.Errorf("%s: %q, %+v\n%s", name, others, r, details)
		}
		server.CloseClientConnections()
		server.Close()
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	want(t, examine(t, "s3://bucket/set", true), []string{"identity=failed"}, "no credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
}

// TestStoreAzure has signatures that lack rights or have expired, a missing container, and no
// public access. Each reads a known data set as far as it may.
func TestStoreAzure(t *testing.T) {
	for _, name := range []string{"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"} {
		t.Setenv(name, "")
	}
	s := azserver.New(t)
	s.Objects["ä b+c%2F/"+format.ManifestName] = &azserver.Stored{Data: []byte("{}"), ETag: "0x1", At: time.Now(), Type: "BlockBlob"}
	at := func(container, query string) string {
		return "az://" + azserver.Account + "/" + container + "/ä b+c%2F?endpoint=" + url.QueryEscape(s.URL) + "&" + query
	}
	for name, c := range map[string]struct {
		rights    string
		left      time.Duration
		container string
		others    []string
		phrases   []string
	}{
		"all":       {"rcwdl", time.Hour, "box", nil, []string{"SAS with sp=rcwdl until", "a data set, with a manifest of 2 bytes", "it was deleted"}},
		"no list":   {"rcwd", time.Hour, "box", []string{"list=failed"}, []string{"needs l", "Reading a data set needs no list", "read: there is a data set"}},
		"no write":  {"rl", time.Hour, "box", []string{"write=failed"}, []string{"needs c and w", "read: there is a data set"}},
		"expired":   {"rcwdl", -time.Hour, "box", []string{"list=failed", "read=failed"}, []string{"the SAS in the address has expired at"}},
		"container": {"rcwdl", time.Hour, "other", []string{"list=failed", "read=failed"}, []string{"check the name of the container other"}},
	} {
		s.SAS = url.Values{"sig": {"marked"}, "sp": {c.rights}, "se": {time.Now().Add(c.left).UTC().Format(time.RFC3339)}}
		t.Run(name, func(t *testing.T) {
			want(t, examine(t, at(c.container, s.SAS.Encode()), !slices.Contains(c.others, "read=failed")), c.others, c.phrases...)
		})
	}
	want(t, examine(t, at("box", "anonymous=true"), false), []string{"list=failed", "read=failed"}, "use credentials")
	if len(s.Objects) != 1 {
		t.Errorf("left: %d objects", len(s.Objects))
	}
}

// TestStoreHub has revisions, tokens, and files in git, LFS and Xet.
func TestStoreHub(t *testing.T) {
	files := map[string]hubserver.File{}
	for kind, folder := range []string{"git", "lfs", "xet"} {
		files[folder+"/"+format.ManifestName] = hubserver.File{Data: []byte("{}"), Kind: hubserver.Kind(kind)}
	}
	private := hubserver.NewSet(files)
	private.Private, private.Token = true, "hf_marked"
	s := hubserver.New(t, map[string]*hubserver.Set{"org/open": hubserver.NewSet(files), "org/closed": private})
	for _, folder := range []string{"git", "lfs", "xet"} {
		want(t, examine(t, "hf://datasets/org/open/"+folder, false), nil, "identity: anonymous, from no token in HF_TOKEN", "there is a data set")
	}
	want(t, examine(t, "hf://datasets/org/open@nowhere", false), []string{"list=failed", "read=failed"}, `has no revision "nowhere"`)
	want(t, examine(t, "hf://datasets/org/closed/lfs", false), []string{"list=failed", "read=failed"}, "or it is private", "set HF_TOKEN")
	want(t, examine(t, "hf://datasets/org/open/git", true), []string{"write=failed"}, "does not write to the Hub")
	t.Setenv("HF_TOKEN", "hf_marked")
	want(t, examine(t, "hf://datasets/org/closed/lfs", false), nil, "identity: user someone, with a token to read, from HF_TOKEN")
	t.Setenv("HF_TOKEN", "hf_marked_expired")
	want(t, examine(t, "hf://datasets/org/open/git", false), []string{"identity=failed"}, "the token in HF_TOKEN is not valid: give another")
	if s.Counts().Refused > 0 {
		t.Error("requests were refused")
	}
	t.Setenv("HF_TOKEN", "")
	path := filepath.Join(os.Getenv("HF_HOME"), "token")
	if err := os.WriteFile(path, []byte("hf_marked\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := examine(t, "hf://datasets/org/closed/lfs", false); r.From != path {
		t.Errorf("%+v", r)
	}
}

// TestStoreWeb has a store without lists, and one that answers nothing.
func TestStoreWeb(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(t.TempDir())))
	defer server.Close()
	r := examine(t, server.URL+"/set", true)
	want(t, r, []string{"list=skipped", "read=skipped", "write=failed"}, "no lists", objstore.ErrReadOnly.Error())
	if r.Identity != "anonymous" || r.RoundTrips != 0 {
		t.Errorf("%+v", r)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
