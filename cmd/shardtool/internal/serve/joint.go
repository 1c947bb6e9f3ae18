package serve

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
)

// aheadOfOthers is how many batches peers may take while another waits to begin another iteration.
// Threads that read ahead of a loop take some.
const aheadOfOthers = 8

// members are the members of a JSON object.
type members map[string]any

// UnmarshalJSON keeps numbers as they are written.
func (m *members) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode((*map[string]any)(m))
}

func decodeMembers(body []byte) (m members, err error) {
	if err = json.Unmarshal(body, &m); err == nil && m == nil {
		err = protocolError("a body without members")
	}
	return m, err
}

// ownMembers are those of OPEN and START in which peers may differ: they do not change what is read.
// OPEN has those of the first peer, wherever it comes from.
var ownMembers = []string{"address", "ahead", "cache", "cache_size", "depth", "directory", "keys",
	"local_ranks", "memory", "prefetch", "requests", "ring", "workers"}

// spot is where a region is.
type spot struct {
	segment uint32
	offset  uint64
}

// memoryFile is the file of a segment, until it is retired and nobody is to get it any more.
type memoryFile struct {
	*os.File
	size  uint64
	users int
}

func (m *memoryFile) leave() {
	if m.users--; m.users == 0 {
		m.Close()
	}
}

// feed is a data set that peers have open: the link of the server that reads it. Fields are guarded
// by peers.mu, but for what queued guards.
type feed struct {
	g       *peers
	info    []byte  // INFO; nil until it has come
	waiting []*peer // for INFO
	holds   map[spot][]*peer
	memory  map[uint32]*memoryFile
	runs    uint64
	over    bool

	queued sync.Mutex
	queue  []request // to the server
	closed bool
	more   chan struct{} // a token: there is something in queue, or it is closed
}

// beginning is a START of a peer.
type beginning struct {
	id   uint64
	asks members
}

// joint is the run that all peers take part in.
type joint struct {
	of  *feed
	id  uint64
	ids map[*peer]uint64 // the run's number in the frames of a connection
	// asked is the batch that each peer waits for, -1 before the first; without peers that have left.
	asked   map[*peer]int64
	started bool
	sent    int64 // batches
	// forwarded is the batch that the server was last asked for.
	forwarded int64
	mark      int64 // batches sent when a peer first asked to begin another iteration
	ahead     int64 // batches that peers may take then
	// over, when not nil, returns the answer to requests for batches that there are not.
	over func(id uint64) []byte
}

// The link of the server

func (f *feed) read() (frame, []byte, error) {
	for {
		f.queued.Lock()
		if len(f.queue) > 0 {
			q := f.queue[0]
			f.queue = f.queue[1:]
			f.queued.Unlock()
			return q.frame, q.body, nil
		}
		closed := f.closed
		f.queued.Unlock()
		if closed {
			return frame{}, nil, io.EOF
		}
		<-f.more
	}
}

// tell queues a frame for the server.
func (f *feed) tell(fr frame, body []byte) {
	f.queued.Lock()
	f.queue = append(f.queue, request{fr, body})
	f.queued.Unlock()
	signal(f.more)
}

func (f *feed) Close() error {
	f.queued.Lock()
	f.closed = true
	f.queued.Unlock()
	signal(f.more)
	return nil
}

func (f *feed) write(fr frame, body []byte) error {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.over {
		return nil
	}
	f.g.hear(f, fr, body)
	return nil
}

// pass passes a segment on to the peers of this host, and keeps its file for those that come later.
func (f *feed) pass(fr frame, fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	m := &memoryFile{File: os.NewFile(uintptr(own), "segment"), size: fr.u64(32), users: 1}
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.over {
		m.leave()
		return nil
	}
	f.memory[fr.u32(16)] = m
	for _, p := range f.g.conns {
		if p.feed == f && !p.far {
			f.give(p, fr.u32(16))
		}
	}
	return nil
}

// give passes a segment to a peer.
func (f *feed) give(p *peer, number uint32) {
	m := f.memory[number]
	fr := newFrame(kindSegment, 0, 1).set32(16, number).set64(32, m.size)
	f.g.putItem(p, item{data: fr[:], memory: m})
}

// Frames of the server

func (g *peers) hear(of *feed, f frame, body []byte) {
	r := g.run
	if r != nil && r.of != of {
		r = nil
	}
	switch f.kind() {
	case kindBatch:
		g.batch(of, r, f)
	case kindRetire:
		for _, p := range g.conns {
			if p.feed == of && !p.far {
				g.put(p, f[:])
			}
		}
		of.memory[f.u32(16)].leave()
		delete(of.memory, f.u32(16))
	case kindInfo:
		of.info = append(f[:], body...)
		for _, p := range of.waiting {
			g.put(p, of.info)
		}
		of.waiting = nil
	case kindStarted:
		if r != nil && f.u64(8) == r.id {
			r.started, r.asked = true, map[*peer]int64{}
			for p, id := range r.ids {
				r.asked[p] = -1
				g.put(p, numbered(f, id, body))
			}
		}
	case kindHeartbeat:
		for _, p := range of.waiting {
			g.put(p, numbered(f, 0, body))
		}
		if r == nil {
			break
		}
		for p, id := range r.ids {
			if number, in := r.asked[p]; !r.started || in && number >= r.sent {
				g.put(p, numbered(f, id, body))
			}
		}
	case kindEnd:
		if r != nil && f.u64(8) == r.id {
			r.over = func(id uint64) []byte { return numbered(f, id, nil) }
			g.demand(nil)
		}
	case kindError:
		g.problem(of, r, f, body)
	}
}

// numbered returns a frame and its body, with the number that a run has for a peer.
func numbered(f frame, id uint64, body []byte) []byte {
	f = f.set64(8, id)
	return append(f[:], body...)
}

// batch sends a batch to all peers that take part in the run.
func (g *peers) batch(of *feed, r *joint, f frame) {
	at := spot{f.u32(16), f.u64(24)}
	if r == nil || !r.started || len(r.asked) == 0 { // of the run before, or nobody's
		if r != nil && r.started {
			r.sent++
		}
		of.release(at)
		return
	}
	r.sent++
	holders := slices.Collect(maps.Keys(r.asked))
	of.holds[at] = holders
	for _, p := range holders {
		it := item{data: bytes.Clone(f[:])}
		if p.far {
			it.memory, it.of, it.at, it.length = of.memory[at.segment], of, at, int(f.u64(32))
		}
		g.putItem(p, it)
	}
}

// problem passes an ERROR on to those that it is for.
func (g *peers) problem(of *feed, r *joint, f frame, body []byte) {
	switch kind(f.u32(20)) {
	case kindOpen:
		for _, p := range of.waiting {
			p.feed = nil
			g.put(p, append(f[:], body...))
		}
		of.waiting = nil
		g.end(of)
	case kindStart:
		if r == nil || f.u64(8) != r.id {
			return
		}
		r.over = func(id uint64) []byte { return numbered(f, id, body) }
		if r.started {
			g.demand(nil)
			return
		}
		g.run = nil
		for p, id := range r.ids {
			g.put(p, r.over(id))
		}
	default: // of the connection
		g.fail("failed", fmt.Sprintf("the process that reads for its peers failed: %s", body))
	}
}

// Frames of peers

// handle handles a frame of a peer. An error ends the connection.
func (g *peers) handle(p *peer, f *frame, body []byte) error {
	k := f.kind()
	if p.index < 0 || k == kindJoin {
		return g.join(p, f, body)
	}
	switch k {
	case kindOpen, kindStart, kindNext:
		if g.failed != nil {
			g.put(p, g.failed)
			return nil
		}
	}
	switch k {
	case kindOpen:
		return g.opens(p, f, body)
	case kindStart:
		return g.asks(p, f, body)
	case kindNext:
		if r := g.run; r != nil && f.u64(8) == r.ids[p] {
			if was, in := r.asked[p]; in {
				r.asked[p], p.since = max(was, int64(min(f.u64(16), 1<<62))), time.Now()
				g.demand(p)
			}
		}
	case kindRelease:
		g.releases(p, spot{f.u32(16), f.u64(24)})
	case kindLeave:
		if r := g.run; r != nil && f.u64(8) == r.ids[p] {
			delete(r.asked, p)
			g.letGo(p, r.of)
			g.demand(nil)
		}
	case kindBye:
		g.gone[p.index] = true
		_ = g.control.send(newFrame(kindBye, 0, 0).set64(8, uint64(p.index)), nil)
		g.drop(p)
	case kindStop:
		g.drop(p)
	default:
		return protocolError(fmt.Sprintf("a frame of kind %d", k))
	}
	return nil
}

// join lets a connection prove that it is a peer's.
func (g *peers) join(p *peer, f *frame, body []byte) error {
	known := subtle.ConstantTimeCompare(body, []byte(g.asked.Secret)) == 1
	if p.index >= 0 || f.kind() != kindJoin || !known || f.u64(8) >= uint64(g.asked.Count) {
		return protocolError("no JOIN of a peer")
	}
	p.index, p.presence = int(f.u64(8)), f.u64(16) == 0
	return nil
}

// opens handles OPEN. What was asked for before by a peer is open already.
func (g *peers) opens(p *peer, f *frame, body []byte) error {
	if f.u32(16) != Protocol {
		g.fail("protocol", fmt.Sprintf("peer %d speaks protocol %d, and peer 0 protocol %d: install one version of shardtool on all hosts",
			p.index, f.u32(16), Protocol))
		return nil
	}
	asks, err := decodeMembers(body)
	if err != nil {
		return err
	}
	if p.feed != nil {
		return protocolError("a second OPEN")
	}
	for _, name := range []string{"address", "keys"} {
		if mine, its := g.asked.Opening[name], asks[name]; !reflect.DeepEqual(mine, its) {
			g.differ(fmt.Sprintf("%s is %s in peer 0 and %s in peer %d", name, shown(mine), shown(its), p.index))
			return nil
		}
	}
	for _, name := range ownMembers {
		delete(asks, name)
	}
	common, err := json.Marshal(asks)
	if err != nil {
		return err
	}
	of := g.open[string(common)]
	if of == nil {
		for _, name := range ownMembers {
			if v, ok := g.asked.Opening[name]; ok {
				asks[name] = v
			}
		}
		if body, err = json.Marshal(asks); err != nil {
			return err
		}
		of = &feed{g: g, holds: map[spot][]*peer{}, memory: map[uint32]*memoryFile{}, more: make(chan struct{}, 1)}
		g.open[string(common)] = of
		of.tell(newFrame(kindOpen, 0, len(body)).set32(16, Protocol), body)
		g.servers.Go(func() { _ = converse(g.ctx, of, g.opts, func() bool { return true }) })
	}
	p.feed = of
	if !p.far {
		for number := range of.memory {
			of.give(p, number)
		}
	}
	if of.info != nil {
		g.put(p, of.info)
	} else {
		of.waiting = append(of.waiting, p)
	}
	return nil
}

// asks handles START.
func (g *peers) asks(p *peer, f *frame, body []byte) error {
	asks, err := decodeMembers(body)
	if err != nil {
		return err
	}
	if p.feed == nil {
		return protocolError("a START before OPEN")
	}
	g.letGo(p, p.feed)
	if g.run != nil {
		delete(g.run.asked, p)
		if len(g.pending) == 0 {
			g.run.mark = g.run.sent
		}
	}
	g.pending[p], p.since = beginning{f.u64(8), asks}, time.Now()
	g.demand(nil)
	g.start()
	return nil
}

// missing returns the peers that have not asked to begin.
func (g *peers) missing() (out []int) {
	asked := map[int]bool{}
	for p := range g.pending {
		asked[p.index] = true
	}
	for i := range g.asked.Count {
		if !g.gone[i] && !asked[i] {
			out = append(out, i)
		}
	}
	return out
}

// start begins a run if all peers have asked for it.
func (g *peers) start() {
	if len(g.pending) == 0 || len(g.missing()) > 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(g.pending), func(a, b *peer) int { return a.index - b.index })
	first := all[0]
	asks := g.pending[first].asks
	for _, p := range all[1:] {
		its := g.pending[p].asks
		switch name := difference(asks, its); {
		case name != "":
			g.differ(fmt.Sprintf("%s is %s in peer %d and %s in peer %d", name,
				shown(asks[name]), first.index, shown(its[name]), p.index))
			return
		case p.feed != first.feed:
			g.differ(fmt.Sprintf("peers %d and %d opened different data, or loaded different states", first.index, p.index))
			return
		}
	}
	of := first.feed
	of.runs++
	r := &joint{of: of, id: of.runs, ids: map[*peer]uint64{}, forwarded: -1, ahead: aheadOfOthers}
	for p, b := range g.pending {
		r.ids[p] = b.id
		if n, ok := b.asks["ahead"].(json.Number); ok {
			ahead, _ := n.Int64()
			r.ahead = max(r.ahead, ahead)
		}
	}
	delete(asks, "ahead")
	body, err := json.Marshal(asks)
	if err != nil {
		g.fail("failed", err.Error())
		return
	}
	clear(g.pending)
	g.run = r
	of.tell(newFrame(kindStart, 0, len(body)).set64(8, r.id), body)
}

// differ ends peers that do not ask for the same.
func (g *peers) differ(what string) {
	g.fail("config", "the peers of a rank ask for different batches: "+what+": make their loaders alike, and load one state")
}

// difference returns the first member in which two requests differ; empty if they ask for the same.
func difference(one, other members) string {
	all := maps.Clone(one)
	maps.Copy(all, other)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(ownMembers, name) && !reflect.DeepEqual(one[name], other[name]) {
			return name
		}
	}
	return ""
}

// shown returns a member for a message.
func shown(v any) string {
	if v == nil {
		return "not given"
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // it was decoded from JSON
	said := objstore.Redact(strings.TrimSpace(text.String()))
	if len(said) > 200 {
		said = strings.ToValidUTF8(said[:200], "") + "…"
	}
	return said
}

// demand asks the server for the batch that the slowest peer waits for, and answers requests for
// batches that there are not: of one peer, or of all where it is nil.
func (g *peers) demand(asking *peer) {
	r := g.run
	if r == nil || !r.started || len(r.asked) == 0 {
		return
	}
	least := int64(math.MaxInt64)
	for p, number := range r.asked {
		least = min(least, number)
		if r.over != nil && number >= r.sent && (asking == nil || p == asking) {
			g.put(p, r.over(r.ids[p]))
		}
	}
	if r.over != nil {
		return
	}
	if len(g.pending) > 0 && least >= r.mark+r.ahead {
		var early, others []int
		for p := range g.pending {
			early = append(early, p.index)
		}
		for p := range r.asked {
			others = append(others, p.index)
		}
		g.fail("config", fmt.Sprintf("the peers of a rank must leave a loop after the same batch: %s began another iteration, and %s went on",
			named(early), named(others)))
		return
	}
	if least > r.forwarded {
		r.forwarded = least
		r.of.tell(newFrame(kindNext, 0, 0).set64(8, r.id).set64(16, uint64(least)), nil)
	}
}

// Regions

// releases handles RELEASE.
func (g *peers) releases(p *peer, at spot) {
	switch n := p.stale[at]; {
	case n > 1:
		p.stale[at]--
	case n == 1:
		delete(p.stale, at)
	case p.feed != nil:
		g.release(p, p.feed, at)
	}
}

// release notes that a peer does not need a region any more. When none does, it is free.
func (g *peers) release(p *peer, of *feed, at spot) {
	holders := of.holds[at]
	i := slices.Index(holders, p)
	if i < 0 {
		return
	}
	if holders = slices.Delete(holders, i, i+1); len(holders) > 0 {
		of.holds[at] = holders
		return
	}
	delete(of.holds, at)
	of.release(at)
}

func (f *feed) release(at spot) {
	if f.over {
		return
	}
	f.tell(newFrame(kindRelease, 0, 0).set32(16, at.segment).set64(24, at.offset), nil)
}

// letGo releases what a peer of this host holds that has left a run: it may not read those batches
// for long. It still sends a RELEASE for each, which must not free a batch that is in its place
// then. What another host is to get is free when it is sent.
func (g *peers) letGo(p *peer, of *feed) {
	if p.far {
		return
	}
	for at, holders := range of.holds {
		if slices.Contains(holders, p) {
			p.stale[at]++
			g.release(p, of, at)
		}
	}
}

// leave ends a connection's use of a data set. The last one closes it.
func (g *peers) leave(p *peer, of *feed) {
	p.feed = nil
	of.waiting = slices.DeleteFunc(of.waiting, func(other *peer) bool { return other == p })
	for at := range of.holds {
		g.release(p, of, at)
	}
	if r := g.run; r != nil {
		delete(r.ids, p)
		delete(r.asked, p)
		g.demand(nil)
	}
	if !slices.ContainsFunc(g.conns, func(other *peer) bool { return other.feed == of }) {
		g.end(of)
	}
}

// end ends a server.
func (g *peers) end(of *feed) {
	if of.over {
		return
	}
	of.over = true
	maps.DeleteFunc(g.open, func(_ string, other *feed) bool { return other == of })
	if g.run != nil && g.run.of == of {
		g.run = nil
	}
	for _, m := range of.memory {
		m.leave()
	}
	of.tell(newFrame(kindStop, 0, 0), nil)
}
