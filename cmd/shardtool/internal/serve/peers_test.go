package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
)

const secret = "0123456789abcdef0123456789abcdef"

// meeting is a server of peers, and the first peer's end of its socket.
type meeting struct {
	*client
	near, far net.Addr
	streams   *atomic.Int64 // that were opened
}

// meet starts a server for a number of peers.
func meet(t *testing.T, store *mem.Store, count int, gone ...int) *meeting {
	t.Helper()
	folder, err := os.MkdirTemp("", "s") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	m := &meeting{streams: new(atomic.Int64)}
	var fds []int
	for _, at := range [...]net.Addr{&net.UnixAddr{Name: filepath.Join(folder, "s"), Net: "unix"}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}} {
		l, err := net.Listen(at.Network(), at.String())
		if err != nil {
			t.Fatal(err)
		}
		var f *os.File
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
			m.near = l.Addr()
			f, err = u.File()
		} else {
			m.far = l.Addr()
			f, err = l.(*net.TCPListener).File()
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		fds = append(fds, fd)
	}
	opts := over(store)
	stream := opts.Stream
	opts.Stream = func(ctx context.Context, o *Opened, q *StartRequest, out *Started) (*reader.Stream, error) {
		m.streams.Add(1)
		return stream(ctx, o, q, out)
	}
	var fd int
	m.client, fd = pair(t)
	go func() { m.done <- ServePeers(t.Context(), fd, fds, opts) }()
	m.hello()
	body := fmt.Appendf(nil, `{"count":%d,"secret":%q,"opening":{"address":"mem","workers":2},"gone":%s}`, count, secret,
		strings.ReplaceAll(fmt.Sprint(gone), " ", ","))
	m.send(newFrame(kindPeers, 0, len(body)), body)
	return m
}

// dial makes a connection that has not proved itself.
func (m *meeting) dial(at net.Addr) *client {
	m.t.Helper()
	sock, err := net.Dial(at.Network(), at.String())
	if err != nil {
		m.t.Fatal(err)
	}
	if err := sock.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { sock.Close() })
	return &client{t: m.t, sock: sock, far: at == m.far, segments: map[uint32][]byte{}}
}

// join makes a connection of a peer. Its purpose is 0 for a presence, and 1 for a client.
func (m *meeting) join(index, purpose int, at net.Addr) *client {
	m.t.Helper()
	c := m.dial(at)
	c.send(newFrame(kindJoin, 0, len(secret)).set64(8, uint64(index)).set64(16, uint64(purpose)), []byte(secret))
	return c
}

// stop ends the server, as the first peer does.
func (m *meeting) stop() {
	m.t.Helper()
	m.send(newFrame(kindStop, 0, 0), nil)
	m.ended("")
}

const twenty = `{"batch_size":20,"columns":[{"name":"txt","decode":"bytes"}]}`

// begin sends START without waiting for the answer.
func (c *client) begin(run uint64, request string) {
	c.t.Helper()
	c.send(newFrame(kindStart, 0, len(request)).set64(8, run), []byte(request))
}

// refused wants an ERROR of the connection, and returns its message.
func (c *client) refused(kind string) string {
	c.t.Helper()
	for {
		f, body := c.next()
		if f.kind() != kindError {
			continue
		}
		var p problem
		if err := json.Unmarshal(body, &p); err != nil || p.Kind != kind || f.u32(20) != 0 {
			c.t.Fatalf("error %s of %d: %v: %s", p.Kind, f.u32(20), err, body)
		}
		return p.Message
	}
}

// TestPeers gives three peers the same batches, one of them on another host. They join in any order
// and go at any pace, and the data set is read once.
func TestPeers(t *testing.T) {
	m := meet(t, text(t, 1000), 3)
	present := []*client{m.join(2, 0, m.far), m.join(0, 0, m.near), m.join(1, 0, m.near)}
	clients := []*client{m.join(0, 1, m.near), m.join(1, 1, m.near), m.join(2, 1, m.far)}
	for _, i := range []int{2, 0, 1} {
		clients[i].info()
	}
	for _, i := range []int{1, 2, 0} {
		clients[i].begin(uint64(7+i), strings.Replace(twenty, "{", fmt.Sprintf(`{"prefetch":%d,"ahead":%d,`, 20+i, i), 1))
	}
	var texts []string
	for i, c := range clients {
		f, body := c.want(kindStarted)
		if f.u64(8) != uint64(7+i) {
			t.Errorf("peer %d: STARTED is % x", i, f)
		}
		texts = append(texts, string(body))
	}
	if texts[0] != texts[1] || texts[0] != texts[2] {
		t.Errorf("the peers began differently: %q", texts)
	}
	regions := make([][][]byte, 3)
	take := func(i, upTo int) {
		t.Helper()
		for c := clients[i]; len(regions[i]) < upTo; {
			c.ask(uint64(7+i), uint64(len(regions[i])))
			g := c.batch()
			regions[i] = append(regions[i], bytes.Clone(g.region))
			c.release(&g.frame) // of another host too: it has no effect
		}
	}
	for n := 1; n <= 50; n += 7 { // each is the slowest once
		take(n%3, n)
		take((n+1)%3, n)
		take((n+2)%3, n)
	}
	for range 2 {
		for i, c := range clients {
			c.ask(uint64(7+i), 50)
		}
		for i, c := range clients {
			if f, _ := c.want(kindEnd); f.u64(8) != uint64(7+i) || f.u64(16) != 50 {
				t.Errorf("peer %d: END is % x", i, f)
			}
		}
	}
	for i := range clients {
		for n := range regions[0] {
			if !bytes.Equal(regions[i][n], regions[0][n]) {
				t.Fatalf("peer %d: batch %d differs from peer 0's", i, n)
			}
		}
	}
	if n := m.streams.Load(); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
	for _, c := range present {
		c.send(newFrame(kindBye, 0, 0), nil)
	}
	m.stop()
}

// TestPeersClose gives a peer on another host what was read for it, though it takes it late and sends
// meanwhile. Then it learns that the first peer has closed its loader.
func TestPeersClose(t *testing.T) {
	m := meet(t, text(t, 20_000), 2)
	one, far := m.join(0, 1, m.near), m.join(1, 1, m.far)
	if err := far.sock.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	request := strings.Replace(twenty, `:20,`, `:1000,`, 1)
	for _, c := range []*client{one, far} {
		c.info()
		c.begin(1, request)
	}
	one.want(kindStarted)
	far.want(kindStarted)
	far.ask(1, 0)
	one.ask(1, 0)
	for range 4 {
		one.batch()
	}
	m.send(newFrame(kindStop, 0, 0), nil)
	for n := 0; ; n++ {
		f, body := far.next()
		if f.kind() == kindError {
			if n < 4 || !strings.Contains(string(body), "peer 0, closed its loader") {
				t.Errorf("after %d batches: %s", n, body)
			}
			break
		}
		if g := far.parse(f); len(g.numbers) != 1000 {
			t.Errorf("batch %d has %d samples", n, len(g.numbers))
		}
		next := newFrame(kindNext, 0, 0).set64(8, 1).set64(16, 1)
		_, _ = far.sock.Write(next[:]) // it may be over
	}
	one.refused("closed")
	m.ended("")
}

// TestPeersEnd ends all when one ends without BYE, and no other when one says BYE.
func TestPeersEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(m *meeting, presence, client *client)
		kind string
		want string
	}{
		"killed": {func(_ *meeting, presence, client *client) {
			client.sock.Close()
			presence.sock.Close()
		}, "died", "peer 2 ended without closing its loader"},
		"presence alone": {func(_ *meeting, presence, _ *client) { presence.sock.Close() }, "died", "peer 2 ended without closing"},
		"the first":      {func(m *meeting, _, _ *client) { m.sock.Close() }, "died", "peer 0, which reads for its peers, ended without"},
		"closed":         {func(m *meeting, _, _ *client) { m.send(newFrame(kindStop, 0, 0), nil) }, "closed", "closed its loader"},
		"half a frame": {func(m *meeting, presence, client *client) {
			_, _ = client.sock.Write(make([]byte, 10))
			client.sock.Close()
			presence.sock.Close()
		}, "died", "peer 2 ended without closing its loader"},
		"bye": {func(m *meeting, presence, client *client) {
			presence.send(newFrame(kindBye, 0, 0), nil)
			client.send(newFrame(kindStop, 0, 0), nil)
			if f, _ := m.want(kindBye); f.u64(8) != 2 {
				m.t.Errorf("BYE is % x", f)
			}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := meet(t, text(t, 1000), 3)
			present, clients := []*client{}, []*client{}
			for i := range 3 {
				present = append(present, m.join(i, 0, m.near))
				clients = append(clients, m.join(i, 1, []net.Addr{m.near, m.far, m.near}[i]))
				clients[i].info()
				clients[i].begin(1, twenty)
			}
			for _, c := range clients {
				c.want(kindStarted)
				c.ask(1, 0)
			}
			for _, c := range clients {
				c.batch()
			}
			test.end(m, present[2], clients[2])
			for _, c := range clients[:2] {
				if test.kind == "" { // the others go on to the end
					c.ask(1, 60)
					continue
				}
				if got := c.refused(test.kind); !strings.Contains(got, test.want) {
					t.Errorf("the error is %q", got)
				}
			}
			for _, c := range clients[:2] {
				for f := (frame{}); test.kind == "" && f.kind() != kindEnd; {
					f, _ = c.next()
				}
			}
			if name == "closed" || name == "the first" {
				m.ended("")
				return
			}
			m.stop()
		})
	}
}

// TestPeersNeverBegin ends a server whose first peer is gone before it has said who the others are, or
// says something else.
func TestPeersNeverBegin(t *testing.T) {
	for sent, want := range map[string]string{"": "", "half a": "", string(make([]byte, 64)): "a frame of kind 0 in place of PEERS",
		string(frameOf(newFrame(kindPeers, 0, 2), "{}")): "PEERS without count and secret"} {
		c, fd := pair(t)
		go func() {
			c.done <- ServePeers(t.Context(), fd, nil, Options{Version: "test", Code: func(error) int { return codeFailed }})
		}()
		c.hello()
		if _, err := io.WriteString(c.sock, sent); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			c.end()
			continue
		}
		if got := c.refused("protocol"); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", sent, got)
		}
		if err := <-c.done; err == nil {
			t.Errorf("%q: the server ends without an error", sent)
		}
	}
}

// TestPeersGone does not wait for peers that have closed their loaders before the server began.
func TestPeersGone(t *testing.T) {
	m := meet(t, text(t, 100), 4, 1, 3)
	clients := []*client{m.join(0, 1, m.near), m.join(2, 1, m.near)}
	for _, c := range clients {
		c.info()
		c.begin(1, twenty)
	}
	for _, c := range clients {
		c.want(kindStarted)
	}
	m.stop()
}

// TestPeersOfAnotherVersion ends all with the reason.
func TestPeersOfAnotherVersion(t *testing.T) {
	m := meet(t, text(t, 100), 2)
	c := m.join(1, 1, m.far)
	c.send(newFrame(kindOpen, 0, 2).set32(16, Protocol+1), []byte("{}"))
	if got := c.refused("protocol"); !strings.Contains(got, "peer 1 speaks protocol 3") {
		t.Errorf("the error is %q", got)
	}
	m.stop()
}

// TestPeersDiffer ends peers that do not ask for the same, with the reason.
func TestPeersDiffer(t *testing.T) {
	for want, starts := range map[string][2]string{
		"batch_size is 20 in peer 0 and 10 in peer 1":                  {twenty, strings.Replace(twenty, "20", "10", 1)},
		"seed is not given in peer 0 and 18446744073709551615 in":      {twenty, strings.Replace(twenty, "{", `{"seed":18446744073709551615,`, 1)},
		`weights is {"a":1.5} in peer 0 and {"a":1.5,"b":0} in peer 1`: {strings.Replace(twenty, "{", `{"weights":{"a":1.5},`, 1), strings.Replace(twenty, "{", `{"weights":{"b":0,"a":1.5},`, 1)},
	} {
		m := meet(t, text(t, 100), 2)
		clients := []*client{m.join(0, 1, m.near), m.join(1, 1, m.far)}
		for i, c := range clients {
			c.info()
			c.begin(1, starts[i])
		}
		for _, c := range clients {
			if got := c.refused("config"); !strings.Contains(got, want) || !strings.Contains(got, "load one state") {
				t.Errorf("the error is %q, want %q", got, want)
			}
			c.ask(1, 0) // each time
			c.refused("config")
		}
		m.stop()
	}
	m := meet(t, text(t, 100), 2)
	one, other := m.join(0, 1, m.near), m.join(1, 1, m.near)
	one.info()
	other.openAt("s3://k:secret@elsewhere")
	for _, c := range []*client{one, other} {
		if got := c.refused("config"); !strings.Contains(got, `address is "mem" in peer 0 and "s3`) || strings.Contains(got, "secret") {
			t.Errorf("the error is %q", got)
		}
	}
	m.stop()
}

// TestPeersOpen has errors of opening and of START on all peers; then they may ask again.
func TestPeersOpen(t *testing.T) {
	m := meet(t, text(t, 100), 2)
	clients := []*client{m.join(0, 1, m.near), m.join(1, 1, m.far)}
	for _, c := range clients {
		body := `{"address":"mem","nothing":1}`
		c.send(newFrame(kindOpen, 0, len(body)).set32(16, Protocol), []byte(body))
		c.wantError(kindOpen, 0, "config", codeUsage)
	}
	for _, c := range clients {
		c.info()
	}
	for n := uint64(1); n < 3; n++ {
		for i, c := range clients {
			c.begin(n+uint64(i), strings.Replace(twenty, "bytes", "nothing", 1))
		}
		for i, c := range clients {
			c.wantError(kindStart, n+uint64(i), "config", codeUsage)
		}
	}
	for _, c := range clients {
		c.begin(9, twenty)
	}
	for _, c := range clients {
		c.want(kindStarted)
		c.ask(9, 0)
	}
	for _, c := range clients {
		c.batch()
	}
	m.stop()
}

// TestPeersStrangers closes connections that do not prove themselves, and keeps few of them. A peer
// that sends what it may not ends alone.
func TestPeersStrangers(t *testing.T) {
	m := meet(t, text(t, 100), 2)
	join := newFrame(kindJoin, 0, len(secret)).set64(8, 1)
	for name, sent := range map[string][]byte{
		"nothing known":    bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 10),
		"zeros":            make([]byte, 64),
		"another secret":   append(join[:], strings.Repeat("x", len(secret))...),
		"no secret":        frameOf(newFrame(kindJoin, 0, 0), ""),
		"a long secret":    frameOf(newFrame(kindJoin, 0, 1<<31-1), secret),
		"no such peer":     frameOf(join.set64(8, 1<<40), secret),
		"OPEN before JOIN": frameOf(newFrame(kindOpen, 0, 2).set32(16, Protocol), "{}"),
		"JOIN twice":       frameOf(join.set64(16, 1), secret+string(frameOf(join.set64(16, 1), secret))),
		"a kind of no one": frameOf(join.set64(16, 1), secret+string(frameOf(newFrame(99, 0, 0), ""))),
		"a large body":     frameOf(join.set64(16, 1), secret+string(frameOf(newFrame(kindOpen, 0, maxBody+1), ""))),
		"START first":      frameOf(join.set64(16, 1), secret+string(frameOf(newFrame(kindStart, 0, 2), "{}"))),
		"no JSON":          frameOf(join.set64(16, 1), secret+string(frameOf(newFrame(kindOpen, 0, 2).set32(16, Protocol), "[]"))),
		"no members":       frameOf(join.set64(16, 1), secret+string(frameOf(newFrame(kindOpen, 0, 4).set32(16, Protocol), "null"))),
	} {
		for _, at := range []net.Addr{m.near, m.far} {
			c := m.dial(at)
			if _, err := c.sock.Write(sent); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c.sock); len(got) > 0 || os.IsTimeout(err) {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		}
	}
	before := openFiles(t)
	silent := make([]*client, 300)
	for i := range silent {
		silent[i] = m.dial(m.far)
	}
	c := m.join(1, 1, m.far)
	c.info()
	if n := openFiles(t) - before - len(silent); n > maxStrangers+8 {
		t.Errorf("%d files are open for strangers", n)
	}
	if got, err := io.ReadAll(silent[0].sock); len(got) > 0 || os.IsTimeout(err) {
		t.Errorf("the first of many got %q, %v", got, err)
	}
	for number := range uint64(3) { // of memory that it does not have
		c.send(newFrame(kindRelease, 0, 0).set32(16, uint32(number)).set64(24, number<<20), nil)
	}
	c.ask(1, 1<<63)
	other := m.join(0, 1, m.near)
	other.info()
	for _, c := range []*client{c, other} {
		c.begin(2, twenty)
	}
	for _, c := range []*client{c, other} {
		c.want(kindStarted)
		c.ask(2, 0)
	}
	c.batch()
	g := other.batch()
	c.release(&g.frame)
	c.ask(2, 1)
	if bytes.Equal(g.region, make([]byte, len(g.region))) {
		t.Error("a region is empty")
	}
	m.stop()
}

func frameOf(f frame, body string) []byte { return append(f[:], body...) }

// TestPeersWait tells a peer for whom it waits.
func TestPeersWait(t *testing.T) {
	m := meet(t, text(t, 1000), 3)
	c := m.join(1, 1, m.near)
	c.info()
	heard := func(want string) {
		t.Helper()
		for {
			f, err := readFrame(c.sock)
			if err != nil {
				t.Fatal(err)
			}
			body, err := readBody(c.sock, &f)
			if err != nil {
				t.Fatal(err)
			}
			if f.kind() == kindHeartbeat && f.flags() == flagPeers {
				if string(body) != want || f.u64(16) < 1000 {
					t.Errorf("it waits for %s since %d ms, want %s", body, f.u64(16), want)
				}
				return
			}
		}
	}
	c.begin(1, twenty)
	heard("peers 0, 2")
	other := m.join(2, 1, m.far)
	other.info()
	other.begin(1, twenty)
	for c.told("peer 0") {
	}
	m.stop()
}

// told reports whether the next sign of life does not name those peers yet.
func (c *client) told(want string) bool {
	c.t.Helper()
	f, err := readFrame(c.sock)
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := readBody(c.sock, &f)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(body) != want
}

// bench is peers that no goroutine serves, on a data set that no server reads.
func bench(t *testing.T, count int) (g *peers, of *feed, conns []*peer) {
	g = &peers{gone: map[int]bool{}, open: map[string]*feed{}, pending: map[*peer]beginning{}}
	g.asked.Count = count
	of = &feed{g: g, holds: map[spot][]*peer{}, memory: map[uint32]*memoryFile{}, more: make(chan struct{}, 1)}
	for i := range count {
		ours, theirs := net.Pipe()
		t.Cleanup(func() {
			ours.Close()
			theirs.Close()
		})
		p := &peer{sock: ours, index: i, feed: of, stale: map[spot]int{}, more: make(chan struct{}, 1)}
		g.conns, conns = append(g.conns, p), append(conns, p)
	}
	return g, of, conns
}

// begun begins a run of all.
func begun(t *testing.T, g *peers, conns []*peer, request string) {
	t.Helper()
	for _, p := range conns {
		does(t, g, p, newFrame(kindStart, 0, len(request)).set64(8, 1), request)
	}
	if g.run == nil {
		t.Fatal("no run has begun")
	}
	g.hear(g.run.of, newFrame(kindStarted, 0, 0).set64(8, g.run.id), nil)
}

func does(t *testing.T, g *peers, p *peer, f frame, body string) {
	t.Helper()
	if err := g.handle(p, &f, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// kinds returns the kinds of the frames that wait for the server, and takes them.
func (f *feed) kinds() (out []kind) {
	for _, q := range f.queue {
		out = append(out, q.kind())
	}
	f.queue = nil
	return out
}

// TestPeerThatLeft holds nothing, and what it releases late does not free what has come to the same
// place.
func TestPeerThatLeft(t *testing.T) {
	g, of, conns := bench(t, 2)
	one, other := conns[0], conns[1]
	batch := newFrame(kindBatch, 0, 0).set32(16, 1).set64(32, 4096)
	release := newFrame(kindRelease, 0, 0).set32(16, 1)
	freed := func(want int) {
		t.Helper()
		n := 0
		for _, k := range of.kinds() {
			if k == kindRelease {
				n++
			}
		}
		if n != want {
			t.Fatalf("%d regions are free, want %d", n, want)
		}
	}
	begun(t, g, conns, `{}`)
	g.hear(of, batch, nil)
	does(t, g, other, release, "")
	freed(0)
	does(t, g, one, newFrame(kindLeave, 0, 0).set64(8, 2), "") // of another run
	freed(0)
	does(t, g, one, newFrame(kindLeave, 0, 0).set64(8, 1), "")
	freed(1)
	begun(t, g, conns, `{}`)
	g.hear(of, batch, nil)
	does(t, g, other, release, "")
	does(t, g, one, release, "") // of the batch that it left
	freed(0)
	does(t, g, one, release, "")
	freed(1)
	if len(one.stale) > 0 || len(of.holds) > 0 {
		t.Errorf("it has %v, holds are %v", one.stale, of.holds)
	}
	g.hear(of, batch, nil)
	does(t, g, other, release, "")
	does(t, g, one, newFrame(kindStart, 0, 2).set64(8, 2), "{}")
	freed(1)
	g.hear(of, batch, nil)
	g.drop(other)
	freed(1)
}

// TestPeersEndWithBatches: a peer reads what was sent to it when all is over, and nothing else comes to
// these places.
func TestPeersEndWithBatches(t *testing.T) {
	g, of, conns := bench(t, 2)
	g.open["{}"] = of
	begun(t, g, conns, `{}`)
	g.hear(of, newFrame(kindBatch, 0, 0).set32(16, 1).set64(32, 4096), nil)
	does(t, g, conns[0], newFrame(kindRelease, 0, 0).set32(16, 1), "")
	of.kinds()
	g.stop(true)
	g.close()
	if got := of.kinds(); !slices.Equal(got, []kind{kindStop}) {
		t.Errorf("the server is told %v, want STOP alone", got)
	}
}

// TestPeersAsk asks the server once for the batch that the slowest peer waits for.
func TestPeersAsk(t *testing.T) {
	g, of, conns := bench(t, 2)
	begun(t, g, conns, `{}`)
	of.kinds()
	asked := 0
	for _, step := range []struct{ peer, number, asked int }{{0, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 1}, {1, 1, 2}, {1, 9, 2}, {0, 8, 3}} {
		does(t, g, conns[step.peer], newFrame(kindNext, 0, 0).set64(8, 1).set64(16, uint64(step.number)), "")
		if asked += len(of.kinds()); asked != step.asked {
			t.Fatalf("%+v: the server was asked %d times", step, asked)
		}
	}
	g.drop(conns[0])
	if got := of.kinds(); len(got) != 1 || got[0] != kindNext {
		t.Errorf("without the slower one, the server got %v", got)
	}
}

// TestPeersAhead does not take a thread that reads far ahead of a loop for a loop that goes on.
func TestPeersAhead(t *testing.T) {
	for number, fails := range map[uint64]bool{19: false, 20: true} {
		g, of, conns := bench(t, 2)
		begun(t, g, conns, `{"ahead":20}`)
		if q := of.queue[len(of.queue)-1]; string(q.body) != "{}" {
			t.Errorf("the server is asked for %s", q.body)
		}
		does(t, g, conns[0], newFrame(kindStart, 0, 2).set64(8, 2), "{}")
		does(t, g, conns[1], newFrame(kindNext, 0, 0).set64(8, 1).set64(16, number), "")
		if (g.failed != nil) != fails {
			t.Errorf("batch %d: %s", number, g.failed)
		}
	}
}

// TestPeersHostGone ends all when the host of a client is gone, which its presence may notice later.
func TestPeersHostGone(t *testing.T) {
	for err, fails := range map[error]bool{unix.ETIMEDOUT: true, unix.EHOSTUNREACH: true, io.EOF: false} {
		g, _, conns := bench(t, 2)
		g.ended(conns[1], &net.OpError{Op: "read", Err: os.NewSyscallError("read", err)})
		if got := string(g.failed); strings.Contains(got, "peer 1 ended without closing its loader") != fails {
			t.Errorf("%v: %q", err, got)
		}
	}
}
