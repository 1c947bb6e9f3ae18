// Package view shows data sets, and what the steps of a run read, in a browser.
//
//	/samples   a page of samples: in storage order, in the order of training, by key or expression
//	/sample    one sample: its fields, its attributes, its place
//	/field     the bytes of one field
//	/data      a data set: fields, attributes, shards, views, from its tables
//	/step      what a rank reads in a step
//	/marks     the keys of marked samples, and the commands that take them
//
// The handlers only read. What they show is hostile: a field is shown as an image, a sound or a
// video only if its bytes say so, and everything else as text or in hexadecimal digits. Nothing in
// it is executed, and a page loads nothing from elsewhere.
package view

import (
	"cmp"
	"context"
	"crypto/subtle"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
)

// Source is a data set that is shown.
type Source struct {
	Name    string           // in a mix; empty for one data set
	Address objstore.Address // as commands take it
	Set     *reader.Dataset
}

// Layers names the layers that the data set was opened with, as commands take them.
func (of *Source) Layers() (names []string) {
	for name := range of.Set.Layers() {
		names = append(names, name)
	}
	return names
}

// Options say what a Server shows.
type Options struct {
	// Title names what is shown.
	Title   string
	Sources []Source
	// Run opens the run whose steps are shown. It is called when the first page needs it, and again
	// after an error.
	Run func(ctx context.Context) (*reader.Run, error)
	// GlobalBatch, World and Rank choose the step that is shown first.
	GlobalBatch, World, Rank int
	// Token is what a browser must show: in the address of its first request, then in a cookie.
	Token string
	// Listen is the address of the server. A request whose Host is not an address of it is refused.
	Listen    string
	Tokenizer *Tokenizer // nil: token ids are shown as numbers
}

// Server handles the requests. It is safe for concurrent use.
type Server struct {
	Options
	mux    *http.ServeMux
	recent *recent
	busy   chan struct{} // pages in work
	files  chan struct{} // downloads
	mu     sync.Mutex
	run    *reader.Run
	views  map[string]*viewstore.Selection // by data set and expression
}

// atOnce is how many requests are worked on concurrently; more wait. Each may hold maxPage bytes.
const atOnce = 4

// filesAtOnce is how many fields are sent concurrently: a browser opens six connections, and each
// may hold a block.
const filesAtOnce = 16

//go:embed templates
var files embed.FS

// style is the style sheet. It works in light and dark, and at a width of 375 pixels.
//
//go:embed style.css
var style string

//go:embed script.js
var script string

const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#4a7fb5" d="M1 1h6v6H1zM9 1h6v6H9zM1 9h6v6H1zM9 9h6v6H9z"/></svg>`

// New returns a server. It must be closed before the data sets.
func New(o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux(), recent: newRecent(), busy: make(chan struct{}, atOnce),
		files: make(chan struct{}, filesAtOnce), views: map[string]*viewstore.Selection{}}
	for path, h := range map[string]func(*http.Request) (any, error){
		"samples": s.samples, "sample": s.sample, "data": s.data, "step": s.step,
	} {
		t := parse(path)
		s.mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, t, h) })
	}
	marks := parse("marks")
	s.mux.HandleFunc("/marks", func(w http.ResponseWriter, r *http.Request) { s.marks(w, r, marks) })
	s.mux.HandleFunc("GET /field", s.field)
	s.mux.HandleFunc("GET /heat", s.heat)
	static := func(path, media, text string) {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			_, _ = w.Write([]byte(text))
		})
	}
	static("/style.css", "text/css; charset=utf-8", style)
	static("/script.js", "text/javascript; charset=utf-8", script)
	static("/icon.svg", "image/svg+xml", icon)
	s.mux.HandleFunc("GET /{$}",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/samples", http.StatusFound) })
	return s
}

// Close closes the run.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.run.Close()
		s.run = nil
	}
}

// cookie is the name of the cookie with the token. Browsers give the cookies of a host to all its
// ports, so the name has the port: two servers do not take each other's place.
func (s *Server) cookie() string {
	_, port, _ := net.SplitHostPort(s.Listen)
	return "shardtool-view-" + port
}

// policy allows what the pages have: their style sheet, their script, and media of this server.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; media-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP checks where a request comes from, and handles it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !s.isHost(r.Host) {
		http.Error(w, "this server does not have the name "+plain.Text(r.Host)+": use the address that `shardtool view` printed", http.StatusMisdirectedRequest)
		return
	}
	q := r.URL.Query()
	if given := q.Get("token"); s.isToken(given) {
		http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: given, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		q.Del("token")
		to := url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
		http.Redirect(w, r, to.String(), http.StatusFound)
		return
	}
	if c, err := r.Cookie(s.cookie()); err != nil || !s.isToken(c.Value) {
		http.Error(w, "the token is missing or wrong: use the address that `shardtool view` printed",
			http.StatusForbidden)
		return
	}
	busy := s.busy
	if r.URL.Path == "/field" { // downloads wait for their browsers
		busy = s.files
	}
	select {
	case busy <- struct{}{}:
		defer func() { <-busy }()
	case <-r.Context().Done():
		return
	}
	s.mux.ServeHTTP(&moving{w, http.NewResponseController(w)}, r)
}

// moving is a response that ends when the browser takes nothing of it for a while: a download that
// was stopped must not keep others waiting.
type moving struct {
	http.ResponseWriter
	control *http.ResponseController
}

// stall is how long a browser may take nothing.
var stall = 20 * time.Second

// Unwrap is for http.ResponseController.
func (m *moving) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *moving) Write(p []byte) (n int, err error) {
	const step = 64 << 10
	for n < len(p) && err == nil {
		_ = m.control.SetWriteDeadline(time.Now().Add(stall)) // a test's recorder has none
		var part int
		part, err = m.ResponseWriter.Write(p[n:min(n+step, len(p))])
		n += part
	}
	return n, err
}

func (s *Server) isToken(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.Token)) == 1
}

// isHost reports whether a Host is the server's own. A page of another site can give its own name
// an address of this machine, but not change the name that the browser sends.
func (s *Server) isHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return false
	}
	own, ownPort, err := net.SplitHostPort(s.Listen)
	if err != nil || port != ownPort {
		return false
	}
	if ip := net.ParseIP(own); ip != nil && ip.IsUnspecified() { // all addresses of the host
		return net.ParseIP(name) != nil || name == "localhost"
	}
	return name == own || name == "localhost"
}

// problem is an error that a page shows, with its status.
type problem struct {
	status int
	error
}

func missing(format string, args ...any) error {
	return problem{http.StatusNotFound, fmt.Errorf(format, args...)}
}

func wrong(format string, args ...any) error {
	return problem{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// frame is what every page has around its content.
type frame struct {
	Title   string
	Page    string
	Sources []Source
	// Digest is part of the name under which the browser keeps marks.
	Digest string
	Error  string
	Body   any
}

// deadline bounds the work for one page. A store that does not answer must not hold a browser for
// ever.
const deadline = time.Minute

func (s *Server) serve(w http.ResponseWriter, r *http.Request, t *template.Template,
	h func(*http.Request) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	body, err := h(r.WithContext(ctx))
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("this took more than %v and was stopped: %w", deadline, err)
	}
	s.write(w, t, strings.TrimPrefix(r.URL.Path, "/"), body, err)
}

// write writes a page, or the page of an error.
func (s *Server) write(w http.ResponseWriter, t *template.Template, name string, body any, err error) {
	f := frame{Title: s.Title, Page: name, Sources: s.Sources, Body: body, Digest: s.digest()}
	status := http.StatusOK
	if err != nil {
		f.Error, status = plain.Text(err.Error()), statusOf(err)
		t = parse("error")
	}
	var b strings.Builder
	if err := t.Execute(&b, &f); err != nil {
		http.Error(w, plain.Text(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(b.String()))
}

func statusOf(err error) int {
	if p, ok := errors.AsType[problem](err); ok {
		return p.status
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	case errors.Is(err, format.ErrName):
		return http.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// digest identifies what is shown.
func (s *Server) digest() string {
	var parts []string
	for i := range s.Sources {
		parts = append(parts, s.Sources[i].Name+"="+s.Sources[i].Set.Info().OrderDigest)
	}
	return strings.Join(parts, ",")
}

// source returns the data set with a name; the first one if the name is empty.
func (s *Server) source(name string) (*Source, error) {
	if name == "" {
		return &s.Sources[0], nil
	}
	i := slices.IndexFunc(s.Sources, func(of Source) bool { return of.Name == name })
	if i < 0 {
		return nil, missing("there is no source %q", name)
	}
	return &s.Sources[i], nil
}

// query has the arguments of a request. err is about the first one that is wrong.
type query struct {
	url.Values
	s   *Server
	err error
}

func (s *Server) query(r *http.Request) *query { return &query{Values: r.URL.Query(), s: s} }

// source returns the data set that the request names.
func (q *query) source() *Source {
	of, err := q.s.source(q.Get("source"))
	q.err = cmp.Or(q.err, err)
	return of
}

// number returns a number, or the default where it is missing or empty.
func (q *query) number(name string, otherwise uint64) uint64 {
	text := q.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		q.err = cmp.Or(q.err, wrong("%s: %q is no number", name, text))
	}
	return n
}

// upTo is number with a limit.
func (q *query) upTo(name string, otherwise, most int) int {
	n := q.number(name, uint64(otherwise))
	if n > uint64(most) {
		q.err = cmp.Or(q.err, wrong("%s: %d is more than %d", name, n, most))
	}
	return int(n)
}

// open returns the run, opened by the first request that needs it.
func (s *Server) open(ctx context.Context) (*reader.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		run, err := s.Run(ctx)
		if err != nil {
			return nil, err
		}
		s.run = run
	}
	return s.run, nil
}

func parse(name string) *template.Template {
	t := template.New("page.html").Funcs(template.FuncMap{
		"bytes": humanize.IBytes,
		"count": func(n any) string { // any integer
			text := fmt.Sprint(n)
			if v, err := strconv.ParseInt(text, 10, 64); err == nil {
				return humanize.Comma(v)
			}
			return text
		},
		"percent": func(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" },
		"figure":  func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) },
		"link":    link,
		"plain":   plain.Text,
		"quote":   func(v any) string { return quoted(fmt.Sprint(v)) },
		"mul":     func(a, b int) int { return a * b },
	})
	return template.Must(t.ParseFS(files, "templates/page.html", "templates/parts.html", "templates/"+name+".html"))
}

// pages are the addresses of the pages before and after, empty where there is none.
type pages struct{ Before, Next string }

// turn sets the addresses for a page of count entries from one on. more reports whether others
// follow, and at is the address of the page from an entry on.
func (p *pages) turn(from, count uint64, more bool, at func(from uint64) string) {
	if from > 0 {
		p.Before = at(from - min(from, count))
	}
	if more {
		p.Next = at(from + count)
	}
}

// link returns the address of a page. args are names and values; an empty value is left out.
func link(to string, args ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(args); i += 2 {
		if v := fmt.Sprint(args[i+1]); v != "" {
			q.Set(fmt.Sprint(args[i]), v)
		}
	}
	if len(q) == 0 {
		return to
	}
	return to + "?" + q.Encode()
}
