package writer_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/mem"
)

// discard is a store that keeps the sizes of shards, and the bytes of everything else.
type discard struct {
	*mem.Store
	mu    sync.Mutex
	infos map[string]objstore.Info
}

func newDiscard() *discard { return &discard{Store: mem.New(), infos: map[string]objstore.Info{}} }

func (d *discard) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	if !strings.Contains(name, ".tar") {
		return d.Store.Create(ctx, name, cond)
	}
	return &discardUpload{d: d, info: objstore.Info{Name: name}}, nil
}

func (d *discard) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
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
	d    *discard
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
