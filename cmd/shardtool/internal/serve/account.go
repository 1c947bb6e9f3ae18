package serve

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/reader"
)

// account counts what the parent has got of a run, and what it has waited for. The stream's own
// account cannot: batches are made ahead, and while they are ready nobody waits. It is safe for
// concurrent use.
type account struct {
	stream *reader.Stream
	origin stats.Stream // the stream's account when the run began

	mu                      sync.Mutex
	batches, samples, bytes uint64 // of the batches that were made
	sources                 []stats.Source
	stalls                  stats.Stalls
	first                   time.Duration // the first wait
	waits                   bool
	since                   time.Time
	before                  stats.Stalls // the stream's account then
}

// begin starts a wait; a.mu is held.
func (a *account) begin() {
	if !a.waits {
		a.waits, a.since = true, time.Now()
		a.before = a.stream.Stats().Stalls
	}
}

// end ends the wait, if there is one; a.mu is held. The stream has done nothing since the last call
// of settle.
func (a *account) end() {
	if !a.waits {
		return
	}
	a.waits = false
	a.stalls.Order += time.Since(a.since)
	if a.first == 0 {
		a.first = a.stalls.Total()
	}
}

// settle divides the time that a wait has taken so far by cause; a.mu is held. The stream records
// the causes of its stalls. The rest is the time of handing over and counts as Order.
func (a *account) settle(s *stats.Stream) {
	if !a.waits {
		return
	}
	now := time.Now()
	stalls := s.Stalls.Sub(a.before)
	stalls.Order += max(0, now.Sub(a.since)-stalls.Total())
	a.stalls = a.stalls.Sub(stats.Stalls{}.Sub(stalls))
	a.since, a.before = now, s.Stalls
}

// stats returns the stream's statistics, with the parent's numbers in place of a consumer's.
func (a *account) stats() stats.Stream { return a.read(false) }

// made counts the batch that the stream gave last, which the parent gets next, and returns stats.
func (a *account) made() stats.Stream { return a.read(true) }

func (a *account) read(made bool) stats.Stream {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stream.Stats()
	a.settle(&s)
	a.fromOrigin(&s)
	if made {
		a.batches, a.samples, a.bytes, a.sources = s.Batches, s.Samples, s.Bytes, slices.Clone(s.Sources)
	}
	for i := range s.Sources {
		s.Sources[i] = stats.Source{Name: s.Sources[i].Name}
	}
	copy(s.Sources, a.sources)
	s.Batches, s.Samples, s.Bytes = a.batches, a.samples, a.bytes
	s.Stalls, s.Wait, s.FirstWait = a.stalls, a.stalls.Total(), a.first
	return s
}

// fromOrigin leaves out what a stream had done before the run took it over.
func (a *account) fromOrigin(s *stats.Stream) {
	was := &a.origin
	s.Batches, s.Samples, s.Bytes = s.Batches-was.Batches, s.Samples-was.Samples, s.Bytes-was.Bytes
	s.Blocks, s.StoredBytes = s.Blocks-was.Blocks, s.StoredBytes-was.StoredBytes
	s.Evicted, s.Rereads = s.Evicted-was.Evicted, s.Rereads-was.Rereads
	for i := range was.Sources {
		s.Sources[i].Samples, s.Sources[i].Bytes = s.Sources[i].Samples-was.Sources[i].Samples,
			s.Sources[i].Bytes-was.Sources[i].Bytes
	}
}

// accountSize is the number of bytes of an account with a number of sources: see
// PROTOCOL.md.
func accountSize(sources int) int { return 8*17 + 16*sources }

// appendAccount appends an account.
func appendAccount(dst []byte, s *stats.Stream) []byte {
	le := binary.LittleEndian
	for _, n := range [...]uint64{s.Batches, s.Samples, s.Bytes} {
		dst = le.AppendUint64(dst, n)
	}
	for _, d := range s.Stalls.All() {
		dst = le.AppendUint64(dst, uint64(max(0, d)))
	}
	for _, n := range [...]uint64{s.Blocks, s.StoredBytes, s.Evicted, s.Rereads, s.Skipped, uint64(s.Held)} {
		dst = le.AppendUint64(dst, n)
	}
	for i := range s.Sources {
		dst = le.AppendUint64(le.AppendUint64(dst, s.Sources[i].Samples), s.Sources[i].Bytes)
	}
	return dst
}
