package httpstore_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// TestFront reads objects whose size is not known: each by one request where the server allows it,
// and also from servers that answer otherwise.
func TestFront(t *testing.T) {
	small, large := pattern(1, 50_000), pattern(2, objstore.Front+50_000)
	whole := func(_ int, _ http.ResponseWriter, r *http.Request) bool { // ignores ranges
		r.Header.Del("Range")
		return false
	}
	for _, c := range []struct {
		name  string
		data  []byte
		hook  func(i int, w http.ResponseWriter, r *http.Request) bool
		asked string // the ranges of the requests; a HEAD has none
		err   error
	}{
		{name: "small", data: small, asked: "0-1048575"},
		{name: "large", data: large, asked: "0-1048575 1048576-1098575"},
		{name: "empty", data: []byte{}, asked: "0-1048575"},
		{name: "empty, refused", data: []byte{}, asked: "0-1048575 HEAD", hook: func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			}
			return r.Method == http.MethodGet
		}},
		{name: "refused", data: small, asked: "0-1048575 HEAD", err: io.ErrUnexpectedEOF, hook: func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			}
			return r.Method == http.MethodGet
		}},
		{name: "small, no ranges", data: small, hook: whole, asked: "0-1048575"},
		{name: "large, no ranges", data: large, hook: whole, asked: "0-1048575 HEAD 0-1098575"},
		{name: "broken off", data: small, asked: "0-1048575 20000-49999", hook: func(i int, w http.ResponseWriter, r *http.Request) bool {
			if i == 0 {
				partial(w, r, small, 20_000)
			}
			return i == 0
		}},
		{name: "broken off and replaced", data: pattern(3, 50_000), asked: "0-1048575 20000-49999", err: objstore.ErrChanged,
			hook: func(i int, w http.ResponseWriter, r *http.Request) bool {
				if i == 0 {
					partial(w, r, small, 20_000)
				}
				return i == 0
			}},
		{name: "replaced", data: large, asked: "0-1048575 1048576-1098575", err: objstore.ErrChanged, hook: func(i int, w http.ResponseWriter, r *http.Request) bool {
			if i == 1 {
				partial(w, r, pattern(4, len(large)), len(large))
			}
			return i == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, map[string][]byte{"a": c.data})
			var asked []string
			s.hook = func(i int, w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodHead {
					asked = append(asked, "HEAD")
				} else {
					asked = append(asked, strings.TrimPrefix(r.Header.Get("Range"), "bytes="))
				}
				return c.hook != nil && c.hook(i, w, r)
			}
			got, info, err := objstore.ReadAll(t.Context(), open(t, s, quick()), "a", 1<<30)
			if !errors.Is(err, c.err) || err == nil && (!bytes.Equal(got, c.data) || info.Size != int64(len(c.data))) {
				t.Errorf("%d bytes, %+v, %v", len(got), info, err)
			}
			if strings.Join(asked, " ") != c.asked {
				t.Errorf("requests %q, want %q", asked, c.asked)
			}
		})
	}
}
