// Package mem implements a store in memory, for tests. It has the same contract as the others.
package mem

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Store is an [objstore.Store] in memory. Use [New]. Many goroutines may use it.
type Store struct {
	mu      sync.RWMutex
	objects map[string]version
	puts    uint64 // number of commits; ETags are made from it, so none repeats
}

// version is one committed object. Its bytes never change, so handles and clones share them.
type version struct {
	data []byte
	info objstore.Info
}

// New returns an empty store.
func New() *Store { return &Store{objects: make(map[string]version)} }

// Clone returns an independent store with the objects committed so far and the same ETags: the
// state after a crash at this moment. Uploads in progress stay with s.
func (s *Store) Clone() *Store {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &Store{objects: maps.Clone(s.objects), puts: s.puts}
}

// String returns "mem:".
func (s *Store) String() string { return "mem:" }

// Open pins the current version.
func (s *Store) Open(ctx context.Context, name string) (objstore.Object, error) {
	v, err := s.find(ctx, name)
	if err != nil {
		return nil, s.fail("get", name, err)
	}
	return &object{store: s, version: v}, nil
}

// Stat describes an object.
func (s *Store) Stat(ctx context.Context, name string) (objstore.Info, error) {
	v, err := s.find(ctx, name)
	if err != nil {
		return objstore.Info{}, s.fail("stat", name, err)
	}
	return v.info, nil
}

// List yields a snapshot that it takes at its first step.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for _, info := range s.snapshot(prefix) {
			if err := ctx.Err(); err != nil {
				yield(objstore.Info{}, s.fail("list", prefix, err))
				return
			}
			if !yield(info, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(objstore.Info{}, s.fail("list", prefix, err))
		}
	}
}

// Delete removes an object. Open handles keep its bytes.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return s.fail("delete", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	return nil
}

// Create begins an object whose bytes stay in memory until Commit.
func (s *Store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	if err := check(ctx, name); err != nil {
		return nil, s.fail("put", name, err)
	}
	return &upload{store: s, ctx: ctx, name: name, cond: cond}, nil
}

func (s *Store) find(ctx context.Context, name string) (version, error) {
	if err := check(ctx, name); err != nil {
		return version{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.objects[name]
	if !ok {
		return version{}, fs.ErrNotExist
	}
	return v, nil
}

func (s *Store) snapshot(prefix string) []objstore.Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var infos []objstore.Info
	for name, v := range s.objects {
		if strings.HasPrefix(name, prefix) {
			infos = append(infos, v.info)
		}
	}
	slices.SortFunc(infos, func(a, b objstore.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

func (s *Store) commit(name string, data []byte, cond objstore.Condition) (objstore.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, exists := s.objects[name]
	switch {
	case cond.IfNoneMatch && exists:
		return objstore.Info{}, objstore.ErrExists
	case cond.IfMatch != "" && (!exists || old.info.ETag != cond.IfMatch):
		return objstore.Info{}, objstore.ErrChanged
	}
	s.puts++
	info := objstore.Info{
		Name:    name,
		Size:    int64(len(data)),
		ETag:    fmt.Sprintf("mem-%d", s.puts),
		ModTime: time.Now(),
	}
	s.objects[name] = version{data: data, info: info}
	return info, nil
}

func (s *Store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.String(), name, err)
}

func check(ctx context.Context, name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	return ctx.Err()
}

type object struct {
	store   *Store
	version version
	closed  atomic.Bool
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := o.usable(ctx); err != nil {
		return o.store.fail("get", o.version.info.Name, err)
	}
	size := o.version.info.Size
	if off < 0 || off > size || int64(len(p)) > size-off {
		err := fmt.Errorf("%d bytes at %d of %d: %w", len(p), off, size, io.ErrUnexpectedEOF)
		return o.store.fail("get", o.version.info.Name, err)
	}
	copy(p, o.version.data[off:])
	return nil
}

func (o *object) Info(ctx context.Context) (objstore.Info, error) {
	if err := o.usable(ctx); err != nil {
		return objstore.Info{}, o.store.fail("stat", o.version.info.Name, err)
	}
	return o.version.info, nil
}

func (o *object) Close() error {
	o.closed.Store(true)
	return nil
}

func (o *object) usable(ctx context.Context) error {
	if o.closed.Load() {
		return fs.ErrClosed
	}
	return ctx.Err()
}

type upload struct {
	store *Store
	ctx   context.Context
	name  string
	cond  objstore.Condition
	data  []byte
	err   error // sticky; fs.ErrClosed once the upload is over
}

func (u *upload) Write(p []byte) (int, error) {
	u.err = cmp.Or(u.err, u.ctx.Err())
	if u.err == nil && len(p) > math.MaxInt-len(u.data) {
		u.err = objstore.ErrTooLarge
	}
	if u.err != nil {
		return 0, u.store.fail("put", u.name, u.err)
	}
	u.data = append(u.data, p...)
	return len(p), nil
}

func (u *upload) Commit(ctx context.Context) (objstore.Info, error) {
	err := cmp.Or(u.err, u.ctx.Err(), ctx.Err())
	data := u.data
	u.data, u.err = nil, fs.ErrClosed
	if err != nil {
		return objstore.Info{}, u.store.fail("put", u.name, err)
	}
	info, err := u.store.commit(u.name, data, u.cond)
	return info, u.store.fail("put", u.name, err)
}

func (u *upload) Abort() error {
	u.data, u.err = nil, fs.ErrClosed
	return nil
}
