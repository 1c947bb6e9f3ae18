// Package hub reads the files of data sets on the Hugging Face Hub. The store is read only.
//
// The revision in the address becomes a commit when the store is used first, and all later requests
// name that commit. The first answer of /resolve/ has it. There are three kinds of requests:
//
//	commit  the commit of a revision, from the API, if a list comes before the first file
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
	"iter"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/credentials"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Options configure a store. The zero value is right for the Hub.
type Options = ranged.Connection

// store is a store of the files in a folder of a data set, whose ORG/NAME is the bucket. The key of
// a file is its path.
type store struct {
	ranged.Objects
	revision string
	endpoint *url.URL // HF_ENDPOINT

	apis, resolvers ranged.Quota
	inFile          rotated                  // the token of the file
	trusted         credentials.Kept[string] // tokens that the Hub gives for the identity of a job

	turn   turn // of the request that learns the commit; who takes it may use commit
	commit string

	mu    sync.Mutex
	files map[string]*file // by key
}

// New returns the store at hf://rest. HF_ENDPOINT replaces https://huggingface.co. New sends no
// request. The store needs no closing.
func New(rest string, opts Options) (objstore.Store, error) {
	s := &store{turn: make(turn, 1), files: map[string]*file{}}
	s.trusted.Ask = s.exchange
	const advice = "a token in HF_TOKEN, or an account with a higher limit, raises it"
	s.apis.Advice, s.resolvers.Advice = advice, advice
	err := s.parse(rest)
	if err == nil {
		if commit.MatchString(s.revision) {
			s.commit = s.revision
		}
		s.endpoint, err = endpoint()
	}
	if err != nil {
		return nil, s.Fail("open", "", err)
	}
	unguided := *s.Connect(opts, s) // send follows redirects
	unguided.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.Client = ranged.Client{Doer: &unguided}
	return s, nil
}

var (
	word   = regexp.MustCompile(`^[\w.-]*\w[\w.-]*$`)
	commit = regexp.MustCompile(`^[0-9a-f]{40}$`)
	refs   = regexp.MustCompile(`^(convert|pr)/[^/]+`)
)

// parse parses datasets/ORG/NAME[@REVISION][/path]. Slashes in a revision are written %2F, except
// in refs/convert/NAME and refs/pr/NUMBER.
func (s *store) parse(rest string) error {
	rest = strings.TrimRight(rest, "/")
	s.Address = "hf://" + rest
	kind, rest, _ := strings.Cut(rest, "/")
	if kind != "datasets" {
		return errors.New("only data sets and buckets of the Hub are supported; give hf://datasets/ORG/NAME or hf://buckets/ORG/NAME, and a path below it")
	}
	org, rest, _ := strings.Cut(rest, "/")
	name, path, _ := strings.Cut(rest, "/")
	name, revision, named := strings.Cut(name, "@")
	if !word.MatchString(org) || !word.MatchString(name) {
		return errors.New("it does not name an organization and a data set; give hf://datasets/ORG/NAME, as in the address of its page")
	}
	if ref := refs.FindString(path); ref != "" && revision == "refs" {
		revision, path = "refs/"+ref, strings.TrimPrefix(path[len(ref):], "/")
	}
	if !named {
		revision = "main"
	}
	revision, err := url.PathUnescape(revision)
	s.Bucket.Bucket, s.revision = org+"/"+name, revision
	if err != nil || revision == "" {
		return errors.New("the text after the @ is not a revision; give a branch, a tag or a commit, with %2F for a slash")
	}
	if path != "" {
		s.Prefix = path + "/"
		return ranged.CheckName(path)
	}
	return nil
}

func endpoint() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("HF_ENDPOINT is not a URL of scheme, host and path; give one like https://host, and the token in HF_TOKEN")
	}
	return u, nil
}

// Create returns an error: the store is read only.
func (s *store) Create(ctx context.Context, name string, _ objstore.Condition) (objstore.Upload, error) {
	key, err := s.Key(ctx, name)
	return nil, s.Fail("put", name, cmp.Or(err, s.Remove(ctx, key)))
}

// Remove implements ranged.Backend. It returns an error: the store is read only.
func (s *store) Remove(context.Context, string) error {
	return fmt.Errorf("%w: shardtool does not write to the Hub; write to a folder or a bucket, then hf upload",
		objstore.ErrReadOnly)
}

// Describe asks the Hub whose token it is.
func (s *store) Describe(ctx context.Context) (objstore.Description, error) {
	is, from := s.authorized()
	d := objstore.Description{Identity: "anonymous", From: from, Endpoint: s.endpoint.String()}
	if !is {
		d.From = "no token in HF_TOKEN or in " + from
		return d, nil
	}
	var who struct {
		Name, Type string
		Auth       struct{ AccessToken struct{ Role string } }
	}
	err := s.Reader.Do(ctx, func(ctx context.Context) error {
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
	return d, s.Fail("open", "", err)
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
	if s.commit != "" {
		return nil
	}
	u := s.endpoint.JoinPath("api/datasets", s.Bucket.Bucket, "revision", url.PathEscape(s.revision))
	u.RawQuery = "expand=sha" // without it, the answer names all files
	return s.Reader.Do(ctx, func(ctx context.Context) error {
		var answer struct{ SHA string }
		_, err := s.ask(ctx, u, &answer)
		if err != nil && !errors.Is(err, errNoEntry) {
			return err
		}
		if err != nil || !commit.MatchString(answer.SHA) {
			return s.noCommit()
		}
		s.commit = answer.SHA
		return nil
	})
}

func (s *store) noCommit() error {
	return fmt.Errorf("%s gives no commit of %s; check the address and HF_ENDPOINT", s.endpoint, s.Bucket.Bucket)
}

// ask sends a request to the API and decodes the answer.
func (s *store) ask(ctx context.Context, u *url.URL, into any) (http.Header, error) {
	answer, err := s.send(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, s.explain(answer)
	}
	if err = ranged.Decode(answer, into, json.Unmarshal); err != nil {
		err = fmt.Errorf("%w (HF_ENDPOINT)", err)
	}
	return answer.Header, err
}

// List requests all pages of the folder that prefix names before it yields the first object,
// because the Hub lists the files of a tree in another order.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.listed(ctx, prefix, ranged.CheckName)
}

// Traits returns the traits of all stores on networks, and ListAll.
func (s *store) Traits() objstore.Traits {
	traits := s.Objects.Traits()
	traits.ListAll = func(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
		return s.listed(ctx, prefix, func(string) error { return nil })
	}
	return traits
}

func (s *store) listed(ctx context.Context, prefix string,
	check func(name string) error) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		found, err := s.list(ctx, prefix, check)
		for i := 0; err == nil && i < len(found); i++ {
			if !yield(found[i], nil) {
				return
			}
			err = ctx.Err()
		}
		if err != nil {
			yield(objstore.Info{}, s.Fail("list", prefix, err))
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

func (s *store) list(ctx context.Context, prefix string, check func(name string) error) ([]objstore.Info, error) {
	if err := s.pin(ctx); err != nil {
		return nil, err
	}
	full := s.Prefix + prefix
	folder := full[:max(0, strings.LastIndexByte(full, '/'))]
	if folder != "" && ranged.CheckName(folder) != nil {
		return nil, nil // no file has such a name
	}
	u := s.endpoint.JoinPath("api/datasets", s.Bucket.Bucket, "tree", s.commit)
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
		err := s.Reader.Do(ctx, func(ctx context.Context) (err error) {
			header, err = s.ask(ctx, u, &page)
			return err
		})
		if errors.Is(err, errNoEntry) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		for _, e := range page {
			info := objstore.Info{Name: strings.TrimPrefix(e.Path, s.Prefix), Size: e.Size, ETag: e.OID}
			if e.LFS != nil {
				info.Size, info.ETag = e.LFS.Size, e.LFS.OID
			}
			if e.Type == "file" && strings.HasPrefix(e.Path, full) && check(info.Name) == nil {
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
