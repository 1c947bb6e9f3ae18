package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/internal/sys/plain"
)

const (
	// joining is how long a connection may take to prove that it is a peer's, and maxStrangers the
	// most that have not.
	joining, maxStrangers = 10 * time.Second, 64
	// patience is how long the end waits for a peer that takes nothing of what was read for it.
	patience = time.Minute
)

// PeersRequest is the body of PEERS.
type PeersRequest struct {
	// Count is how many peers the rank has, and Secret what their connections must know.
	Count  int    `json:"count"`
	Secret string `json:"secret"`
	// Opening is the OPEN of the first peer: the others open the same.
	Opening members `json:"opening"`
	// Gone are the peers that have closed their loaders.
	Gone []int `json:"gone"`
}

// peers serves the processes that read one rank together, the peers. To a peer it is a server. To
// the server of the data set that they have open it is a client: it begins a run when all have sent
// the same START, sends each batch to all, and asks for the one that the slowest waits for.
//
// A lock of a server, of its ring or of its link, may be held when mu is taken; not the other way
// round.
type peers struct {
	ctx     context.Context
	opts    Options // of the servers
	asked   PeersRequest
	control conn
	talks   sync.WaitGroup
	servers sync.WaitGroup

	mu      sync.Mutex
	conns   []*peer // the oldest first
	gone    map[int]bool
	open    map[string]*feed // by what OPEN asked for
	pending map[*peer]beginning
	run     *joint
	failed  []byte // the error that ended all, as it is sent
	over    bool   // no connection is let in
}

// peer is a connection of a peer: its presence, from the making of its loader to the end, or a
// client. Its fields are guarded by peers.mu.
type peer struct {
	sock     net.Conn
	far      bool // it is on another host, and gets the bytes of batches
	index    int  // of the peer; -1 until the connection has proved itself
	presence bool
	lost     bool
	feed     *feed
	// stale are regions that were released for it, and how many RELEASEs of each it still sends.
	stale map[spot]int
	// since is when it began to wait, and told when it last heard for whom.
	since, told time.Time
	queue       []item
	left        int           // bytes that wait to be written
	more        chan struct{} // a token: queue has items, or it is lost
}

// item is something to write to a peer.
type item struct {
	data []byte
	// memory, when not nil, is passed after data with one byte; or length bytes of it follow, the batch
	// at a place of a feed.
	memory *memoryFile
	of     *feed
	at     spot
	length int
}

// ServePeers serves the peers of a rank, which connect to the listening sockets with the descriptors
// listen. The process at the other end of the socket with descriptor fd, the first peer, has started
// this one: it sends PEERS, and when it stops or is gone, all is over. ServePeers takes the
// descriptors over.
func ServePeers(ctx context.Context, fd int, listen []int, o Options) error {
	var listeners []net.Listener
	for _, n := range listen {
		l, err := listener(n)
		if err != nil {
			return err
		}
		defer l.Close()
		listeners = append(listeners, l)
	}
	sock, err := connect(fd)
	if err != nil {
		return err
	}
	defer sock.Close()
	giveUp := o.GiveUp
	o.GiveUp = nil
	g := &peers{ctx: ctx, opts: o, control: conn{link: socket{sock}, code: o.Code}, gone: map[int]bool{},
		open: map[string]*feed{}, pending: map[*peer]beginning{}}
	ctx, cancel := context.WithCancel(ctx)
	defer g.talks.Wait()
	defer cancel()
	g.talks.Go(func() { g.watch(ctx, sock) })
	if err := g.begin(sock); err != nil {
		if errors.Is(err, io.EOF) || gone(err) {
			return nil
		}
		_ = g.control.fail(0, 0, err)
		return err
	}
	for _, l := range listeners {
		g.talks.Go(func() { g.accept(l) })
	}
	f, err := readFrame(sock)
	for _, l := range listeners {
		l.Close()
	}
	g.stop(err == nil && f.kind() == kindStop)
	g.finish()
	cancel()
	if giveUp != nil {
		defer time.AfterFunc(grace, giveUp).Stop()
	}
	g.close()
	return nil
}

// begin is the beginning of the conversation with the first peer.
func (g *peers) begin(sock net.Conn) error {
	version := g.opts.Version
	hello := newFrame(kindHello, 0, len(version)).set64(8, magic).set32(16, Protocol)
	if err := g.control.send(hello, []byte(version)); err != nil {
		return err
	}
	f, err := readFrame(sock)
	if err != nil {
		return err
	}
	if f.kind() != kindPeers || f.body() > maxBody {
		return protocolError(fmt.Sprintf("a frame of kind %d in place of PEERS", f.kind()))
	}
	body, err := readBody(sock, &f)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := decodeBody(body, &g.asked); err != nil {
		return err
	}
	if g.asked.Count < 1 || g.asked.Secret == "" {
		return protocolError("PEERS without count and secret")
	}
	for _, index := range g.asked.Gone {
		g.gone[index] = true
	}
	return nil
}

// watch comforts those that wait, and closes the socket of the first peer when that has ended: a
// process that it forked may have the other end.
func (g *peers) watch(ctx context.Context, sock net.Conn) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if g.opts.Parent != 0 && os.Getppid() != g.opts.Parent {
			sock.Close()
		}
		g.comfort()
	}
}

// stop tells the peers that the first has stopped, or is gone.
func (g *peers) stop(stopped bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	if !stopped {
		g.died(0)
		return
	}
	if g.run != nil && g.run.over != nil {
		for p := range g.run.asked {
			g.put(p, g.run.over(g.run.ids[p]))
		}
	}
	g.fail("closed", "the process that reads for its peers, peer 0, closed its loader")
}

// finish waits until the peers have what waits to be sent.
func (g *peers) finish() {
	before, since := -1, time.Now()
	for next := time.Now().Add(beat); ; time.Sleep(10 * time.Millisecond) {
		g.mu.Lock()
		left := 0
		for _, p := range g.conns {
			if left += p.left; p.far && !p.presence && p.index >= 0 {
				left += unsent(p.sock)
			}
		}
		g.mu.Unlock()
		if left != before {
			before, since = left, time.Now()
		}
		if left == 0 || time.Since(since) > patience {
			return
		}
		if time.Now().After(next) { // the first peer waits, if it lives
			next = next.Add(beat)
			_ = g.control.send(newFrame(kindHeartbeat, 0, 0), nil)
		}
	}
}

// unsent returns how many bytes the other host has not received; 0 where the system does not say.
func unsent(sock net.Conn) (n int) {
	if tcp, ok := sock.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		}
	}
	return n
}

// close ends all servers and connections. The servers end first: a peer may still read the batches
// that were sent to it, and no region of them may become free for another one.
func (g *peers) close() {
	g.mu.Lock()
	for _, of := range g.open {
		g.end(of)
	}
	for len(g.conns) > 0 {
		g.drop(g.conns[0])
	}
	g.mu.Unlock()
	g.servers.Wait()
}

// Connections

// accept lets connections in. Those that do not prove themselves are closed, the oldest first when
// there are many.
func (g *peers) accept(l net.Listener) {
	for {
		sock, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: who connects waits meanwhile
			time.Sleep(beat)
			continue
		}
		tcp, far := sock.(*net.TCPConn)
		if far { // a host that is gone is noticed within about a minute; a process that pauses is not
			_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 4})
		}
		p := &peer{sock: sock, far: far, index: -1, stale: map[spot]int{}, more: make(chan struct{}, 1)}
		g.mu.Lock()
		if g.over {
			g.mu.Unlock()
			sock.Close()
			return
		}
		g.conns = append(g.conns, p)
		if of := g.stranger(); of != nil {
			g.drop(of)
		}
		g.mu.Unlock()
		g.talks.Go(func() { g.listen(p) })
		g.talks.Go(func() { g.deliver(p) })
	}
}

// stranger returns the oldest connection that has not proved itself, if there are too many; else
// nil.
func (g *peers) stranger() (oldest *peer) {
	n := 0
	for _, p := range g.conns {
		if p.index < 0 {
			if n++; oldest == nil {
				oldest = p
			}
		}
	}
	if n <= max(maxStrangers, 4*g.asked.Count) {
		return nil
	}
	return oldest
}

// listen receives frames of a peer until its connection ends.
func (g *peers) listen(p *peer) {
	from := bufio.NewReader(p.sock)
	_ = p.sock.SetReadDeadline(time.Now().Add(joining))
	most := uint32(64) // bytes of a body
	for {
		f, err := readFrame(from)
		if err == nil && f.body() > most {
			err = protocolError("a body that is too large")
		}
		var body []byte
		if err == nil {
			body, err = readBody(from, &f)
		}
		g.mu.Lock()
		if err == nil && !p.lost {
			err = g.handle(p, &f, body)
		}
		if err != nil {
			g.ended(p, err)
		}
		lost := p.lost
		g.mu.Unlock()
		if lost {
			return
		}
		if most < maxBody {
			_ = p.sock.SetReadDeadline(time.Time{})
			most = maxBody
		}
	}
}

// ended handles the end of a connection.
func (g *peers) ended(p *peer, err error) {
	if p.lost {
		return
	}
	present := p.presence || p.index >= 0 && (errors.Is(err, unix.ETIMEDOUT) ||
		errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH))
	g.drop(p)
	if present && !g.gone[p.index] {
		g.died(p.index)
	}
}

// died ends all because a peer did.
func (g *peers) died(index int) {
	if index == 0 {
		g.fail("died", "peer 0, which reads for its peers, ended without closing its loader: it was killed")
	} else {
		g.fail("died", fmt.Sprintf("peer %d ended without closing its loader: it was killed, or its host is gone", index))
	}
}

// drop ends a connection.
func (g *peers) drop(p *peer) {
	if p.lost {
		return
	}
	p.lost = true
	g.conns = slices.DeleteFunc(g.conns, func(other *peer) bool { return other == p })
	p.sock.Close()
	signal(p.more)
	delete(g.pending, p)
	if of := p.feed; of != nil {
		g.leave(p, of)
	}
	g.start()
}

// put queues something to be sent to a peer.
func (g *peers) put(p *peer, data []byte) { g.putItem(p, item{data: data}) }

func (g *peers) putItem(p *peer, it item) {
	if p.lost {
		return
	}
	if it.memory != nil {
		it.memory.users++
	}
	p.queue = append(p.queue, it)
	p.left += len(it.data) + it.length
	signal(p.more)
}

// deliver writes to a peer what is queued for it.
func (g *peers) deliver(p *peer) {
	w := peerWriter{g: g, p: p}
	for {
		g.mu.Lock()
		queue, lost := p.queue, p.lost
		p.queue = nil
		g.mu.Unlock()
		if len(queue) == 0 && !lost {
			<-p.more
			continue
		}
		var err error
		for i := range queue {
			if err == nil && !lost {
				err = w.item(&queue[i])
			}
			g.done(&queue[i])
		}
		if err == nil && !lost {
			err = w.flush()
		}
		g.mu.Lock()
		if err != nil {
			g.ended(p, err)
		}
		g.mu.Unlock()
		if lost {
			return
		}
	}
}

// done lets go of the memory of an item.
func (g *peers) done(it *item) {
	if it.memory != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		it.memory.leave()
	}
}

// peerWriter writes items to a peer: several small ones at once.
type peerWriter struct {
	g   *peers
	p   *peer
	out []byte // not yet written
	// buffer has a piece of a batch.
	buffer []byte
}

func (w *peerWriter) item(it *item) error {
	w.out = append(w.out, it.data...)
	switch {
	case it.memory == nil:
		return nil
	case it.length == 0:
		return w.pass(it.memory)
	}
	if err := w.flush(); err != nil {
		return err
	}
	if w.buffer == nil {
		w.buffer = make([]byte, 256<<10)
	}
	for at := 0; at < it.length; {
		part := w.buffer[:min(len(w.buffer), it.length-at)]
		if _, err := it.memory.ReadAt(part, int64(it.at.offset)+int64(at)); err != nil {
			return err
		}
		if err := w.write(part); err != nil {
			return err
		}
		at += len(part)
	}
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.g.release(w.p, it.of, it.at)
	return nil
}

// pass passes the descriptor of a segment with one byte.
func (w *peerWriter) pass(of *memoryFile) error {
	if err := w.flush(); err != nil {
		return err
	}
	_, _, err := w.p.sock.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(int(of.Fd())), nil)
	return err
}

func (w *peerWriter) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	err := w.write(w.out)
	w.out = w.out[:0]
	return err
}

func (w *peerWriter) write(data []byte) error {
	n, err := w.p.sock.Write(data)
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.p.left -= n
	return err
}

// comfort sends a sign of life to those that wait for other peers, and says for which.
func (g *peers) comfort() {
	g.mu.Lock()
	defer g.mu.Unlock()
	missing := g.missing()
	for p := range g.pending {
		g.waits(p, missing)
	}
	r := g.run
	if r == nil || r.over != nil {
		return
	}
	var slow []int
	for p, number := range r.asked {
		if number <= r.forwarded {
			slow = append(slow, p.index)
		}
	}
	for p, number := range r.asked {
		if number >= r.sent && number > r.forwarded {
			g.waits(p, slow)
		}
	}
}

// waits tells a peer that it waits for others.
func (g *peers) waits(p *peer, others []int) {
	now := time.Now()
	if now.Sub(p.since) < beat || now.Sub(p.told) < beat {
		return
	}
	p.told = now
	body := named(others)
	f := newFrame(kindHeartbeat, flagPeers, len(body)).set64(16, uint64(now.Sub(p.since)/time.Second)*1000)
	g.put(p, append(f[:], body...))
}

// named names peers for a message.
func named(peers []int) string {
	slices.Sort(peers)
	peers = slices.Compact(peers)
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(peers), " ", ", "), "[]")
	if len(peers) > 1 {
		return "peers " + text
	}
	return "peer " + text
}

// fail ends all peers with an error.
func (g *peers) fail(kind, message string) {
	if g.failed != nil {
		return
	}
	g.failed = errorFrame(kind, message)
	g.run = nil
	clear(g.pending)
	for _, p := range g.conns {
		if p.index >= 0 && !p.presence {
			g.put(p, g.failed)
		}
	}
}

// errorFrame returns an ERROR for a connection, with its body.
func errorFrame(kind, message string) []byte {
	p := problem{Kind: kind, Message: plain.Line(message)}
	body, _ := json.Marshal(p) // texts
	f := newFrame(kindError, 0, len(body)).set32(16, codeFailed)
	return append(f[:], body...)
}
