package ranged

import (
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// TestRefused: an address that refuses connections is given up soon, unless the store has answered
// once.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := TransportError(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
		for answered, want := range map[bool]bool{false: true, true: false} {
			r := New("store", objstore.ReadOptions{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond}, slog.New(slog.DiscardHandler))
			r.stats.answered.Store(answered)
			at := r.newTrail(1)
			at.begin()
			if err := at.next(t.Context(), 0, refused); err != nil {
				t.Errorf("answered %v: given up at once: %v", answered, err)
			}
			at.since = at.since.Add(-refusedWithin)
			if err := at.next(t.Context(), 0, refused); GivenUp(err) != want {
				t.Errorf("answered %v: after %v: %v", answered, refusedWithin, err)
			}
		}
	})
}
