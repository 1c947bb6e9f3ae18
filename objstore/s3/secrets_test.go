package s3_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// useFiles has the SDK find credentials in a folder and nowhere else.
func useFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "",
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "credentials"), "AWS_CONFIG_FILE": filepath.Join(dir, "config"),
	} {
		t.Setenv(name, value)
	}
	return dir
}

func writeFile(t *testing.T, path, format string, args ...any) {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// acceptToken has the server answer requests with another token as S3 does when it has expired.
func acceptToken(s *s3server.Server, token string) {
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Security-Token") == token {
			return false
		}
		s3server.Refuse(w, r, http.StatusBadRequest, "ExpiredToken")
		return true
	})
}

// TestExpiredTokenReplaced replaces the token in the credentials file before each operation: it
// goes on with the new one.
func TestExpiredTokenReplaced(t *testing.T) {
	dir := useFiles(t)
	s := s3server.New(t)
	replaceToken := func(token string) {
		writeFile(t, filepath.Join(dir, "credentials"), "[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\naws_session_token = %s\n", token)
		acceptToken(s, token)
	}
	replaceToken("first")
	store := openPlain(t, s.URL, quick(s.URL))
	data := bytes.Repeat([]byte("content"), 2<<20)
	put := func() error {
		_, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{})
		return err
	}
	for i, operation := range []func() error{
		put,
		func() error { _, err := store.Stat(t.Context(), "a"); return err },
		func() error {
			read, _, err := objstore.ReadAll(t.Context(), store, "a", int64(len(data)))
			if err == nil && !bytes.Equal(read, data) {
				err = fmt.Errorf("%d other bytes", len(read))
			}
			return err
		},
		func() error {
			for _, err := range store.List(t.Context(), "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
		func() error { return s3.CheckConditional(t.Context(), store) },
		func() error { return store.Delete(t.Context(), "a") },
	} {
		replaceToken(fmt.Sprint("token-", i))
		if err := operation(); err != nil {
			t.Errorf("operation %d: %v", i, err)
		}
	}
}

// TestExpiredTokenStays checks that credentials that have expired are read again once, and not for
// every request, when nobody replaces them.
func TestExpiredTokenStays(t *testing.T) {
	dir := useFiles(t)
	reads := filepath.Join(dir, "reads")
	writeFile(t, filepath.Join(dir, "answer"), `{"Version": 1, "AccessKeyId": "AKID", "SecretAccessKey": "secret", "SessionToken": "old"}`)
	writeFile(t, filepath.Join(dir, "config"), "[default]\ncredential_process = sh -c 'echo read >> %s; cat %s'\n", reads, filepath.Join(dir, "answer"))
	s := s3server.New(t)
	acceptToken(s, "new")
	for op, err := range operations(t, openPlain(t, s.URL, quick(s.URL))) {
		if err == nil || !strings.Contains(err.Error(), "the session token has expired: log in again") || strings.Contains(err.Error(), "attempts") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if text, err := os.ReadFile(reads); err != nil || strings.Count(string(text), "read") != 2 {
		t.Errorf("the credentials were read %d times, want once and once again: %v", strings.Count(string(text), "read"), err)
	}
}

// TestHalfWrittenFile replaces the credentials in a file that is read while it is half written: it
// has no secret, or no token.
func TestHalfWrittenFile(t *testing.T) {
	for name, half := range map[string]string{
		"no secret": "[default]\naws_access_key_id = AKID\n",
		"no token":  "[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\n",
		"empty":     "",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(useFiles(t), "credentials")
			whole := "[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\naws_session_token = %s\n"
			writeFile(t, path, whole, "first")
			s := s3server.New(t)
			var accepted atomic.Value
			var refused atomic.Int64
			accepted.Store("first")
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				switch r.Header.Get("X-Amz-Security-Token") {
				case accepted.Load():
					return false
				case "":
					s3server.Refuse(w, r, http.StatusForbidden, "InvalidAccessKeyId")
				default:
					s3server.Refuse(w, r, http.StatusBadRequest, "ExpiredToken")
				}
				if refused.Add(1) == 3 {
					writeFile(t, path, whole, "second")
				}
				return true
			})
			store := openPlain(t, s.URL, quick(s.URL))
			if _, err := objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{}); err != nil {
				t.Fatal(err)
			}
			accepted.Store("second")
			writeFile(t, path, "%s", half)
			if _, err := store.Stat(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
	}
}
