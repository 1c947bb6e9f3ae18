// Package hub reads the files of data sets on the Hugging Face Hub. The store is read only.
//
// The revision in the address becomes a commit when the store is used first, and all requests name
// that commit. Three kinds of requests follow:
//
//	commit  the commit of a revision, from the API, once for each store
//	tree    the files below a folder, from the API, in pages
//	file    /resolve/ answers with the bytes of a small file, or redirects to where they are: for
//	        files in LFS or Xet, to a signed URL on another host
//
// The Hub limits the number of requests for the API and for /resolve/ in five minutes each. So the
// place of a file is kept until its signature expires, and ranges are read from there; and no
// request is sent before the end of the window if the Hub's last answer says that none are left.
//
// The token is sent to the endpoint and to no other host. Documentation of the Hub: rate limits are
// described at https://huggingface.co/docs/hub/rate-limits, the headers of /resolve/ and the errors
// in package huggingface_hub (file_download.py, utils/_http.py).
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
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
	ranged.ReadOnly
	place
	endpoint *url.URL // HF_ENDPOINT
	client   ranged.Client
	reader   *ranged.Reader
	secrets  ranged.Secrets

	apis, resolvers ranged.Quota

	turn   turn // of the request for the commit
	commit string

	mu    sync.Mutex
	files map[string]*file // by name
}

// New returns the store at hf://rest. HF_ENDPOINT replaces https://huggingface.co. New sends no
// request. The store needs no closing.
func New(rest string, opts Options) (objstore.Store, error) {
	s := &store{turn: make(turn, 1), files: map[string]*file{}}
	const advice = "a token in HF_TOKEN, or an account with a higher limit, raises it"
	s.apis.Advice, s.resolvers.Advice = advice, advice
	var err error
	if s.place, err = parsePlace(rest); err != nil {
		return nil, objstore.NewError("open", "hf://"+rest, "", err)
	}
	if s.endpoint, err = endpoint(); err != nil {
		return nil, objstore.NewError("open", s.address, "", err)
	}
	s.ReadOnly = ranged.ReadOnly{Store: s.address, Check: s.check, Err: fmt.Errorf("%w: shardtool does not write to the Hub; "+
		"write to a folder or a bucket, then hf upload", objstore.ErrReadOnly)}
	s.reader = ranged.New(s.address, opts.ReadOptions, opts.Logger)
	unguided := *cmp.Or(opts.HTTPClient, ranged.NewClient(s.reader.Traits().MostRequests)) // send follows redirects
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
	refs   = regexp.MustCompile(`^(convert|pr)/[^/]+`)
)

// parsePlace parses datasets/ORG/NAME[@REVISION][/path]. Slashes in a revision are written %2F,
// except in refs/convert/NAME and refs/pr/NUMBER.
func parsePlace(rest string) (place, error) {
	rest = strings.TrimRight(rest, "/")
	p := place{address: "hf://" + rest}
	kind, rest, _ := strings.Cut(rest, "/")
	if kind != "datasets" {
		return p, errors.New("only data sets and buckets of the Hub are supported; give hf://datasets/ORG/NAME or hf://buckets/ORG/NAME, and a path below it")
	}
	org, rest, _ := strings.Cut(rest, "/")
	name, path, _ := strings.Cut(rest, "/")
	name, revision, named := strings.Cut(name, "@")
	if !word.MatchString(org) || !word.MatchString(name) {
		return p, errors.New("it does not name an organization and a data set; give hf://datasets/ORG/NAME, as in the address of its page")
	}
	if ref := refs.FindString(path); ref != "" && revision == "refs" {
		revision, path = "refs/"+ref, strings.TrimPrefix(path[len(ref):], "/")
	}
	if !named {
		revision = "main"
	}
	revision, err := url.PathUnescape(revision)
	p.repo, p.revision = org+"/"+name, revision
	if err != nil || revision == "" {
		return p, errors.New("the text after the @ is not a revision; give a branch, a tag or a commit, with %2F for a slash")
	}
	if path != "" {
		p.prefix = path + "/"
		return p, checkName(path)
	}
	return p, nil
}

func endpoint() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("HF_ENDPOINT is not a URL of scheme, host and path; give one like https://host, and the token in HF_TOKEN")
	}
	return u, nil
}

func checkName(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: it is not UTF-8, which the Hub requires", objstore.ErrName)
	}
	return objstore.CheckName(name)
}

// check checks a name and its context.
func (s *store) check(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil && len(s.prefix)+len(name) > objstore.MaxNameLen {
		err = fmt.Errorf("%w: with the path in the address it has more than %d bytes", objstore.ErrName, objstore.MaxNameLen)
	}
	return cmp.Or(err, ctx.Err())
}

// String returns the address.
func (s *store) String() string { return s.address }

// Traits reports a remote store.
func (s *store) Traits() objstore.Traits { return s.reader.Traits() }

// Describe asks the Hub whose token it is.
func (s *store) Describe(ctx context.Context) (objstore.Description, error) {
	token, from := s.token()
	d := objstore.Description{Identity: "anonymous", From: from, Endpoint: s.endpoint.String()}
	if token == "" {
		d.From = "no token in HF_TOKEN or in " + from
		return d, nil
	}
	var who struct {
		Name, Type string
		Auth       struct{ AccessToken struct{ Role string } }
	}
	err := s.reader.Do(ctx, func(ctx context.Context) error {
		_, err := s.ask(ctx, s.endpoint.JoinPath("api/whoami-v2"), &who)
		return err
	})
	if errors.Is(err, errNoEntry) { // another server than the Hub
		err = nil
	}
	d.Identity = strings.TrimSpace(ranged.Clean(who.Type) + " " + ranged.Clean(who.Name))
	if role := ranged.Clean(who.Auth.AccessToken.Role); role != "" {
		d.Identity += ", with a token to " + role
	}
	d.Identity = cmp.Or(d.Identity, "a token")
	return d, s.fail("open", "", err)
}

func (s *store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}

// turn lets one request at a time run.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case t <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// pin asks for the commit of the revision, unless it is known.
func (s *store) pin(ctx context.Context) error {
	if err := s.turn.take(ctx); err != nil {
		return err
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
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil {
		return nil, cmp.Or(ctx.Err(), error(&ranged.Transient{Err: errors.New("the answer broke off"), Answered: true}))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("the Hub's answer is not the JSON expected: %s; check HF_ENDPOINT", ranged.Scrub(err.Error()))
	}
	return answer.Header, nil
}

// List requests all pages of the folder that prefix names before it yields the first object,
// because the Hub lists the files of a tree in another order.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		found, err := s.list(ctx, prefix)
		for i := 0; err == nil && i < len(found); i++ {
			if !yield(found[i], nil) {
				return
			}
			err = ctx.Err()
		}
		if err != nil {
			yield(objstore.Info{}, s.fail("list", prefix, err))
		}
	}
}

// entry is a file or a folder of a tree.
type entry struct {
	Type, Path, OID string
	Size            int64
	LFS             *struct {
		OID  string
		Size int64
	} // of files in LFS or Xet
}

var nextPage = regexp.MustCompile(`<[^?>]*\?([^>]*)>[^,]*;\s*rel="?next`)

func (s *store) list(ctx context.Context, prefix string) ([]objstore.Info, error) {
	if err := s.pin(ctx); err != nil {
		return nil, err
	}
	full := s.prefix + prefix
	folder := full[:max(0, strings.LastIndexByte(full, '/'))]
	if folder != "" && checkName(folder) != nil {
		return nil, nil // no file has such a name
	}
	u := s.endpoint.JoinPath("api/datasets", s.repo, "tree", s.commit)
	if folder != "" {
		u = u.JoinPath(url.PathEscape(folder))
	}
	u.RawQuery = "recursive=true"
	var found []objstore.Info
	for asked := map[string]bool{}; u.RawQuery != ""; {
		if asked[u.RawQuery] {
			return nil, errors.New("the Hub lists the same page twice; check HF_ENDPOINT")
		}
		asked[u.RawQuery] = true
		var page []entry
		var header http.Header
		err := s.reader.Do(ctx, func(ctx context.Context) (err error) {
			header, err = s.ask(ctx, u, &page)
			return err
		})
		if errors.Is(err, errNoEntry) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		for _, e := range page {
			info := objstore.Info{Name: strings.TrimPrefix(e.Path, s.prefix), Size: e.Size, ETag: e.OID}
			if e.LFS != nil {
				info.Size, info.ETag = e.LFS.Size, e.LFS.OID
			}
			if e.Type == "file" && strings.HasPrefix(e.Path, full) && checkName(info.Name) == nil {
				found = append(found, info)
			}
		}
		u.RawQuery = nextQuery(header)
	}
	slices.SortFunc(found, func(a, b objstore.Info) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(found, func(a, b objstore.Info) bool { return a.Name == b.Name }), nil
}

// nextQuery returns the query of the next page, or "". The rest of its address may be the one of
// another server than HF_ENDPOINT.
func nextQuery(header http.Header) string {
	if found := nextPage.FindStringSubmatch(header.Get("Link")); found != nil {
		return found[1]
	}
	return ""
}
