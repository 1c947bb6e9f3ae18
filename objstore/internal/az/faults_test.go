package az_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
)

// TestNetwork runs the suite of bad networks.
func TestNetwork(t *testing.T) {
	refuse := func(status int, code, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { azserver.Refuse(w, status, code, message) }
	}
	storetest.RunNetwork(t, storetest.Network{
		Open: func(t *testing.T, _ map[string][]byte, o objstore.ReadOptions) (objstore.Store, storetest.Server) {
			s, opts := azserver.New(t), quick()
			opts.ReadOptions, opts.WriteTimeout = o, o.FirstByteTimeout
			return open(t, s, "p", opts), s
		},
		Part: block,
		Busy: map[string]http.HandlerFunc{
			"ServerBusy":        refuse(http.StatusServiceUnavailable, "ServerBusy", "The server is currently unable to receive requests."),
			"OperationTimedOut": refuse(http.StatusInternalServerError, "OperationTimedOut", "The operation could not be completed within the permitted time."),
		},
		Expired: storetest.Refusal{Answer: refuse(http.StatusForbidden, "AuthenticationFailed", "Server failed to authenticate the request. Signature not valid in the specified time frame"), Want: "AZURE_"},
		Skewed: storetest.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
			azserver.Refuse(w, http.StatusForbidden, "AuthenticationFailed", "Request date header too old")
		}, Want: "clock"},
	})
}

// TestClock has a clock that is 20 minutes off: a server that compares the time of a signature
// refuses it, and the error says so.
func TestClock(t *testing.T) {
	for off, want := range map[time.Duration]string{
		20 * time.Minute: "20m0s behind the server's", -20 * time.Minute: "20m0s ahead of the server's",
	} {
		s := azserver.New(t)
		s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
			now := time.Now().Add(off)
			signed, err := http.ParseTime(r.Header.Get("X-Ms-Date"))
			if err == nil && now.Sub(signed).Abs() < 15*time.Minute {
				return false
			}
			w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
			azserver.Refuse(w, http.StatusForbidden, "AuthenticationFailed", "Server failed to authenticate the request.")
			return true
		})
		for op, err := range operations(t, open(t, s, "", quick())) {
			if err == nil || !strings.Contains(err.Error(), "this machine's clock is "+want+": set it") {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
}

// TestAbort checks that nothing is visible of an upload that was aborted, or whose context ended.
func TestAbort(t *testing.T) {
	s := azserver.New(t)
	store := open(t, s, "", quick())
	for _, abort := range []func(objstore.Upload, context.CancelFunc) error{
		func(u objstore.Upload, _ context.CancelFunc) error { return u.Abort() },
		func(u objstore.Upload, cancel context.CancelFunc) error {
			cancel()
			if _, err := u.Commit(t.Context()); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("committed: %w", err)
			}
			return nil
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		upload, err := store.Create(ctx, "a", objstore.Condition{})
		if err == nil {
			_, err = upload.Write(make([]byte, 3*block))
		}
		if err == nil {
			err = abort(upload, cancel)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, store, ""); len(got) != 0 {
		t.Errorf("listed: %q", got)
	}
}
