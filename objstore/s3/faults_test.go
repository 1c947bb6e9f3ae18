package s3_test

import (
	"net/http"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestNetwork runs the suite of bad networks.
func TestNetwork(t *testing.T) {
	refuse := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { s3server.Refuse(w, r, status, code) }
	}
	storetest.RunNetwork(t, storetest.Network{
		Open: func(t *testing.T, _ map[string][]byte, o objstore.ReadOptions) (objstore.Store, storetest.Server) {
			s := s3server.New(t)
			opts := quick(s.URL)
			opts.ReadOptions, opts.WriteTimeout = o, o.FirstByteTimeout
			return openPlain(t, s.URL, opts), s
		},
		Part: 5 << 20,
		Busy: map[string]http.HandlerFunc{
			"SlowDown": refuse(http.StatusServiceUnavailable, "SlowDown"), "InternalError": refuse(http.StatusInternalServerError, "InternalError"),
		},
		Expired: storetest.Refusal{Answer: refuse(http.StatusBadRequest, "ExpiredToken"), Want: "log in again"},
		Skewed:  storetest.Refusal{Answer: refuse(http.StatusForbidden, "RequestTimeTooSkewed"), Want: "clock"},
	})
}

func TestWriters(t *testing.T) {
	s := s3server.New(t)
	storetest.RunWriters(t, 5<<20, openPlain(t, s.URL, quick(s.URL)), openPlain(t, s.URL, quick(s.URL)))
}
