package ranged

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// Pager requests one page of the objects whose keys begin with prefix, without a retry of its own.
// Their names are the keys. token is "" for the first page, and next is the token of the next one
// or "". It returns the same errors as a [Getter].
type Pager func(ctx context.Context, prefix, token string) (page []objstore.Info, next string, err error)

// List yields the objects below the prefix of the store, whose names begin with prefix. It requests
// a page when the one before is used up. It leaves out keys for which check returns an error, such
// as the "dir/" that consoles create for folders; a nil check leaves out none. It checks that keys
// ascend: callers that merge lists depend on it, and a server that repeats pages would otherwise
// never end.
func (r *Reader) List(ctx context.Context, below, prefix string, check func(name string) error,
	ask Pager) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := r.list(ctx, below, prefix, check, ask, yield); err != nil {
			yield(objstore.Info{}, r.Fail("list", prefix, err))
		}
	}
}

// list returns nil if yield returned false.
func (r *Reader) list(ctx context.Context, below, prefix string, check func(name string) error, ask Pager,
	yield func(objstore.Info, error) bool) error {
	if len(below)+len(prefix) > objstore.MaxNameLen {
		return ctx.Err() // no key is that long
	}
	const most = 1000 // empty pages in a row
	for last, token, empty := "", "", 0; ; empty++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var page []objstore.Info
		var next string
		err := r.Do(ctx, func(ctx context.Context) (err error) {
			page, next, err = ask(ctx, below+prefix, token)
			return err
		})
		if err != nil {
			return noList(err)
		}
		for _, info := range page {
			key := info.Name
			if !strings.HasPrefix(key, below+prefix) {
				return fmt.Errorf("the server lists %.100q, which does not begin with the prefix asked for", key)
			}
			if last != "" && key <= last {
				return fmt.Errorf("the server lists %.100q after %.100q; only servers that list in ascending order "+
					"of keys are supported, which directory buckets of S3 do not", key, last)
			}
			last, empty = key, 0
			info.Name = key[len(below):]
			if check != nil && (check(info.Name) != nil || info.Size < 0) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if !yield(info, nil) {
				return nil
			}
		}
		if next == "" {
			return ctx.Err()
		}
		if next == token || empty > most {
			return errors.New("the server lists more keys than it returns and gives no token for the next page; use one that lists in pages")
		}
		token = next
	}
}

// refusedList is the refusal of a list. It matches [objstore.ErrNoList], because objects whose names
// are known may be read without the right to list.
type refusedList struct{ error }

func (e *refusedList) Is(target error) bool { return target == objstore.ErrNoList }
func (e *refusedList) Unwrap() error        { return e.error }

func noList(err error) error {
	a, _ := errors.AsType[Answer](err)
	if _, again := errors.AsType[*Transient](err); !again &&
		(a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized) {
		return &refusedList{err}
	}
	return err
}
