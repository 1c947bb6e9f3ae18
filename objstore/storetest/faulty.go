package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// ErrInjected is the default error of a [Faulty] store.
var ErrInjected = errors.New("injected fault")

// Fault selects the operation of a Faulty store that fails, and how. Operations are numbered from
// 0. Every Open, Stat, Create, Delete, ReadAt, Info, Write and Commit is an operation, and so is
// every step of a List, including its end. Close and Abort are not.
type Fault struct {
	// At is the number of the operation that fails. A negative number means none.
	At int
	// After lets the operation take effect before it fails, as if the answer was lost: a Commit has
	// put the object.
	After bool
	// Short lets a Write store, or a ReadAt fill, the first half of the bytes before it fails.
	Short bool
	// Kill makes every later operation fail too, without effect, as if the process had died.
	Kill bool
	// Err is the error returned, by default ErrInjected.
	Err error
}

// Faulty is an objstore.Store that wraps another one and in which one operation fails. It is as
// concurrent as that store; concurrent operations are numbered in the order in which they happen.
type Faulty struct {
	inner objstore.Store
	fault Fault

	mu    sync.Mutex
	ops   int
	fired bool
}

// NewFaulty wraps a store.
func NewFaulty(inner objstore.Store, fault Fault) *Faulty {
	if fault.Err == nil {
		fault.Err = ErrInjected
	}
	return &Faulty{inner: inner, fault: fault}
}

// EachFault runs test with the fault at operation 0, 1, 2 and so on, each time over a new store
// from open, until a run in which the fault did not fire. It ignores the At of fault. test must
// check that the run succeeds if Fired reports false. EachFault returns the number of operations of
// the last run.
func EachFault(t *testing.T, open func(t *testing.T) objstore.Store, fault Fault,
	test func(t *testing.T, store *Faulty)) int {
	t.Helper()
	// A test that retries for ever would never complete without a fault.
	const limit = 100_000
	for fault.At = 0; fault.At < limit; fault.At++ {
		store := NewFaulty(nil, fault)
		ok := t.Run(fmt.Sprintf("operation=%d", fault.At), func(t *testing.T) {
			store.inner = open(t)
			test(t, store)
		})
		if !ok || !store.Fired() {
			return store.Ops()
		}
	}
	t.Fatalf("a fault still fires at operation %d", limit)
	return 0
}

// Ops returns the number of operations so far.
func (f *Faulty) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Fired reports whether an operation has failed because of the Fault.
func (f *Faulty) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// effect is how one operation behaves.
type effect struct {
	run   bool // it reaches the inner store
	half  bool // with half of the bytes
	fails bool
}

func (f *Faulty) next() effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.ops
	f.ops++
	switch {
	case op == f.fault.At && f.fault.At >= 0:
		f.fired = true
		return effect{run: f.fault.After, half: f.fault.Short, fails: true}
	case f.fired && f.fault.Kill:
		return effect{fails: true}
	}
	return effect{run: true}
}

// died reports whether the Fault has simulated the death of the process.
func (f *Faulty) died() bool { return f.fault.Kill && f.Fired() }

func (f *Faulty) fail(op, name string) error {
	return objstore.NewError(op, f.String(), name, f.fault.Err)
}

// String returns the address of the inner store.
func (f *Faulty) String() string { return f.inner.String() }

// Traits returns the traits of the inner store that are independent of the fault: the number of
// requests. OpenAs would return objects that never fail, and locks and sweeps are not counted as
// operations.
func (f *Faulty) Traits() objstore.Traits {
	traits := objstore.TraitsOf(f.inner)
	return objstore.Traits{Requests: traits.Requests, MostRequests: traits.MostRequests, Reserve: traits.Reserve,
		Versions: traits.Versions,
		ListAll: func(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
			return f.listed(prefix, objstore.ListAll(ctx, f.inner, prefix))
		}}
}

// Open counts as one operation.
func (f *Faulty) Open(ctx context.Context, name string) (objstore.Object, error) {
	e := f.next()
	if e.fails && !e.run {
		return nil, f.fail("get", name)
	}
	object, err := f.inner.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if e.fails {
		object.Close()
		return nil, f.fail("get", name)
	}
	return &faultyObject{store: f, inner: object, name: name}, nil
}

// Stat counts as one operation.
func (f *Faulty) Stat(ctx context.Context, name string) (objstore.Info, error) {
	if f.next().fails {
		return objstore.Info{}, f.fail("stat", name)
	}
	return f.inner.Stat(ctx, name)
}

// Create counts as one operation. If it fails after it took effect, the upload, which nobody can
// reach, is aborted.
func (f *Faulty) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	e := f.next()
	if e.fails && !e.run {
		return nil, f.fail("put", name)
	}
	upload, err := f.inner.Create(ctx, name, cond)
	if err != nil {
		return nil, err
	}
	if e.fails {
		return nil, errors.Join(f.fail("put", name), upload.Abort())
	}
	return &faultyUpload{store: f, inner: upload, name: name}, nil
}

// Delete counts as one operation.
func (f *Faulty) Delete(ctx context.Context, name string) error {
	e := f.next()
	if e.fails && !e.run {
		return f.fail("delete", name)
	}
	if err := f.inner.Delete(ctx, name); err != nil || !e.fails {
		return err
	}
	return f.fail("delete", name)
}

// List counts every step and the end as one operation each.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return f.listed(prefix, f.inner.List(ctx, prefix))
}

func (f *Faulty) listed(prefix string, inner iter.Seq2[objstore.Info, error]) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range inner {
			if f.next().fails {
				yield(objstore.Info{}, f.fail("list", prefix))
				return
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
		if f.next().fails {
			yield(objstore.Info{}, f.fail("list", prefix))
		}
	}
}
