package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/fake"
)

// Server is a server in this process, such as a [fake.Server].
type Server interface {
	SetHook(hook fake.Hook)
	Answer(w http.ResponseWriter, r *http.Request)
}

// Network is a kind of store whose server [RunNetwork] spoils.
type Network struct {
	// Open returns a store on a server of its own. If Replace is set, the store contains the
	// objects; otherwise it is empty. A request of a write that moves no byte for FirstByteTimeout is
	// given up.
	Open func(t *testing.T, objects map[string][]byte, o objstore.ReadOptions) (objstore.Store, Server)
	// Replace replaces an object of a store that only reads. It is nil for stores that write.
	Replace func(s Server, name string, data []byte)
	// Part is the size of the parts of uploads.
	Part int
	// Busy are answers, besides the statuses 429, 500 and 503, after which a request is sent again.
	Busy map[string]http.HandlerFunc
	// Expired refuses credentials that have expired. Skewed, if set, refuses a client whose clock is
	// wrong.
	Expired, Skewed Refusal
	// Unverified says that the server does not compare the bytes of a request with their checksum.
	Unverified bool
}

// Refusal is the answer to a request that is not sent again, and a part of the error.
type Refusal struct {
	Answer http.HandlerFunc
	Want   string
}

// RunNetwork tests a store over a bad network and against servers that fail, lie and redirect.
// Every operation ends in the right bytes or an error that names the fault, after a bounded number
// of requests.
func RunNetwork(t *testing.T, n Network) {
	t.Run("suite", n.testSuite)
	t.Run("faults", n.testFaults)
	t.Run("outages", n.testOutages)
	t.Run("lies", n.testLies)
	t.Run("pages", n.testPages)
	t.Run("redirects", n.testRedirects)
	t.Run("refusals", n.testRefusals)
	t.Run("clock", n.testClock)
	t.Run("no HEAD", n.testNoHead)
	t.Run("replaced", n.testReplaced)
	if n.Replace == nil {
		t.Run("lost", n.testLost)
		t.Run("damaged", n.testDamaged)
	}
}

// fault spoils an answer. serve returns the right one.
type fault func(w http.ResponseWriter, r *http.Request, serve func() *httptest.ResponseRecorder)

// send answers with the first n bytes of a body.
func send(w http.ResponseWriter, answer *httptest.ResponseRecorder, n int) {
	maps.Copy(w.Header(), answer.Header())
	if answer.Body.Len() > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:n])
	_ = http.NewResponseController(w).Flush()
}

// half answers with half of a body. The caller spoils the rest.
func half(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	if answer.Body.Len() == 0 { // the client would take the answer for complete
		panic(http.ErrAbortHandler)
	}
	send(w, answer, answer.Body.Len()/2)
}

// status is an answer without any of the store's own headers.
func status(code int) fault {
	return func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
	}
}

// faults returns what a store gets over. Their names say where something stalls.
func (n Network) faults() map[string]fault {
	all := map[string]fault{
		"reset": func(http.ResponseWriter, *http.Request, func() *httptest.ResponseRecorder) {
			panic(http.ErrAbortHandler)
		},
		"lost": func(_ http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
			serve()
			panic(http.ErrAbortHandler)
		},
		"short": func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
			half(w, serve())
			panic(http.ErrAbortHandler)
		},
		"slow": func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
			answer := serve()
			time.Sleep(5 * time.Millisecond)
			send(w, answer, answer.Body.Len()/2)
			time.Sleep(5 * time.Millisecond)
			_, _ = w.Write(answer.Body.Bytes()[answer.Body.Len()/2:])
		},
		"stalled headers": func(_ http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"stalled body": func(w http.ResponseWriter, r *http.Request, serve func() *httptest.ResponseRecorder) {
			half(w, serve())
			<-r.Context().Done()
		},
		"429": status(http.StatusTooManyRequests), "500": status(http.StatusInternalServerError),
		"503": status(http.StatusServiceUnavailable),
	}
	for name, answer := range n.Busy {
		all[name] = refused(answer)
	}
	return all
}

func refused(answer http.HandlerFunc) fault {
	return func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, r)
	}
}

// rig is one store and its server.
type rig struct {
	t      *testing.T
	store  objstore.Store
	server Server
	writes bool
	large  []byte // the object "large", of several parts
	small  []byte // the object "small"

	requests, faults atomic.Int64
}

// brief are options with short pauses. Timeouts are long, for a busy machine.
func brief() objstore.ReadOptions {
	return objstore.ReadOptions{
		BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, FirstByteTimeout: 30 * time.Second,
		StallTimeout: 30 * time.Second,
		PartSize:     256 << 10, NoHedge: true,
	}
}

// open returns a store with two objects.
func (n Network) open(t *testing.T, o objstore.ReadOptions) *rig {
	t.Helper()
	r := &rig{t: t, writes: n.Replace == nil, large: pattern(1, n.Part+777), small: pattern(2, 3000)}
	objects := map[string][]byte{"large": r.large, "small": r.small}
	r.store, r.server = n.Open(t, objects, o)
	for name, data := range objects {
		if !r.writes {
			break
		}
		r.patiently(func() error {
			_, err := objstore.Put(t.Context(), r.store, name, data, objstore.Condition{})
			return err
		})
	}
	return r
}

// patiently calls f again as long as it is given up: where timeouts are short, a busy machine
// stalls requests that nothing spoils.
func (r *rig) patiently(f func() error) {
	r.t.Helper()
	err := f()
	for givenUp(err) && r.t.Context().Err() == nil {
		err = f()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func givenUp(err error) bool { return err != nil && strings.Contains(err.Error(), "given up after") }

// spoil has choose select the fault of each request from now on, by its number; nil is none.
func (r *rig) spoil(choose func(number int64, request *http.Request) fault) {
	r.requests.Store(0)
	r.faults.Store(0)
	r.server.SetHook(func(w http.ResponseWriter, request *http.Request) bool {
		f := choose(r.requests.Add(1)-1, request)
		if f == nil {
			return false
		}
		r.faults.Add(1)
		f(w, request, func() *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			r.server.Answer(answer, request.Clone(context.WithoutCancel(request.Context())))
			return answer
		})
		return true
	})
}

// always selects one fault for all requests.
func always(f fault) func(int64, *http.Request) fault {
	return func(int64, *http.Request) fault { return f }
}

// every selects a fault for every n-th request, but for at most so many.
func every(n, most int64, f fault) func(int64, *http.Request) fault {
	return func(number int64, _ *http.Request) fault {
		if number%n == 1 && number/n < most {
			return f
		}
		return nil
	}
}

// work puts, lists and reads, and compares all bytes.
func (r *rig) work() error {
	ctx := r.t.Context()
	for i := range 4 {
		if !r.writes {
			break
		}
		data, name := [][]byte{r.small, r.large}[i%2], fmt.Sprint("put-", i)
		info, err := objstore.Put(ctx, r.store, name, data, objstore.Condition{IfNoneMatch: i < 2})
		if err != nil {
			return err
		}
		got, stat, err := objstore.ReadAll(ctx, r.store, name, 1<<30)
		if err != nil || !bytes.Equal(got, data) || !same(info, stat) {
			return fmt.Errorf("put %+v, read %+v: %w", info, stat, err)
		}
	}
	for _, err := range r.store.List(ctx, "") {
		if err != nil {
			return err
		}
	}
	object, err := r.store.Open(ctx, "large")
	if err != nil {
		return err
	}
	defer object.Close()
	var group errgroup.Group
	for g := range 4 {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(7, uint64(g)))
			for range 6 {
				if err := r.read(object, random.IntN(len(r.large)), 1+random.IntN(1<<20)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// errBytes reports bytes that are not the object's.
var errBytes = errors.New("storetest: other bytes")

// read compares a range of the large object. A read that fails may leave right bytes, and no
// others.
func (r *rig) read(object objstore.Object, off, size int) error {
	p := make([]byte, min(size, len(r.large)-off))
	err := object.ReadAt(r.t.Context(), p, int64(off))
	for i, b := range p {
		if b != r.large[off+i] && (err == nil || b != 0) {
			return fmt.Errorf("%w: at %d, %w", errBytes, off+i, err)
		}
	}
	return err
}

// handle opens the large object, and reads a little of it.
func (r *rig) handle() objstore.Object {
	r.t.Helper()
	object := open(r.t, r.store, "large")
	r.patiently(func() error { return r.read(object, 7, 100) })
	return object
}

// operations calls the methods, on an object whose handle was opened before, and returns the
// errors.
func (r *rig) operations(object objstore.Object) map[string]error {
	ctx := r.t.Context()
	said := map[string]error{"read": r.read(object, 1000, 1000)}
	_, said["stat"] = r.store.Stat(ctx, "small")
	for _, err := range r.store.List(ctx, "") {
		said["list"] = err
	}
	if r.writes {
		_, said["put"] = objstore.Put(ctx, r.store, "put", r.small, objstore.Condition{})
		_, said["put large"] = objstore.Put(ctx, r.store, "put", r.large, objstore.Condition{})
		said["delete"] = r.store.Delete(ctx, "put")
	}
	return said
}

// fail checks that each operation fails with one of the texts, after at most so many requests, and
// shows no secret. Servers for tests have secrets with "marked" in them.
func (r *rig) fail(said map[string]error, most int, wants ...string) {
	r.t.Helper()
	for op, err := range said {
		if err == nil || errors.Is(err, errBytes) || !slices.ContainsFunc(wants,
			func(want string) bool { return strings.Contains(err.Error(), want) }) {
			r.t.Errorf("%s: %v; want one of %q", op, err, wants)
		}
		for _, secret := range []string{"marked", "bWFya2Vk", "Signature="} {
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
				r.t.Errorf("%s shows a secret: %v", op, err)
			}
		}
	}
	if got := r.requests.Load(); got > int64(most*len(said)) {
		r.t.Errorf("%d requests of %d operations, want at most %d of each", got, len(said), most)
	}
}

// testSuite runs the contract with many temporary faults.
func (n Network) testSuite(t *testing.T) {
	all := n.faults()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)),
		func(name string) bool { return strings.Contains(name, "stalled") })
	spoiled := func(t *testing.T, objects map[string][]byte) objstore.Store {
		r := &rig{t: t}
		r.store, r.server = n.Open(t, objects, brief())
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(5, 6))
		r.spoil(func(int64, *http.Request) fault {
			mu.Lock()
			defer mu.Unlock()
			if random.Float64() < 0.12 {
				return all[names[random.IntN(len(names))]]
			}
			return nil
		})
		return r.store
	}
	if n.Replace != nil {
		RunRead(t, spoiled)
		return
	}
	Run(t, func(t *testing.T) objstore.Store { return spoiled(t, nil) })
}

// testFaults works through each fault.
func (n Network) testFaults(t *testing.T) {
	clean := n.open(t, brief())
	clean.spoil(always(nil))
	if err := clean.work(); err != nil {
		t.Fatal(err)
	}
	for name, f := range n.faults() {
		if testing.Short() && (name == "429" || name == "500") {
			continue // goroutines do what they do after 503
		}
		t.Run(name, func(t *testing.T) {
			o, chosen := brief(), every(3, 1<<40, f)
			stalled := strings.Contains(name, "stalled")
			if stalled {
				o.FirstByteTimeout, o.StallTimeout, chosen = time.Second, 500*time.Millisecond, every(15, 3, f)
			}
			r := n.open(t, o)
			r.spoil(chosen)
			err := r.work()
			for ; stalled && givenUp(err) && o.StallTimeout < time.Minute; err = r.work() {
				// A busy machine stalls, too.
				o.FirstByteTimeout, o.StallTimeout = 2*o.FirstByteTimeout, 2*o.StallTimeout
				r = n.open(t, o)
				r.spoil(chosen)
			}
			if err != nil {
				t.Fatal(err)
			}
			requests, faults, least := r.requests.Load(), r.faults.Load(), clean.requests.Load()
			t.Logf("%d requests, %d faults; %d requests without faults", requests, faults, least)
			most := least + 3*faults
			if name == "slow" {
				most = least + least/10 // writers at once may ask again
			}
			// A busy machine stalls, too, for longer than such a short timeout: then there are more
			// requests.
			if faults == 0 || requests > most && !stalled {
				t.Errorf("%d requests with %d faults, want at most %d", requests, faults, most)
			}
		})
	}
}

// testOutages has a server that never answers well: the permitted attempts are made, and no more.
func (n Network) testOutages(t *testing.T) {
	for _, name := range []string{"reset", "stalled headers", "429", "500", "503"} {
		t.Run(name, func(t *testing.T) {
			o, n := brief(), n
			o.MaxAttempts, n.Part = 4, 1000
			if strings.Contains(name, "stalled") {
				o.MaxAttempts, o.FirstByteTimeout, o.StallTimeout = 2, 200*time.Millisecond, 100*time.Millisecond
			}
			r := n.open(t, o)
			object := r.handle()
			r.spoil(always(n.faults()[name]))
			r.fail(map[string]error{"read": r.read(object, 1000, 1000)}, 2*o.MaxAttempts,
				fmt.Sprintf("given up after %d attempts", o.MaxAttempts))
			r.spoil(always(n.faults()[name]))
			r.fail(r.operations(object), 20, "given up after")
		})
	}
}

// testLies has a server that answers another request than the one sent.
func (n Network) testLies(t *testing.T) {
	edit := func(change func(h http.Header, body []byte) []byte) fault {
		return func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
			answer := serve()
			if answer.Code == http.StatusPartialContent {
				body := change(answer.Header(), answer.Body.Bytes())
				answer.Body = bytes.NewBuffer(body)
			}
			send(w, answer, answer.Body.Len())
		}
	}
	var whole []byte
	for name, lie := range map[string]struct {
		fault
		want string
	}{
		"another range": {edit(func(h http.Header, body []byte) []byte {
			var from, to, size int
			_, _ = fmt.Sscanf(h.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size)
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from-1, to-1, size))
			return body
		}), "another range"},
		"no range": {edit(func(h http.Header, body []byte) []byte {
			h.Set("Content-Range", "bytes x-y/z")
			return body
		}), "Content-Range"},
		"cut": {edit(func(_ http.Header, body []byte) []byte { return body[:len(body)/2] }), "Content-Length"},
		"whole object": {func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
			answer := serve()
			if answer.Code == http.StatusPartialContent {
				answer.Header().Del("Content-Range")
				answer.Code, answer.Body = http.StatusOK, bytes.NewBuffer(whole)
			}
			send(w, answer, answer.Body.Len())
		}, "ignores Range"},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.open(t, brief())
			whole = r.large
			object := r.handle()
			r.spoil(always(lie.fault))
			r.fail(map[string]error{"read": r.read(object, 1000, 1000)}, 2, lie.want)
			r.spoil(every(4, 1<<40, lie.fault))
			if err := r.work(); errors.Is(err, errBytes) {
				t.Error(err)
			}
		})
	}
}

// testPages has a proxy answer everything with its login page.
func (n Network) testPages(t *testing.T) {
	r := n.open(t, brief())
	object := r.handle()
	r.spoil(always(refused(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<html>Please log in")
	})))
	r.fail(r.operations(object), 3, "the proxy and its login")
}

// testRedirects follows redirects, with the credentials only to the same host, and neither in a
// circle nor without end.
func (n Network) testRedirects(t *testing.T) {
	for name, c := range map[string]struct {
		next func(step int) int
		most int
		want string
	}{
		"loop":  {func(step int) int { return 1 - step }, 3, "redirects in a loop"},
		"chain": {func(step int) int { return step + 1 }, 12, "redirects more than 10 times"},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.open(t, brief())
			object := r.handle()
			r.spoil(always(func(w http.ResponseWriter, request *http.Request, _ func() *httptest.ResponseRecorder) {
				step := 0
				_, _ = fmt.Sscanf(request.URL.Query().Get("step"), "%d", &step)
				w.Header().Set("Location", fmt.Sprintf("http://%s%s?step=%d", request.Host, request.URL.EscapedPath(),
					c.next(step)))
				w.WriteHeader(http.StatusTemporaryRedirect)
			}))
			r.fail(map[string]error{"read": r.read(object, 1000, 1000)}, c.most, c.want)
		})
	}
	// The second is another name of the same address, for which no system needs a resolver.
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]"} {
		t.Run(host, func(t *testing.T) {
			r := n.open(t, brief())
			object := r.handle()
			var asked atomic.Pointer[http.Request]
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				for _, name := range []string{"Authorization", "Referer", "Cookie", "X-Amz-Security-Token"} {
					if value := request.Header.Get(name); value != "" {
						t.Errorf("%s %q was sent to another host", name, value)
					}
				}
				r.requests.Add(1)
				r.server.Answer(w, asked.Load())
			}))
			defer there.Close()
			r.spoil(always(func(w http.ResponseWriter, request *http.Request, _ func() *httptest.ResponseRecorder) {
				asked.Store(request.Clone(context.Background()))
				w.Header().Set("Location", strings.Replace(there.URL, "127.0.0.1", host, 1)+request.URL.RequestURI())
				w.WriteHeader(http.StatusTemporaryRedirect)
			}))
			if err := r.read(object, 1000, 1000); err != nil &&
				(errors.Is(err, errBytes) || !strings.Contains(err.Error(), "redirect")) {
				t.Error(err)
			}
			if got := r.requests.Load(); got > 4 {
				t.Errorf("%d requests", got)
			}
		})
	}
}

// testRefusals has a server that refuses the credentials, or the time of the client.
func (n Network) testRefusals(t *testing.T) {
	for name, refusal := range map[string]Refusal{"expired": n.Expired, "skewed": n.Skewed} {
		if refusal.Answer == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := n.open(t, brief())
			object := r.handle()
			r.spoil(always(refused(refusal.Answer)))
			r.fail(r.operations(object), 4, refusal.Want)
		})
	}
}

// testClock has a server whose dates are a day from this machine's: nothing depends on them, unless
// the server refuses the signatures of its day.
func (n Network) testClock(t *testing.T) {
	for _, ahead := range []time.Duration{25 * time.Hour, -25 * time.Hour} {
		r := n.open(t, brief())
		r.spoil(always(func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
			answer := serve()
			answer.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			send(w, answer, answer.Body.Len())
		}))
		if err := r.work(); err != nil && !strings.Contains(err.Error(), "clock") {
			t.Errorf("%v: %v", ahead, err)
		}
	}
}

// testNoHead has a server that refuses HEAD alone, as a policy or a proxy may: what can be read is
// described too, and a missing object is missing. Where it refuses GET as well, the error is that of
// a missing right.
func (n Network) testNoHead(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			all := map[string][]byte{"object": pattern(1, 5000), "empty": {}, "other": pattern(2, 10)}
			store, server := n.Open(t, all, brief())
			for name, data := range all {
				if n.Replace == nil {
					put(t, store, name, data)
				}
			}
			server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodHead {
					w.WriteHeader(code)
				}
				return r.Method == http.MethodHead
			})
			for _, name := range []string{"object", "empty"} {
				data := all[name]
				info, err := store.Stat(t.Context(), name)
				got, _, readErr := objstore.ReadAll(t.Context(), store, name, 1<<20)
				if err != nil || readErr != nil || info.Size != int64(len(data)) || info.ETag == "" || !bytes.Equal(got, data) {
					t.Errorf("%s: %+v, %v, %v", name, info, err, readErr)
				}
			}
			if _, err := store.Stat(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a missing object: %v", err)
			}
			if n.Replace == nil { // conditions that are compared after a lost answer
				if _, err := objstore.Put(t.Context(), store, "object", nil, objstore.Condition{IfNoneMatch: true}); !errors.Is(err, objstore.ErrExists) {
					t.Errorf("put: %v", err)
				}
			}
			server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				w.WriteHeader(http.StatusForbidden)
				return true
			})
			if _, err := store.Stat(t.Context(), "other"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "403") {
				t.Errorf("all refused: %v", err)
			}
		})
	}
}

// testReplaced replaces an object before some request of a read that takes many.
func (n Network) testReplaced(t *testing.T) {
	for _, size := range []int{128 << 10, 128<<10 - 1, 64 << 10} {
		for _, at := range []int64{0, 1, 5} {
			t.Run(fmt.Sprintf("size=%d at=%d", size, at), func(t *testing.T) {
				o := brief()
				o.PartSize, o.Concurrency = 16<<10, 1 // one request at a time, so that numbers are in order
				old, other := pattern(3, 128<<10), pattern(4, size)
				store, server := n.Open(t, map[string][]byte{"object": old}, o)
				r := &rig{t: t, store: store, server: server, large: old}
				replace := func(data []byte) { put(t, store, "object", data) }
				if n.Replace != nil {
					replace = func(data []byte) { n.Replace(server, "object", data) }
				} else {
					replace(old)
				}
				object := open(t, store, "object")
				if err := r.read(object, 7, 100); err != nil {
					t.Fatal(err)
				}
				r.spoil(func(number int64, _ *http.Request) fault {
					if number == at {
						server.SetHook(nil)
						replace(other)
					}
					return nil
				})
				if err := r.read(object, 0, len(old)); !errors.Is(err, objstore.ErrChanged) ||
					errors.Is(err, errBytes) {
					t.Fatal(err)
				}
			})
		}
	}
}

// testLost loses the answer to each request of a put in turn: the put succeeds, and what Commit
// describes is stored.
func (n Network) testLost(t *testing.T) {
	r := n.open(t, brief())
	for _, size := range []int{1000, 2*n.Part + 5} {
		for kind, cond := range map[string]objstore.Condition{"none": {}, "IfNoneMatch": {IfNoneMatch: true},
			"IfMatch": {}} {
			if testing.Short() && size > n.Part && kind != "IfNoneMatch" {
				continue // the parts are the same
			}
			for at := int64(0); ; at++ {
				name, data := fmt.Sprintf("%s-%d-%d", kind, size, at), pattern(uint64(at), size)
				if kind == "IfMatch" {
					cond.IfMatch = put(t, r.store, name, []byte("old")).ETag
				}
				r.spoil(func(number int64, _ *http.Request) fault {
					if number == at {
						return n.faults()["lost"]
					}
					return nil
				})
				info, err := objstore.Put(t.Context(), r.store, name, data, cond)
				done, requests := r.faults.Load() == 0, r.requests.Load()
				r.server.SetHook(nil)
				if err != nil {
					t.Fatalf("%s, request %d: %v", name, at, err)
				}
				got, stat, err := objstore.ReadAll(t.Context(), r.store, name, 1<<30)
				if err != nil || !bytes.Equal(got, data) || !same(info, stat) {
					t.Fatalf("%s, request %d: %+v, %+v, %v", name, at, info, stat, err)
				}
				if done {
					break
				}
				if requests > 100 {
					t.Fatalf("%s: %d requests", name, requests)
				}
			}
		}
	}
}

// testDamaged alters a byte of each request's body in turn: the server refuses it, and it is sent
// again.
func (n Network) testDamaged(t *testing.T) {
	if n.Unverified {
		t.Skip("the server does not compare checksums")
	}
	r := n.open(t, brief())
	for _, size := range []int{5000, 2*n.Part + 5} {
		for at := int64(0); ; at++ {
			var bodies atomic.Int64
			r.spoil(func(_ int64, request *http.Request) fault {
				if request.ContentLength < 1000 || bodies.Add(1)-1 != at {
					return nil
				}
				return func(w http.ResponseWriter, request *http.Request, serve func() *httptest.ResponseRecorder) {
					body, err := io.ReadAll(request.Body)
					if err != nil {
						panic(http.ErrAbortHandler)
					}
					body[len(body)-500] ^= 1
					request.Body = io.NopCloser(bytes.NewReader(body))
					answer := serve()
					send(w, answer, answer.Body.Len())
				}
			})
			data := pattern(uint64(at), size)
			put(t, r.store, "damaged", data)
			done := r.faults.Load() == 0
			r.server.SetHook(nil)
			expect(t, r.store, "damaged", data)
			if done {
				break
			}
		}
	}
}
