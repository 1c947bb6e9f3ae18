package storetest

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// Discard is a store in memory that keeps only the names and sizes of large objects, for tests and
// benchmarks of code that writes them. It keeps other objects entirely.
type Discard struct {
	*mem.Store
	large func(name string) bool
	mu    sync.Mutex
	infos map[string]objstore.Info
}

// NewDiscard returns an empty store. large selects the names whose bytes are discarded.
func NewDiscard(large func(name string) bool) *Discard {
	return &Discard{Store: mem.New(), large: large, infos: map[string]objstore.Info{}}
}

// Create implements objstore.Store.
func (d *Discard) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	if !d.large(name) {
		return d.Store.Create(ctx, name, cond)
	}
	return &discardUpload{d: d, info: objstore.Info{Name: name}}, nil
}

// List implements objstore.Store.
func (d *Discard) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		d.mu.Lock()
		var all []objstore.Info
		for _, info := range d.infos {
			all = append(all, info)
		}
		d.mu.Unlock()
		for info, err := range d.Store.List(ctx, prefix) {
			if err != nil {
				yield(info, err)
				return
			}
			all = append(all, info)
		}
		slices.SortFunc(all, func(a, b objstore.Info) int { return strings.Compare(a.Name, b.Name) })
		for _, info := range all {
			if strings.HasPrefix(info.Name, prefix) && !yield(info, nil) {
				return
			}
		}
	}
}

type discardUpload struct {
	d    *Discard
	info objstore.Info
}

func (u *discardUpload) Write(p []byte) (int, error) {
	u.info.Size += int64(len(p))
	return len(p), nil
}

func (u *discardUpload) Commit(context.Context) (objstore.Info, error) {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	u.d.infos[u.info.Name] = u.info
	return u.info, nil
}

func (u *discardUpload) Abort() error { return nil }
