// Package hub reads the files of data sets on the Hugging Face Hub. The store is read only.
//
// The revision in the address becomes a commit when the store is used first, and all requests name
// that commit. Three kinds of requests follow:
//
//	commit  the commit of a revision, from the API, once for each store
//	tree    the files below a folder, from the API, in pages
//	file    /resolve/ answers with the bytes of a small file, or redirects to where they are: for files
//	        in LFS or Xet, to a signed URL on another host
//
// The Hub limits the number of requests for the API and for /resolve/ in five minutes each. So the
// place of a file is kept until its signature expires, and ranges are read from there; and no request
// is sent before the end of the window if the Hub's last answer says that none are left.
//
// The token is sent to the endpoint and to no other host. Documentation of the Hub: rate limits are
// described at https://huggingface.co/docs/hub/rate-limits, the headers of /resolve/ and the errors in
// package huggingface_hub (file_download.py, utils/_http.py).
package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Options configure a store. The zero value is right for the Hub.
type Options struct {
	objstore.ReadOptions

	// HTTPClient sends the requests, for tests. Nil means a client of the store's own.
	HTTPClient *http.Client
	// Logger receives warnings that are not errors. Nil means none. Secrets are never logged.
	Logger *slog.Logger
}

// store is a store of the files in a folder of a data set.
type store struct {
	place
	endpoint *url.URL // HF_ENDPOINT
	client   ranged.Client
	reader   *ranged.Reader
	secrets  ranged.Secrets

	apis, resolvers quota

	turn   chan struct{} // held by the request for the commit
	commit string

	mu    sync.Mutex
	files map[string]*file // by name
}

// New returns the store at hf://rest. HF_ENDPOINT replaces https://huggingface.co. New sends no request.
// The store needs no closing.
func New(rest string, opts Options) (objstore.Store, error) {
	s := &store{turn: make(chan struct{}, 1), files: map[string]*file{}}
	var err error
	if s.place, err = parsePlace(rest); err != nil {
		return nil, objstore.NewError("open", "hf://"+rest, "", err)
	}
	if s.endpoint, err = endpoint(); err != nil {
		return nil, objstore.NewError("open", s.address, "", err)
	}
	s.reader = ranged.New(s.address, opts.ReadOptions, opts.Logger)
	client := opts.HTTPClient
	if client == nil {
		client = ranged.NewClient(s.reader.Traits().MostRequests)
	}
	unguided := *client // send follows redirects
	unguided.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client = ranged.Client{Doer: &unguided}
	return s, nil
}

// place is a parsed address.
type place struct {
	address  string // as the user gave it, without a slash at its end
	repo     string // ORG/NAME
	revision string
	prefix   string // "" or ends in /
}

var (
	word   = regexp.MustCompile(`^[\w.-]*\w[\w.-]*$`)
	commit = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// parsePlace parses datasets/ORG/NAME[@REVISION][/path]. Slashes in a revision are written %2F, except
// those of refs/convert/NAME and refs/pr/NUMBER.
func parsePlace(rest string) (place, error) {
	rest = strings.TrimRight(rest, "/")
	p := place{address: "hf://" + rest}
	kind, rest, _ := strings.Cut(rest, "/")
	if kind != "datasets" {
		return p, errors.New("only data sets of the Hub are supported; give hf://datasets/ORG/NAME, and a path below it")
	}
	org, rest, _ := strings.Cut(rest, "/")
	name, path, _ := strings.Cut(rest, "/")
	name, revision, named := strings.Cut(name, "@")
	if !word.MatchString(org) || !word.MatchString(name) {
		return p, errors.New("it does not name an organization and a data set; give hf://datasets/ORG/NAME, as in the address of its page")
	}
	if revision == "refs" {
		parts := strings.SplitN(path, "/", 3)
		if len(parts) > 1 && (parts[0] == "convert" || parts[0] == "pr") {
			revision, path = "refs/"+parts[0]+"/"+parts[1], strings.Join(parts[2:], "")
		}
	}
	revision, err := url.PathUnescape(revision)
	if err != nil || named && revision == "" {
		return p, errors.New("the text after the @ is not a revision; give a branch, a tag or a commit, with %2F for a slash")
	}
	p.repo, p.revision = org+"/"+name, revision
	if !named {
		p.revision = "main"
	}
	if path != "" {
		p.prefix = path + "/"
		return p, checkName(path)
	}
	return p, nil
}

func endpoint() (*url.URL, error) {
	text := os.Getenv("HF_ENDPOINT")
	if text == "" {
		text = "https://huggingface.co"
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("HF_ENDPOINT is not a URL of scheme, host and path; give one like https://host, and the token in HF_TOKEN")
	}
	return u, nil
}

func checkName(name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: it is not UTF-8, which the Hub requires", objstore.ErrName)
	}
	return nil
}

// check checks a name and its context.
func (s *store) check(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(s.prefix)+len(name) > objstore.MaxNameLen {
		return fmt.Errorf("%w: with the path in the address it has more than %d bytes", objstore.ErrName, objstore.MaxNameLen)
	}
	return ctx.Err()
}

// String returns the address.
func (s *store) String() string { return s.address }

// Traits reports a remote store.
func (s *store) Traits() objstore.Traits { return s.reader.Traits() }

var errReadOnly = fmt.Errorf("%w: shardtool does not write to the Hub; write to a folder or a bucket, then hf upload", objstore.ErrReadOnly)

// Create returns an error that wraps [objstore.ErrReadOnly].
func (s *store) Create(ctx context.Context, name string, _ objstore.Condition) (objstore.Upload, error) {
	return nil, s.readOnly(ctx, "put", name)
}

// Delete returns an error that wraps [objstore.ErrReadOnly].
func (s *store) Delete(ctx context.Context, name string) error {
	return s.readOnly(ctx, "delete", name)
}

func (s *store) readOnly(ctx context.Context, op, name string) error {
	err := s.check(ctx, name)
	if err == nil {
		err = errReadOnly
	}
	return s.fail(op, name, err)
}

func (s *store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}

// pin asks for the commit of the revision, unless it is known.
func (s *store) pin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	if commit.MatchString(s.revision) {
		s.commit = s.revision
	}
	if s.commit != "" {
		return nil
	}
	u := s.endpoint.JoinPath("api/datasets", s.repo, "revision", url.PathEscape(s.revision))
	u.RawQuery = "expand=sha" // without it, the answer names all files
	return s.reader.Do(ctx, func(ctx context.Context) error {
		var answer struct{ SHA string }
		_, err := s.ask(ctx, u, &answer)
		if err != nil && !errors.Is(err, errNoEntry) {
			return err
		}
		if err != nil || !commit.MatchString(answer.SHA) {
			return fmt.Errorf("%s gives no commit of %s; check the address and HF_ENDPOINT", s.endpoint, s.repo)
		}
		s.commit = answer.SHA
		return nil
	})
}

// ask sends a request to the API and decodes the answer.
func (s *store) ask(ctx context.Context, u *url.URL, into any) (http.Header, error) {
	answer, err := s.send(ctx, http.MethodGet, u, "")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, s.explain(answer)
	}
	const most = 64 << 20
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &ranged.Transient{Err: errors.New("the answer broke off"), Answered: true}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("the Hub's answer is not the JSON expected: %s; check HF_ENDPOINT", ranged.Scrub(err.Error()))
	}
	return answer.Header, nil
}
